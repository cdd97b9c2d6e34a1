"""A worker's host in a process of its own: one order a line on stdin, one result a line on stdout."""

import sys

from workers.host import Host
from workers.orders import UnitOrder


def main() -> None:
    """Serve until stdin closes."""
    host = Host(sys.argv[1], beat=0.2, patience=60, show=lambda *_: None)
    host.start()
    for line in sys.stdin:
        sys.stdout.write(host.run(UnitOrder.model_validate_json(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
