"""The build backend of the wheel (PEP 517): maturin's, with the command `mdl` beside the extension module.

maturin builds one crate. The program is another: it is built here, with the same profile, and put where maturin takes
a wheel's scripts from. `MDL_WHEEL_COMMAND` names a program that is built already.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import maturin

ROOT = Path(__file__).resolve().parents[1]
# `data` of [tool.maturin]; pip puts what is in `scripts` beside `python`.
DATA = ROOT / "target/wheel-data"
Settings = Mapping[str, Any] | None


def cargo_arguments(settings: Settings) -> list[str]:
    """Those of maturin's arguments that say what is built, for cargo; without any, a release build as maturin's."""
    said = maturin.get_maturin_pep517_args(settings)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--profile", default="release")
    parser.add_argument("--target")
    known, _ = parser.parse_known_args(said)
    return ["--profile", known.profile, *(["--target", known.target] if known.target else [])]


def built_command(settings: Settings) -> Path:
    """The program that `cargo build` makes, or has made."""
    call = ["cargo", "build", "--locked", "--bin", "mdl", "--message-format", "json-render-diagnostics"]
    call += cargo_arguments(settings)
    print(f"Running `{shlex.join(call)}`", flush=True)
    messages = subprocess.run(call, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.splitlines()
    made = [message.get("executable") for message in map(json.loads, messages)]
    return Path(next(path for path in reversed(made) if path))


def clear_command() -> None:
    """Leaves the directory there, without the program: maturin wants it also where it holds nothing."""
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)


def place_command(command: Path) -> None:
    """Puts the program where maturin finds it, as a link where the file system has them: it is large."""
    clear_command()
    placed = DATA / "scripts" / "mdl"
    placed.parent.mkdir()
    try:
        os.link(command, placed)
    except OSError:
        shutil.copy2(command, placed)


def _with_command(settings: Settings) -> None:
    given = os.environ.get("MDL_WHEEL_COMMAND")
    place_command(Path(given) if given else built_command(settings))


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    _with_command(config_settings)
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    _with_command(config_settings)
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    DATA.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_editable
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    DATA.mkdir(parents=True, exist_ok=True)
    return maturin.build_sdist(sdist_directory, config_settings)
