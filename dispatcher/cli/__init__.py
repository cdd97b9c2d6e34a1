"""The `overnight` command: one module a command, one boundary that maps errors to exit codes."""
