"""A server over a shared bucket: hostile requests, foreign objects, and unbounded numbers of refs."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import boto3
import numpy as np
import pytest
from support import buckets, faults, raw, scale
from support.buckets import Bucket
from support.fuzz import MARKS, Fuzz, Grounds
from support.opened import Opened, tracer
from support.server import Server
from support.tensors import Tensor, safetensors_bytes

REQUESTS = scale.rounds(1000, 5000, "MDL_FUZZ_REQUESTS") // 10
SEED = os.environ.get("MDL_FUZZ_SEED", "1")
REPO = "/api/v1/repos/ada/gpt"
HUGE = 64 << 20
"""Bytes of an object where a ref is expected."""
KEY = re.compile(r"(ready|tests/?|tests/(ada|bob|\.mdl-serve)(/[^\0-\x1f\\]*)?)?")
"""What a server asks a bucket for: names below a repository, marks of its own, and prefixes that are listed."""

_reason = faults.why_not()
if _reason:
    warnings.warn(f"the fuzzing over a bucket is SKIPPED: {_reason}", stacklevel=1)
pytestmark = pytest.mark.skipif(_reason is not None, reason=f"strace: {_reason}")


def client(bucket: Bucket) -> Any:
    env = bucket.environment
    keys = {"aws_access_key_id": env["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": env["AWS_SECRET_ACCESS_KEY"]}
    return boto3.client("s3", endpoint_url=env["AWS_ENDPOINT_URL"], region_name=env["AWS_REGION"], **keys)


def fill(grounds: Grounds, server: Server) -> None:
    """The repositories, made through the server: they lie in the bucket."""
    for name, mark in MARKS.items():
        token = {} if name.startswith("ada") else {"Authorization": grounds.callers["foreign"]}
        made = server.send("POST", "/api/v1/repos", {"name": name, "anonymous_read": name == "ada/open"}, **token)
        assert made.status == 201, made.body
        for step in (1, 2):
            weights = safetensors_bytes([Tensor.of(f"{mark}.weight", np.full(8, step, np.float32))], {})
            form = raw.form({"message": f"{mark} {step}"}, {"model.safetensors": weights, "README.md": mark.encode()})
            kind = {"Content-Type": raw.FORM, **token}
            made = server.ask("POST", f"/api/v1/repos/{name}/commits", form, kind)
            assert made.status == 201, made.body
        log = server.get(f"/api/v1/repos/{name}/log", **token).json()
        grounds.ids[name] = [commit["commit"] for commit in log["commits"]]


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with buckets.moto(tmp_path) as bucket:
        yield bucket


@pytest.fixture
def fuzz(tmp_path: Path, bucket: Bucket) -> Iterator[Fuzz]:
    grounds, log = Grounds(tmp_path), tmp_path / "opened.log"
    options = (
        "--storage",
        bucket.url,
        "--memory",
        "64MiB",
        "--cache",
        "64MiB",
        "--max-upload",
        "16MiB",
        "--token-failures",
        "0",
    )
    with Server(grounds.root, options, bucket.environment, token=grounds.admin, under=tracer(log)) as server:
        fill(grounds, server)
        grounds.sign_in(server)
        opened = Opened(log, [grounds.root], Path.cwd())
        opened.learn()
        yield Fuzz(grounds, server, opened, SEED)
        assert server.get("/ada/gpt").status == 200, "it does not answer any more"
    assert server.log is not None
    assert "panicked" not in server.log.read_text()


def test_hostile_requests_name_no_object_of_others(fuzz: Fuzz, tmp_path: Path) -> None:
    fuzz.run(REQUESTS)
    fuzz.look()
    print(f"seed {SEED}: {dict(sorted(fuzz.statuses.items()))}, {fuzz.peak}")
    assert not fuzz.findings, f"MDL_FUZZ_SEED={SEED}:\n" + "\n".join(dict.fromkeys(fuzz.findings))
    asked = re.findall(r'"[A-Z]+ /mdl/?([^? "]*)(?:\?([^ "]*))? HTTP', (tmp_path / "moto.log").read_text())
    assert len(asked) > REQUESTS // 10
    for key, query in asked:
        prefixes = re.findall(r"(?:^|&)(?:prefix|start-after)=([^&]*)", query)
        for name in (key, *prefixes):
            plain = unquote(name)
            assert KEY.fullmatch(plain), plain
            assert ".." not in plain.split("/"), plain


def test_foreign_objects_in_a_bucket_are_no_refs_and_refs_are_bounded(fuzz: Fuzz, bucket: Bucket) -> None:
    server, s3 = fuzz.server, client(bucket)
    before = server.get(f"{REPO}/refs").json()
    refs = ("heads/a..b", "heads/x.lock", "heads/\u00e9/", "heads/", "x", "tags/-x")
    for key in (*(f"refs/{name}" for name in refs), "packs/junk", "packs/junk.pack", "logs/x", "HEAD/x", "locks/x"):
        s3.put_object(Bucket=buckets.NAME, Key=f"tests/ada/gpt/{key}", Body=b"junk\n")
    for key in ("tests/junk", "tests/ada/junk", "tests/ada//x", "tests//x/y", "tests/ada/.x/HEAD"):
        s3.put_object(Bucket=buckets.NAME, Key=key, Body=b"junk\n")
    assert server.get(f"{REPO}/refs").json() == before
    paths = (f"{REPO}/log?all=true", f"{REPO}/sync/refs", "/api/models/ada/gpt/refs", "/ada/gpt", "/api/v1/repos", "/")
    for path in paths:
        answer = server.get(path)
        assert answer.status == 200, f"{path}: {answer.body[:300]!r}"
    fuzz.look()
    used = fuzz.peak["memory"]
    s3.put_object(Bucket=buckets.NAME, Key="tests/ada/gpt/refs/heads/huge", Body=bytes(HUGE))
    for path in (*paths, f"{REPO}/commits/huge", f"{REPO}/log?rev=huge", f"{REPO}/commits/huge@%7B0%7D"):
        server.get(path)
    s3.delete_object(Bucket=buckets.NAME, Key="tests/ada/gpt/refs/heads/huge")
    fuzz.look()
    assert fuzz.peak["memory"] < used + HUGE, f"{(fuzz.peak['memory'] - used) >> 20} MiB for a ref"
    for path in paths:
        assert server.get(path).status == 200, path
