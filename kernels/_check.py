"""Checks of arguments, shared by the kernels' wrappers: cheap to pass, explicit about what was got and is allowed."""

from __future__ import annotations

import math
import operator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
I8 = np.dtype(np.int8)
I64 = np.dtype(np.int64)
U8 = np.dtype(np.uint8)
U16 = np.dtype(np.uint16)
U32 = np.dtype(np.uint32)

_ndarray = np.ndarray
_READY = 0x0101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED


def is_array(value: Any, dtype: np.dtype[Any], ndim: int) -> bool:
    """Whether a value is a C-contiguous, aligned array of that dtype and number of axes."""
    return (
        isinstance(value, _ndarray)
        and (value.dtype is dtype or value.dtype == dtype)
        and value.ndim == ndim
        and value.flags.num & _READY == _READY
    )


def array(value: Any, dtype: np.dtype[Any], ndim: int, name: str) -> int:
    """Refuse what is not a C-contiguous, aligned array of that dtype and number of axes; return its length."""
    if not (  # `is_array`, written out: a search checks some seventy arrays
        isinstance(value, _ndarray)
        and (value.dtype is dtype or value.dtype == dtype)
        and value.ndim == ndim
        and value.flags.num & _READY == _READY
    ):
        _refuse(value, dtype, ndim, name)
    return len(value)


def _refuse(value: Any, dtype: np.dtype[Any], ndim: int, name: str) -> NoReturn:
    wanted = f"a C-contiguous {dtype.name} array with {ndim} {'axis' if ndim == 1 else 'axes'}"
    cast = f"np.ascontiguousarray({name}, dtype=np.{dtype.name})"
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is {type(value).__name__}, allowed is {wanted}: pass {cast}")
    if value.dtype != dtype:
        raise TypeError(f"{name} has dtype {value.dtype}, allowed is {wanted}: pass {cast}")
    if value.ndim != ndim:
        raise ValueError(f"{name} has shape {value.shape}, allowed is {wanted}: reshape it")
    raise ValueError(f"{name} is not contiguous or not aligned in memory, allowed is {wanted}: pass {cast}")


def length(got: int, wanted: int, name: str, like: str) -> None:
    """Refuse a length that differs from that of its companion."""
    if got != wanted:
        raise ValueError(
            f"{name} has length {got}, allowed is {wanted}, the length of {like}: pass arrays that belong together"
        )


def at_least(got: int, wanted: int, name: str) -> None:
    """Refuse an array that is shorter than the rows that it must hold."""
    if got < wanted:
        raise ValueError(f"{name} has length {got}, allowed is at least {wanted}: pass a column that covers every row")


def csr_of(indptr: Any, ids: Any, n: int, name: str) -> int:
    """Check the two arrays of a CSR of uint32 ids that must hold n rows; return how many ids there are."""
    array(indptr, I64, 1, "indptr")
    available = array(ids, U32, 1, name)
    csr(indptr, n, available, name)
    return available


def csr(indptr: NDArray[np.int64], n: int, available: int, name: str) -> None:
    """Refuse row pointers that do not cover n rows or that point beyond the ids (first and last pointer only)."""
    n = max(n, 0)
    if len(indptr) < n + 1:
        raise ValueError(
            f"indptr has length {len(indptr)}, allowed is at least n + 1 = {n + 1}: pass pointers for every row"
        )
    if indptr[0] < 0 or indptr[n] > available:
        raise ValueError(
            f"indptr spans {indptr[0]} to {indptr[n]}, allowed is 0 to {available}, the length of {name}: "
            "pass the ids that the pointers belong to"
        )


def count(value: Any, name: str) -> int:
    """A whole number of at least 0."""
    if type(value) is not int:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{name} is {value!r}, allowed is an integer of at least 0: pass a number")
        try:
            value = operator.index(value)
        except TypeError:
            raise TypeError(
                f"{name} is {value!r} ({type(value).__name__}), allowed is an integer of at least 0: pass an int"
            ) from None
    if value < 0:
        raise ValueError(f"{name} is {value}, allowed is an integer of at least 0: pass 0 for none")
    return int(value)


def number(value: Any, name: str) -> float:
    """A finite number as a float."""
    if type(value) is not float:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise TypeError(f"{name} is {value!r} ({type(value).__name__}), allowed is a finite number: pass a float")
        value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}, allowed is a finite number: pass a float")
    return float(value)


def positive(value: Any, name: str) -> float:
    """A finite number above 0."""
    checked = number(value, name)
    if checked <= 0.0:
        raise ValueError(f"{name} is {checked}, allowed is a finite number above 0: pass a larger one")
    return checked


def not_negative(value: Any, name: str) -> float:
    """A finite number of at least 0."""
    checked = number(value, name)
    if checked < 0.0:
        raise ValueError(f"{name} is {checked}, allowed is a finite number of at least 0: pass a larger one")
    return checked


def fraction(value: Any, name: str) -> float:
    """A number from 0 to 1."""
    checked = number(value, name)
    if not 0.0 <= checked <= 1.0:
        raise ValueError(f"{name} is {checked}, allowed is 0 to 1: pass a share")
    return checked
