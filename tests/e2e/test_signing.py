"""Signatures from the command line: ssh-keygen takes what mdl signs, mdl what ssh-keygen signs; what each is worth."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli import CORRUPT, OK, ROOT, USER, Mdl
from support.disks import cannot

UNKNOWN, EXPIRED, REVOKED, UNSUPPORTED = 10, 11, 12, 13
ADA = "ada@example.com"
READER = ROOT / "tests" / "reader" / "read_repo.py"


@pytest.fixture(scope="module", autouse=True)
def openssh() -> None:
    if shutil.which("ssh-keygen") is None:
        cannot("ssh-keygen is missing (openssh-client): signatures are not compared with OpenSSH's")


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", path], check=True)
    return path


def public(key: Path) -> str:
    return key.with_name(key.name + ".pub").read_text().strip()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return keygen(tmp_path / "key")


@pytest.fixture
def allowed(tmp_path: Path, key: Path) -> Path:
    path = tmp_path / "allowed_signers"
    path.write_text(f"{ADA} {public(key)}\n")
    return path


@pytest.fixture
def signed(mdl: Mdl, source: Path, key: Path, allowed: Path) -> Mdl:
    (source / "a.txt").write_text("one")
    mdl.run("config", "user.signingkey", key)
    mdl.run("config", "gpg.ssh.allowedSignersFile", allowed)
    mdl.commit(source, "one", "--sign")
    return mdl


def openssh_verifies(proof: Path, allowed: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    argv = ["ssh-keygen", "-Y", "verify", "-f", allowed, "-I", ADA, "-n", "mdl", "-s", proof / "payload.sig", *options]
    with (proof / "payload").open() as payload:
        return subprocess.run(argv, stdin=payload, capture_output=True, text=True, check=False)


def test_ssh_keygen_accepts_what_is_signed(signed: Mdl, source: Path, allowed: Path, tmp_path: Path) -> None:
    signed.run("tag", "v1", "-m", "first", "--sign")
    for verb, rev, proof in [("verify-commit", "main", tmp_path / "commit"), ("verify-tag", "v1", tmp_path / "tag")]:
        signed.run(verb, rev, "--export", proof).names("Good signature", ADA)
        done = openssh_verifies(proof, allowed)
        assert done.returncode == 0, done.stderr
        (proof / "payload").write_bytes((proof / "payload").read_bytes()[:-1] + b"x")
        assert openssh_verifies(proof, allowed).returncode != 0
    # The reader from the specification reads signed versions and tags as any other.
    subprocess.run([sys.executable, READER, signed.store, "v1", tmp_path / "out"], check=True)
    assert (tmp_path / "out" / "a.txt").read_text() == "one"


def test_what_ssh_keygen_signs_is_accepted(mdl: Mdl, source: Path, allowed: Path, tmp_path: Path) -> None:
    """A key with a passphrase is left to ssh-keygen, which asks for it; so is a key of another kind."""
    locked = keygen(tmp_path / "locked", passphrase="open sesame")
    ask = tmp_path / "ask"
    ask.write_text("#!/bin/sh\necho open sesame\n")
    ask.chmod(0o755)
    (source / "a.txt").write_text("one")
    env = {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0", "SSH_AUTH_SOCK": ""}
    mdl.run("commit", source, "-m", "one", "--key", locked, env=env)
    ecdsa = keygen(tmp_path / "ecdsa", "ecdsa")
    mdl.run("commit", source, "-m", "two", "--allow-empty", "--key", ecdsa)
    allowed.write_text(f"{ADA} {public(locked)}\n{ADA} {public(ecdsa)}\n")
    for rev in ("main", "main~1"):
        mdl.run("verify-commit", rev, "--allowed-signers", allowed).names("Good signature")


def test_each_status_is_told_apart_by_word_and_exit_code(signed: Mdl, allowed: Path, key: Path, tmp_path: Path) -> None:
    line = public(key)
    other = public(keygen(tmp_path / "other"))
    revoked = tmp_path / "revoked"
    revoked.write_text(f"# lost on the train\n{line}\n")
    proof = tmp_path / "proof"
    signed.run("verify-commit", "--export", proof)
    cases = [
        (f"{ADA} {line}", [], OK, "Good signature"),
        (f"{ADA} {other}", [], UNKNOWN, "unknown ED25519 key"),
        (f'{ADA} namespaces="git" {line}', [], UNKNOWN, "is not for"),
        (f'{ADA} valid-before="20200101" {line}', [], EXPIRED, "expired on 2020-01-01"),
        (f'{ADA} valid-after="99900101Z" {line}', [], EXPIRED, "counts only from 9990-01-01"),
        (f"{ADA} {line}", ["--revoked", revoked], REVOKED, "REVOKED"),
    ]
    for text, options, code, said in cases:
        allowed.write_text(text + "\n")
        signed.run("verify-commit", "main", *options, code=code).names(said)
        found = signed.json("verify-commit", "main", *options, code=code)
        assert found["good"] == (code == OK)
        # OpenSSH's verdict is the same.
        theirs = openssh_verifies(proof, allowed, *(["-r", revoked] if options else []))
        assert (theirs.returncode == 0) == (code == OK), (text, theirs.stderr)
    signed.run("verify-commit", "--allowed-signers", os.devnull, code=UNKNOWN).names("no allowed signer has it")
    signed.run("config", "--unset", "gpg.ssh.allowedSignersFile")
    signed.run("verify-commit", code=UNKNOWN).names("gpg.ssh.allowedSignersFile")


def test_unsigned_versions_and_lists_that_make_no_sense(signed: Mdl, source: Path, allowed: Path, key: Path) -> None:
    (source / "a.txt").write_text("two")
    signed.commit(source, "two")
    signed.run("verify-commit", code=USER).names("No signature")
    log = signed.run("log", "--show-signature").out
    assert log.count("Good signature") == 1
    assert log.count("No signature") == 1
    assert [e["signature"]["status"] for e in signed.json("log", "--show-signature")] == ["unsigned", "good"]
    allowed.write_text(f"{ADA} cert-authority {public(key)}\n")
    signed.run("verify-commit", "main~1", code=USER).complains("line 1", "cert-authority", "not supported")
    krl = allowed.with_name("krl")
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", krl, key.with_name("key.pub")], check=True)
    allowed.write_text(f"{ADA} {public(key)}\n")
    signed.run("verify-commit", "main~1", "--revoked", krl, code=USER).complains("KRL", "one a line")


def test_settings_sign_everything_and_a_missing_key_stores_nothing(signed: Mdl, source: Path, tmp_path: Path) -> None:
    signed.run("config", "commit.gpgsign", "true")
    signed.run("config", "tag.gpgSign", "true")
    (source / "a.txt").write_text("two")
    assert signed.json("commit", source, "-m", "two")["signed"] is True
    assert signed.json("tag", "v1", "-m", "a tag")["signed"] is True
    assert signed.json("commit", source, "-m", "three", "--allow-empty", "--no-sign")["signed"] is False
    signed.run("config", "user.signingKey", tmp_path / "gone")
    before = signed.packed()
    (source / "a.txt").write_text("three")
    signed.run("commit", source, "-m", "four", code=6).complains("gone")
    assert signed.packed() == before
    signed.run("config", "gpg.format", "openpgp", code=2).complains("ssh")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[dict[str, str]]:
    if shutil.which("ssh-agent") is None:
        cannot("ssh-agent is missing (openssh-client)")
    socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL) as process:
        while not socket.exists():
            assert process.poll() is None
        yield {"SSH_AUTH_SOCK": str(socket)}
        process.terminate()


def test_an_agent_signs(signed: Mdl, source: Path, key: Path, agent: dict[str, str]) -> None:
    lines = key.with_name("key.pub")
    moved = key.rename(key.with_name("elsewhere"))
    (source / "a.txt").write_text("two")
    signed.run("commit", source, "-m", "two", "--key", lines, env=agent, code=USER).complains("does not have the key")
    none = {"SSH_AUTH_SOCK": ""}
    signed.run("commit", source, "-m", "two", "--key", lines, env=none, code=USER).complains("no ssh-agent")
    subprocess.run(["ssh-add", "-q", moved], env=os.environ | agent, check=True)
    signed.run("commit", source, "-m", "two", "--key", lines, env=agent)
    signed.run("verify-commit").names("Good signature")
    literal = "key::" + " ".join(lines.read_text().split()[:2])
    signed.run("commit", source, "-m", "three", "--allow-empty", "--key", literal, env=agent)
    signed.run("verify-commit").names("Good signature")


def test_an_agent_that_answers_nonsense_is_an_error(signed: Mdl, source: Path, key: Path, tmp_path: Path) -> None:
    import socket
    import threading

    path = tmp_path / "nonsense"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def answer() -> None:
            client, _ = server.accept()
            client.recv(100)
            client.sendall(b"\0\0\0\x09\x0c\xff\xff\xff\xff\xff\xff\xff\xff")
            client.close()

        thread = threading.Thread(target=answer)
        thread.start()
        env = {"SSH_AUTH_SOCK": str(path)}
        pub = key.with_name("key.pub")
        key.unlink()
        signed.run("commit", source, "-m", "x", "--key", pub, env=env, code=6).complains("makes no sense")
        thread.join()


def test_a_changed_byte_anywhere_below_a_signature_is_found(signed: Mdl, source: Path) -> None:
    (source / "a.txt").write_text("two")
    signed.commit(source, "two", "--sign")
    signed.run("verify-commit", "--deep").names("2 versions", "every byte is what the id says")
    assert signed.json("verify-commit", "--deep")["closure"]["problems"] == []
    for pack in sorted((signed.store / "packs").iterdir()):
        whole = pack.read_bytes()
        for at in range(8, len(whole), max(1, len(whole) // 12)):
            pack.chmod(0o644)
            pack.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            shutil.rmtree(signed.index, ignore_errors=True)
            found = signed.run("verify-commit", "--deep", code=(CORRUPT, 3))
            assert "panicked" not in found.err
        pack.write_bytes(whole)
    signed.run("verify-commit", "--deep")
