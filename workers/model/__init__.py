"""The model: the one client, its catalogue and its prices."""
