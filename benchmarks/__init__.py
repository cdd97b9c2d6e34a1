"""Benchmarks: ratios taken in one run, because machines are noisy; never part of a timed test."""
