"""What is on the disk when the power fails: a record of every file operation, played again up to one of them.

What was flushed is there. Of what was not, any part may be: writes in any order and cut anywhere, and as many of the
last creations, renames and removals as the file system's journal had got to.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.crash.faults import CREATE, MARK, RENAME, SYNC, TRUNCATE, UNLINK, WRITE

_HEAD: Final = struct.Struct("<IIIIqq")


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of the record."""

    kind: int
    path: str
    other: str
    offset: int
    size: int
    data: bytes


def read_trace(path: Path) -> Iterator[Operation]:
    """Yield the operations of a record, oldest first."""
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            kind, path_len, other_len, _, offset, size = _HEAD.unpack(head)
            name, other = file.read(path_len).decode(), file.read(other_len).decode()
            yield Operation(kind, name, other, offset, size, file.read(size) if kind == WRITE else b"")


@dataclass(slots=True)
class _File:
    flushed: bytearray = field(default_factory=bytearray)
    waiting: list[Operation] = field(default_factory=list)


_FOLDER: Final = None
_Names = dict[str, _File | None]


def left_by_power_loss(operations: list[Operation], rng: random.Random, keep: float) -> dict[str, bytes | None]:
    """Return what is on the disk after operations, by path: contents, or None for a folder.

    Args:
        operations: all that were done.
        rng: chooses what else has reached the disk.
        keep: how likely a write that was not flushed has, from 0 to 1; of the journal the same share.
    """
    now: _Names = {}
    flushed: _Names = {}
    journal: list[Operation] = []
    made: dict[int, _File | None] = {}  # by operation: what it gave a name to
    for operation in operations:
        path = operation.path
        if operation.kind in (CREATE, RENAME, UNLINK):
            if operation.kind == CREATE and operation.other != "/":
                here = now.get(path)
                made[id(operation)] = here if isinstance(here, _File) else _File()
                if isinstance(here, _File):  # it was there, and is emptied
                    here.waiting.append(Operation(TRUNCATE, path, "", 0, 0, b""))
            _rename(now, operation, made)
            journal.append(operation)
        elif operation.kind in (WRITE, TRUNCATE):
            file = now.get(path)
            if isinstance(file, _File):
                file.waiting.append(operation)
        elif operation.kind == SYNC:
            file = now.get(path)
            if isinstance(file, _File):
                for waiting in file.waiting:
                    _write(file.flushed, waiting)
                file.waiting.clear()
            else:  # a folder: the names in it, and with them what the journal had before
                last = max((i for i, other in enumerate(journal) if path in _folders(other)), default=-1)
                for other in journal[: last + 1]:
                    _rename(flushed, other, made)
                del journal[: last + 1]
    for operation in journal[: round(len(journal) * keep * rng.random() * 2) if keep else 0]:
        _rename(flushed, operation, made)
    contents: dict[str, bytes | None] = {}
    for path, file in flushed.items():
        if file is None:
            contents[path] = None
        elif not path.endswith("-shm"):
            content = bytearray(file.flushed)
            for waiting in file.waiting:
                if rng.random() < keep:
                    _write(content, waiting, rng.random() if rng.random() < 0.2 else 1.0)
            contents[path] = bytes(content)
    return contents


def _folders(operation: Operation) -> set[str]:
    return {str(Path(path).parent) for path in (operation.path, operation.other) if path not in ("", "/")}


def _rename(names: _Names, operation: Operation, made: dict[int, _File | None]) -> None:
    path = operation.path
    if operation.kind == CREATE:
        names[path] = made.get(id(operation))
    elif operation.kind == UNLINK:
        names.pop(path, None)
    elif path in names:
        moved = [name for name in names if name == path or name.startswith(f"{path}/")]
        for name in moved:
            names[operation.other + name[len(path) :]] = names.pop(name)


def _write(content: bytearray, operation: Operation, share: float = 1.0) -> None:
    if operation.kind == TRUNCATE:
        if operation.size < len(content):
            del content[operation.size :]
        else:
            content.extend(bytes(operation.size - len(content)))
        return
    data = operation.data[: int(len(operation.data) * share)]
    if len(content) < operation.offset:
        content.extend(bytes(operation.offset - len(content)))
    content[operation.offset : operation.offset + len(data)] = data


def lay_out(contents: dict[str, bytes | None], recorded_at: Path, folder: Path) -> None:
    """Write what was left on the disk below one folder into another."""
    for path in sorted(contents):
        relative = Path(path).relative_to(recorded_at)
        target, content = folder / relative, contents[path]
        if not target.parent.is_dir():
            continue  # its folder's name has not reached the disk
        if content is None:
            target.mkdir(exist_ok=True)
        else:
            target.write_bytes(content)


def marks(operations: list[Operation]) -> list[str]:
    """Return what the child said of its calls, in order."""
    return [operation.path for operation in operations if operation.kind == MARK]
