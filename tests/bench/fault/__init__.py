"""Runs that are killed and go on from a repository.

Neighbours: `quality.tasks` has the models, `fault_bench.py` drives.
"""
