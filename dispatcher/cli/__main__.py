"""`python -m dispatcher.cli`: the `overnight` command where its script is not on PATH."""

from dispatcher.cli import main

main()
