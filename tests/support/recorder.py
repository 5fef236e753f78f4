"""A file whose writes and flushes are logged in order: a FUSE file system of one file (IMAGE, AT, LOG).

With a loop device on it, it is a disk with a write cache: every write that the kernel sends it, and every flush between
them, is a record of the log. It speaks the kernel's protocol itself (linux/fuse.h, 7.31), so that it needs no library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from pathlib import Path

RECORD = struct.Struct("<cQI")
"""What it is (WRITE or FLUSH), where in the file, how many bytes follow."""
WRITE, FLUSH = b"w", b"f"

_IN, _OUT = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
_ATTR = struct.Struct("<QII QQQ QQQ III IIIII II")
_INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
_IO = struct.Struct("<QQII")
_GETATTR, _OPEN, _READ, _WRITE, _STATFS, _RELEASE, _FSYNC, _FLUSH, _INIT = 3, 14, 15, 16, 17, 18, 20, 25, 26
_SILENT = {2, 36, 42}
"""FORGET, INTERRUPT and BATCH_FORGET have no answer."""
_LARGEST = 1 << 20
_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
_DIRECT_IO = 1
"""Of an open file: no page cache, so that what arrives here is what the disk was given, when it was given it."""


class Recorder:
    """Answers the kernel, one request at a time."""

    def __init__(self, image: Path, log: Path) -> None:
        self.bytes = bytearray(image.read_bytes())
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def record(self, kind: bytes, offset: int = 0, data: bytes | memoryview = b"") -> None:
        """Logs before the answer is sent, so that the log has everything that was acknowledged."""
        os.write(self.log, RECORD.pack(kind, offset, len(data)) + data)

    def answer(self, opcode: int, body: memoryview) -> bytes | int:
        """What to send back, or a negative error number."""
        if opcode == _INIT:
            ours = _BIG_WRITES | _MAX_PAGES
            return _INIT_OUT.pack(7, 31, _LARGEST, ours, 16, 12, _LARGEST, 1, _LARGEST // 4096, 0, 0)
        if opcode == _GETATTR:
            size = len(self.bytes)
            return _ATTR.pack(60, 0, 0, 1, size, size // 512, *[0] * 6, stat.S_IFREG | 0o600, 1, 0, 0, 0, 4096, 0)
        if opcode == _OPEN:
            return struct.pack("<QII", 1, _DIRECT_IO, 0)
        if opcode == _READ:
            _, offset, size, _ = _IO.unpack_from(body)
            return bytes(self.bytes[offset : offset + size])
        if opcode == _WRITE:
            _, offset, size, _ = _IO.unpack_from(body)
            data = body[40 : 40 + size]
            if offset + size > len(self.bytes):
                return -errno.ENOSPC
            self.bytes[offset : offset + size] = data
            self.record(WRITE, offset, data)
            return struct.pack("<II", size, 0)
        if opcode == _FSYNC:
            self.record(FLUSH)
            return b""
        if opcode in (_RELEASE, _FLUSH):
            return b""
        if opcode == _STATFS:
            return bytes(80)
        return -errno.ENOSYS

    def serve(self, device: int) -> None:
        """Until the file system is unmounted."""
        buffer = bytearray(_LARGEST + 4096)
        view = memoryview(buffer)
        while True:
            try:
                length = os.readv(device, [buffer])
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                raise
            _, opcode, unique, *_ = _IN.unpack_from(buffer)
            if opcode in _SILENT:
                continue
            back = self.answer(opcode, view[_IN.size : length])
            failed, data = (back, b"") if isinstance(back, int) else (0, back)
            try:
                os.write(device, _OUT.pack(_OUT.size + len(data), failed, unique) + data)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise


def mount(at: Path) -> int:
    """The connection to the kernel of a file system that is one file."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode={stat.S_IFREG:o},user_id=0,group_id=0"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"recorder", bytes(at), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "a FUSE file cannot be mounted here")
    return device


def main(image: str, at: str, log: str) -> None:
    recorder = Recorder(Path(image), Path(log))
    device = mount(Path(at))
    print("mounted", flush=True)
    recorder.serve(device)


if __name__ == "__main__":
    main(*sys.argv[1:])
