"""Faults of files, made to order: `file_faults.c`, compiled and spoken to."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).parent / "file_faults.c"

# As in file_faults.c.
WRITE, SYNC, RENAME, UNLINK, CREATE, TRUNCATE, REOPEN, MARK = (1 << bit for bit in range(8))
CHANGES: Final = WRITE | SYNC | RENAME | UNLINK | CREATE | TRUNCATE
HOW: Final = {"kill": 1, "torn": 2, "once": 3, "on": 4, "short": 5}
_COUNT_ONLY: Final = 2**62


def why_not() -> str | None:
    """Say why faults cannot be made here, or None if they can."""
    if not sys.platform.startswith("linux"):
        return "file operations are interposed with LD_PRELOAD and /proc, which only Linux has"
    if compiler() is None:
        return "there is no C compiler to build the fault layer with"
    return None


def compiler() -> str | None:
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name)) is not None), None)


def build(folder: Path) -> Path:
    """Compile the library into a folder."""
    library = folder / "file_faults.so"
    command = [str(compiler()), "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at a file operation below the store's folder.

    how: "kill" before it; "torn": after half of it; "once": it fails; "on": it and all after it fail; "short": half of
    it is written, and all after it fail. at: which, from 1; 0 lets all pass and counts them. kinds: which count.
    """

    how: str
    at: int
    error: int = 0
    kinds: int = CHANGES


class Faults:
    """The library, as this process has it loaded."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.faults_counted.restype = ctypes.c_long
        self._library.faults_acted.restype = ctypes.c_long

    def arm(self, folder: str, fault: Fault, trace: int = -1) -> None:
        how, at = HOW[fault.how], ctypes.c_long(fault.at or _COUNT_ONLY)
        self._library.faults_arm(os.fsencode(folder), how, at, fault.kinds, fault.error, trace)

    def disarm(self) -> None:
        self._library.faults_disarm()

    def mark(self, what: str) -> None:
        self._library.faults_mark(what.encode())

    @property
    def counted(self) -> int:
        return int(self._library.faults_counted())

    @property
    def acted(self) -> int:
        return int(self._library.faults_acted())
