"""What `mdl.Compressor` is made of, a room each; importing any of them imports torch.

Neighbours: `window` says whose gradients count, `ema` averages them, `groups` reads the module tree, `swap` puts
candidates into the live model, `ranks` is the way between processes, `trials` the search's rounds. Nobody outside knows
these.
"""
