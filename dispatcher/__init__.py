"""All units: the state file, decisions, recovery, merging, the command line. Knows workers and worktrees."""
