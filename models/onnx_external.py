"""Where an ONNX file says that its weights are: none of it may lie outside the model's folder.

A tensor of an ONNX file can name another file and a place in it. That name is data of whoever made the model: followed
as it stands, `../../home/ana/.ssh/id_rsa` or a link would be read into the graph, and what ONNX Runtime makes of it
has changed with its versions. So the file is read here first, as far as it has to be: the protocol buffer's messages
that can hold tensors, and no weights.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final

from jiyi.models.files import ModelFilesError

__all__ = ["check_external_data"]

_ADVICE: Final = "weights must lie in the model's own folder; do not use this model if it came from a stranger"
_DAMAGED: Final = "fetch or build the model again"

_MODEL, _GRAPH, _TRAINING, _FUNCTION, _NODE, _ATTRIBUTE, _SPARSE, _TENSOR, _ENTRY = range(9)

# By message: the fields that hold messages in which tensors can be (onnx.proto3; the numbers never change).
_INSIDE: Final[Mapping[int, Mapping[int, int]]] = {
    _MODEL: {7: _GRAPH, 20: _TRAINING, 25: _FUNCTION},
    _TRAINING: {1: _GRAPH, 2: _GRAPH},
    _FUNCTION: {7: _NODE, 11: _ATTRIBUTE},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
    _TENSOR: {13: _ENTRY},
}
_LOCATION: Final = b"location"


def check_external_data(path: Path) -> None:
    """Make sure that every file that an ONNX model takes weights from is a plain file of the model's folder.

    A model without such files costs one look through its bytes (10 ms for 100 MB).

    Raises:
        ModelFilesError: the model cannot be read, is no protocol buffer, or names a file that is absolute, lies outside
            the folder (by `..` or a link), is missing, or is none.
    """
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise ModelFilesError(path, "is empty", _DAMAGED)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if content.find(_LOCATION) < 0:  # the key under which the name stands
                    return
                named = set(_locations(content))
    except _BrokenError:
        raise ModelFilesError(
            path, "is not an ONNX model: its messages do not end where they should", _DAMAGED
        ) from None
    except (OSError, ValueError) as error:
        raise ModelFilesError(path, f"cannot be read ({error})", _DAMAGED) from error
    for name in sorted(named):
        _check(path, name)


def _check(model: Path, name: bytes) -> None:
    shown = name[:200].decode("utf-8", "replace")[:80]
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelFilesError(model, f"takes weights from {shown!r}, which is no file's name", _ADVICE) from None
    forms = (PurePosixPath(text), PureWindowsPath(text))
    if not text or "\0" in text or any(form.is_absolute() or form.drive or form.root for form in forms):
        raise ModelFilesError(model, f"takes weights from {shown!r}, which is no file of its folder", _ADVICE)
    if any(".." in form.parts for form in forms):
        raise ModelFilesError(model, f"takes weights from {shown!r}, which leaves its folder", _ADVICE)
    try:
        folder = model.parent.resolve()
        found = (folder / text).resolve()
        inside, plain = found.is_relative_to(folder), found.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, a name that is too long
        reason = f"takes weights from {shown!r}, which cannot be found ({type(error).__name__})"
        raise ModelFilesError(model, reason, _ADVICE) from None
    if not inside:
        raise ModelFilesError(model, f"takes weights from {shown!r}, a link that leaves its folder", _ADVICE)
    if not plain:
        raise ModelFilesError(model, f"takes weights from {shown!r}, which is not there or is no plain file", _ADVICE)


def _locations(content: mmap.mmap) -> Iterator[bytes]:
    """Yield the name of every file that a tensor of a ModelProto says its data is in, used or not."""
    waiting = [(_MODEL, 0, len(content))]
    while waiting:
        kind, start, end = waiting.pop()
        if kind == _ENTRY:
            entry = {number: content[s:e] for number, s, e in _fields(content, start, end)}
            if entry.get(1) == _LOCATION:
                yield entry.get(2, b"")
            continue
        inside = _INSIDE[kind]
        waiting.extend((inside[n], s, e) for n, s, e in _fields(content, start, end) if n in inside)


def _fields(content: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of every length-delimited field of a message."""
    while at < end:
        key, at = _varint(content, at, end)
        sort = key & 7
        if sort == 2:
            length, at = _varint(content, at, end)
            if length > end - at:
                raise _BrokenError
            yield key >> 3, at, at + length
            at += length
        elif sort == 0:
            _, at = _varint(content, at, end)
        elif sort in (1, 5):
            at += 8 if sort == 1 else 4
            if at > end:
                raise _BrokenError
        else:  # groups, which no ONNX file has
            raise _BrokenError


def _varint(content: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise _BrokenError


class _BrokenError(Exception):
    """A message does not end where it should."""
