"""One unit: session log, turn loop, model, tools, verify. Knows worktrees; never the state file."""
