"""Differentiable k-means (DKM, arXiv 2108.12659) in little memory (eDKM, arXiv 2309.00964): what `mdl.palettize` does.

torch is imported here; `import mdl` does not do it.
"""
