"""Makes the golden repository with signatures and provenance: run once; its output is then frozen.

Usage: make_signed.py OUT   (the mdl binary as MDL_BIN, PYTHONPATH=tests). OUT gets `store/`, a bare repository of two
versions signed by an Ed25519 and a P-256 key and a signed tag, `allowed_signers`, and `expected.json`: for every
version the SHA-256 of every file. The keys are thrown away.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from support.cli import Mdl
from support.tensors import Tensor, write_safetensors

SIGNER = "golden@example.org"


def main() -> None:
    out = Path(sys.argv[1]).resolve()
    # Without git nothing is said of the code around this script.
    env = {"MDL_AUTHOR_NAME": "golden", "MDL_AUTHOR_EMAIL": SIGNER, "PATH": "/nowhere"}
    mdl = Mdl.init(out / "store", "--bare")
    expected: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder, keys = Path(temporary, "files"), []
        folder.mkdir()
        for version, kind in enumerate(("ed25519", "ecdsa")):
            key = Path(temporary, kind)
            subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", kind, "-f", key], check=True)
            keys.append(f'{SIGNER} namespaces="mdl" {key.with_suffix(".pub").read_text()}')
            weights = np.random.default_rng(version).normal(0, 0.04, (64, 8)).astype(np.float32)
            write_safetensors(folder / "model.safetensors", [Tensor.of("w", weights)])
            said = ["--command", "python train.py", "--dataset", f"wiki=s3://bucket/wiki@sha256:{'ab' * 32}"]
            done = mdl.run("commit", folder, "-m", kind, "--key", key, *said, "--json", env=env).out
            sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}
            expected[json.loads(done)["commit"]] = sums
        mdl.run("tag", "v1", "-m", "released", "--key", Path(temporary, "ed25519"), env=env)
    shutil.rmtree(mdl.index, ignore_errors=True)
    (out / "allowed_signers").write_text("".join(keys))
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
