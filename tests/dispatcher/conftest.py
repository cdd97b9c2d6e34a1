"""Puts this folder on the path, for the helpers that the tests of all the dispatcher's packages share."""
