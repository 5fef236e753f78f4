"""Training runs that are killed and resume from a repository."""
