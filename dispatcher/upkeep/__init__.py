"""Upkeep: what nights have left on this host: compared with what it should be, rebuilt, compressed, deleted."""
