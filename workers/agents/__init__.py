"""Agents as bundles of configuration, loaded when a turn starts (spec A1)."""
