"""Unattended: a run that needs nobody beside it: at its time, in the background, on a machine that stays awake."""
