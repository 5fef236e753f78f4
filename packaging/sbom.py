"""A bill of materials (CycloneDX 1.6, JSON) of the crates that a build of `mdl` links, from Cargo.lock.

    python packaging/sbom.py mdl-cli mdl-python --target x86_64-unknown-linux-gnu > sbom.json

Same input, same bytes: it has no random number, and its time is SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def metadata(target: str) -> dict[str, Any]:
    """What cargo knows of the packages in Cargo.lock for one target."""
    call = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(call, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def linked(data: dict[str, Any], roots: Iterable[str]) -> dict[str, list[str]]:
    """The ids of the roots and of all that they link, each with what it uses itself; not what only builds or tests."""
    names = {package["name"]: package["id"] for package in data["packages"] if package["source"] is None}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    found: dict[str, list[str]] = {}
    todo = [names[root] for root in roots]
    while todo:
        name = todo.pop()
        if name not in found:
            normal = [d["pkg"] for d in nodes[name]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
            found[name] = normal
            todo += normal
    return found


def purl(package: dict[str, Any]) -> str:
    """The package's URL by the purl specification; our own crates are in no registry."""
    kind = "cargo" if package["source"] else "generic"
    return f"pkg:{kind}/{package['name']}@{package['version']}"


def licence(said: str | None) -> list[dict[str, str]]:
    # Crates of long ago write `/` where SPDX has OR.
    return [{"expression": said.replace("/", " OR ")}] if said else []


def checksums() -> dict[tuple[str, str], str]:
    """SHA-256 of each crate of a registry, by name and version, from Cargo.lock."""
    found = {}
    for block in (ROOT / "Cargo.lock").read_text().split("[[package]]")[1:]:
        fields = dict(line.split(" = ", 1) for line in block.splitlines() if " = " in line)
        if "checksum" in fields:
            found[fields["name"].strip('"'), fields["version"].strip('"')] = fields["checksum"].strip('"')
    return found


def component(package: dict[str, Any], sums: dict[tuple[str, str], str]) -> dict[str, Any]:
    about = {"type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"]}
    if sha256 := sums.get((package["name"], package["version"])):
        about["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    if licences := licence(package["license"]):
        about["licenses"] = licences
    return about | {"purl": purl(package)}


def bill(roots: list[str], target: str) -> dict[str, Any]:
    data = metadata(target)
    packages = {package["id"]: package for package in data["packages"]}
    uses = linked(data, roots)
    sums = checksums()
    made = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), timezone.utc)
    version = next(p["version"] for p in packages.values() if p["name"] == roots[0])
    order = sorted(uses, key=lambda one: purl(packages[one]))
    ours = sorted(purl(packages[one]) for one in uses if packages[one]["name"] in roots)
    needs = [{"ref": purl(packages[one]), "dependsOn": sorted({purl(packages[n]) for n in uses[one]})} for one in order]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "bom-ref": "mdl", "name": "mdl", "version": version},
            "properties": [{"name": "rust:target", "value": target}],
        },
        "components": [component(packages[one], sums) for one in order],
        "dependencies": [{"ref": "mdl", "dependsOn": ours}, *needs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("roots", nargs="+", help="crates of this workspace")
    parser.add_argument("--target", required=True, help="the target triple that they are built for")
    args = parser.parse_args()
    json.dump(bill(args.roots, args.target), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
