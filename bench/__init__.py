"""Measurements: run with `python -m bench` (step times) or `python -m bench.stats_cost`."""
