"""Local S3 servers, each with an empty bucket: moto, and SeaweedFS where it is installed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from .ports import free_ports

NAME = "mdl"
START_SECONDS = 90
"""SeaweedFS elects a master and grows volumes first."""


@dataclass(frozen=True)
class Bucket:
    """An empty bucket: its URL, and what the environment must say to reach it."""

    url: str
    environment: dict[str, str]


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[Bucket]:
    """moto's server; everything is gone with it."""
    (port,) = free_ports(1)
    tests = Path(__file__).resolve().parent.parent
    argv = [sys.executable, "-m", "support.moto_alone", str(port)]
    with running(argv, folder / "moto.log", {"PYTHONPATH": str(tests)}):
        yield create(port)


def weed() -> Path | None:
    """SeaweedFS' program beside this Python, if it is installed."""
    path = Path(sys.executable).parent / "weed"
    return path if path.is_file() else None


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[Bucket]:
    """SeaweedFS with its data in a folder."""
    s3, master, volume, filer = free_ports(4)
    data = folder / "weed"
    data.mkdir()
    argv = [str(weed()), "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.port={s3}"]
    argv += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"]
    with running(argv, folder / "weed.log", {}):
        yield create(s3)


@contextlib.contextmanager
def running(argv: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("ab") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, env=os.environ | environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def create(port: int) -> Bucket:
    """Makes the bucket as soon as the server lets it."""
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "testtest",
        "AWS_REGION": "us-east-1",
    }
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
        config=Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=20),
    )
    retry(lambda: client.create_bucket(Bucket=NAME))
    retry(lambda: client.put_object(Bucket=NAME, Key="ready", Body=b"yes"))
    return Bucket(f"s3://{NAME}/tests", environment)


def retry(request: Callable[[], object]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            request()
            return
        except (BotoCoreError, ClientError) as error:
            if time.monotonic() > deadline:
                raise TimeoutError("the S3 server does not start") from error
            time.sleep(0.5)
