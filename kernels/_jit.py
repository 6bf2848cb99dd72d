"""The only place that configures Numba: how every kernel is compiled, typed and cached.

* ``nogil``, no ``parallel``, no thread counts, ``numba.config`` untouched. Division by zero follows IEEE 754.
* ``jit`` keeps strict floating point; ``jit_sum`` may reorder and fuse a pure sum of products, without which it does
  not vectorise. Neither assumes that NaN or infinity are absent, so a check for them is never compiled away.
* A kernel names its signatures and is compiled at its first call. What it reads is typed read-only, and Numba converts
  a writable array to that: one compiled variant serves arrays in memory and memory-mapped ones, in any mixture.
* Compiled code is kept in Numba's cache folder. A folder that is read-only, missing or damaged costs the time to
  compile and nothing else: every entry carries a digest and is verified before it is trusted.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import float32, float64, int8, int32, int64, types, uint8, uint16, uint32, uint64
from numba.core import caching, cgutils, serialize
from numba.extending import intrinsic

__all__ = [
    "compile_all",
    "float32",
    "float64",
    "int8",
    "int32",
    "int64",
    "jit",
    "jit_sum",
    "popcount",
    "prefetch",
    "reads",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "writes",
]

F = TypeVar("F", bound=Callable[..., Any])

_dumps: Any = serialize.dumps

_declared: list[tuple[Any, tuple[Any, ...]]] = []
_compile_lock = threading.Lock()

# How long a fork waits for a kernel that is being compiled: in the child nobody would finish it, or let go of locks.
_FORK_WAIT_S: Final = 10.0
_held_for_fork: list[bool] = []


def reads(dtype: Any, ndim: int = 1) -> Any:
    """The Numba type of a C-contiguous array that a kernel only reads."""
    return types.Array(dtype, ndim, "C", readonly=True)


def writes(dtype: Any, ndim: int = 1) -> Any:
    """The Numba type of a C-contiguous array that a kernel fills."""
    return types.Array(dtype, ndim, "C")


def jit(*signatures: tuple[Any, ...]) -> Callable[[F], F]:
    """Compile a kernel with strict floating point: the same additions in the same order on every machine.

    Args:
        *signatures: tuples of argument types, one per dtype that the kernel serves. None makes a helper, compiled into
            the kernels that call it.
    """
    return _decorator(signatures, fastmath=False)


def jit_sum(*signatures: tuple[Any, ...]) -> Callable[[F], F]:
    """Compile a kernel whose inner loop is a sum of products, which may be reordered and fused to vectorise."""
    return _decorator(signatures, fastmath={"reassoc", "contract"})


_unpack: Any = cgutils.unpack_tuple
_item_pointer: Any = cgutils.get_item_pointer2
_function_named: Any = cgutils.get_or_insert_function


@intrinsic
def _prefetch(_typing: Any, array: Any, row: Any, column: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0])
        shape, strides = (_unpack(builder, part, 2) for part in (data.shape, data.strides))
        item = _item_pointer(context, builder, data.data, shape, strides, "C", arguments[1:])
        address = builder.bitcast(item, ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        # The name without a suffix is brought up to date by every version of LLVM.
        function = _function_named(
            builder.module, ir.FunctionType(ir.VoidType(), [address.type, word, word, word]), "llvm.prefetch"
        )
        builder.call(function, [address, word(0), word(3), word(1)])  # for reading, into all caches, data
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


def _fetch_row(array: Any, row: Any) -> None:
    step = 64 // array.itemsize
    for column in range(0, array.shape[1], step):
        _prefetch(array, row, column)  # type: ignore[call-arg]


def _fetch_nothing(array: Any, row: Any) -> None:
    """Kernels as plain Python know no memory."""


@intrinsic
def _count_bits(_typing: Any, word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


def _bits_of(word: Any) -> Any:
    return _count_bits(word)  # type: ignore[call-arg]


def _plain_bits_of(word: Any) -> Any:
    return int(word).bit_count()


def _helper(compiled: Any, plain: Any) -> Any:
    """What kernels call: one of the two, by whether Numba compiles."""
    return plain if getattr(numba.config, "DISABLE_JIT", False) else numba.njit(nogil=True)(compiled)


#: How many bits of a uint64 are 1.
popcount: Any = _helper(_bits_of, _plain_bits_of)

#: Asks for a row of a C-contiguous table ahead of its use: rows picked here and there come from main memory.
prefetch: Any = _helper(_fetch_row, _fetch_nothing)


def compile_all() -> int:
    """Compile (or load from the cache) every kernel of the modules imported so far; return how many there are."""
    for dispatcher, signatures in _declared:
        _compile(dispatcher, signatures)
    return len(_declared)


def _decorator(signatures: tuple[tuple[Any, ...], ...], *, fastmath: bool | set[str]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        dispatcher: Any = numba.njit(nogil=True, fastmath=fastmath, error_model="numpy")(function)
        if not signatures or not hasattr(dispatcher, "disable_compile"):  # NUMBA_DISABLE_JIT leaves plain Python
            return dispatcher  # type: ignore[no-any-return]
        # No locator, no home folder, a path that is not a folder: whatever is wrong, the kernel works without a cache.
        with contextlib.suppress(Exception):
            dispatcher._cache = _SafeCache(function)

        def at_first_call(*_args: Any) -> Any:
            _compile(dispatcher, signatures)
            return dispatcher  # Numba calls what this returns with the same arguments

        dispatcher._compile_for_args = at_first_call
        _declared.append((dispatcher, signatures))
        return dispatcher  # type: ignore[no-any-return]

    return decorate


def _compile(dispatcher: Any, signatures: tuple[tuple[Any, ...], ...]) -> None:
    with _compile_lock:
        if not dispatcher._can_compile:
            return
        for signature in signatures:
            dispatcher.compile(signature)
        dispatcher.disable_compile()  # from here on Numba converts arguments instead of compiling for their types


def _before_fork() -> None:
    _held_for_fork.append(_compile_lock.acquire(timeout=_FORK_WAIT_S))


def _after_fork() -> None:
    if _held_for_fork.pop():
        _compile_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


@functools.cache
def _sources_digest() -> bytes:
    """Digest of every kernel's source: a helper is compiled into kernels of other files, which then must be rebuilt."""
    digest = hashlib.sha256(numba.__version__.encode())
    sources = sorted(Path(__file__).parent.glob("*.py"))
    if not sources:
        raise FileNotFoundError("the kernels' sources are not files: no key to cache their code under")
    for path in sources:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.digest()


class _VerifiedFiles:
    """One file per compiled signature: a digest, then the pickled (sources, key, code) that it covers.

    Numba's own index and data files are trusted as they are: a truncated one raises at the call, and a flipped bit in
    machine code would be executed. Here anything that does not verify is absent, and is written anew.
    """

    def __init__(self, folder: str, stem: str, sources: bytes) -> None:
        self._folder = Path(folder)
        self._stem = stem
        self._sources = sources

    def _path(self, key: object) -> Path:
        return self._folder / f"{self._stem}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.jiyi.nbc"

    def load(self, key: object) -> Any:
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        digest, payload = content[:32], content[32:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        sources, stored_key, code = pickle.loads(payload)
        return code if sources == self._sources and stored_key == key else None

    def save(self, key: object, code: object) -> None:
        payload: bytes = _dumps((self._sources, key, code))
        path = self._path(key)
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}")
        try:
            partial.write_bytes(hashlib.sha256(payload).digest() + payload)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def flush(self) -> None:
        for path in self._folder.glob(f"{self._stem}.*.jiyi.nbc"):
            path.unlink(missing_ok=True)


class _SafeCache(caching.FunctionCache):
    """Numba's function cache, except that no error of it ever reaches a caller."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stem = self._impl.filename_base
        if getattr(numba.config, "BOUNDSCHECK", None):  # another code, which must not be taken for this one or that
            stem += "-checked"
        files: Any = _VerifiedFiles(self._cache_path, stem, _sources_digest())
        self._cache_file = files

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(Exception):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
