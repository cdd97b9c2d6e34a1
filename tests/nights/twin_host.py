"""A worker's host in a process of its own, for tests: one order a line on stdin, one line of result a line on stdout."""

import sys

from workers.host import Host
from workers.orders import UnitOrder


def main() -> None:
    """Serve until stdin closes."""
    host = Host(sys.argv[1], beat=0.2, patience=60, show=lambda *_: None)
    host.start()
    for line in sys.stdin:
        print(host.run(UnitOrder.model_validate_json(line)), flush=True)


if __name__ == "__main__":
    main()
