"""The append-only session log: the one source of truth for an attempt (spec L1-L12)."""
