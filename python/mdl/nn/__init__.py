"""Models whose weights live compressed in memory (NeuZip), trained and run so.

mdl.nn.compress(model)
optimizer = mdl.nn.AdamW(model, lr=3e-4, moments=8)
for batch in batches:
    optimizer.backward(loss(model, batch))
    optimizer.step()
repo.commit({"model": model})

model = mdl.nn.load(repo, "main", model=make())
"""

from .compression import CompressionReport, compress, decompress, report
from .loading import load
from .optimizers import SGD, AdamW
from .segments import BUFFER
from .weight import Weight

__all__ = ["BUFFER", "SGD", "AdamW", "CompressionReport", "Weight", "compress", "decompress", "load", "report"]
