"""Runs that are killed and go on from a repository."""
