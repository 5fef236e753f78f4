"""What `mdl.Compressor` is made of, a room each; importing any of them imports torch.

Nobody outside knows these.
"""
