"""Git and processes: worktrees, commits, merges, confined commands. Knows no unit, no model, no queue."""
