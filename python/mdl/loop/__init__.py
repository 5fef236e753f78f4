"""Internal parts of `mdl.Compressor`, one module each; importing any of them imports torch.

None of them is public API.
"""
