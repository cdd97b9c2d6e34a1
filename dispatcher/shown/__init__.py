"""Shown: what people are shown of a night, while it goes on and afterwards. Nobody decides by it."""
