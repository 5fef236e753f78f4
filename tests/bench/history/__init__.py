"""Histories of many versions: what the hundredth costs beside the first."""
