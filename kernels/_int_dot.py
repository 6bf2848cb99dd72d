"""The dot product of int8 codes with int16 values as whole numbers, sixteen products an instruction.

Numba turns the plain loop into one with half the width; written as vectors, LLVM finds the multiply-and-add of pairs
that processors have (pmaddwd, smlal).
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["int_dot", "levels_for"]

_WIDTH: Final = 16
_LARGEST_CODE: Final = 127
_MOST_LEVELS: Final = 32_000


def levels_for(dim: int) -> int:
    """The largest int16 magnitude with which no sum of `dim` products with int8 codes (−127 to 127) overflows."""
    return min(_MOST_LEVELS, (2**31 - 1) // (_LARGEST_CODE * max(dim, 1)))


_item_pointer: Any = cgutils.get_item_pointer2
_unpack: Any = cgutils.unpack_tuple
_loop: Any = cgutils.for_range_slice
_alloca: Any = cgutils.alloca_once_value


def _vector(bits: int, width: int) -> Any:
    return ir.VectorType(ir.IntType(bits), width)


def _every(width: int, step: int, start: int) -> Any:
    word = ir.IntType(32)
    return ir.Constant(_vector(32, width), [word(start + step * i) for i in range(width)])


@intrinsic
def _vector_dot(_typing: Any, codes: Any, row: Any, values: Any) -> Any:
    """Of the columns up to the last multiple of the width."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        index = ir.IntType(64)
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        other = context.make_array(signature.args[2])(context, builder, arguments[2])
        dim = _unpack(builder, array.shape, 2)[1]
        start = builder.gep(array.data, [builder.mul(arguments[1], dim)])
        half = _WIDTH // 2
        total = _alloca(builder, ir.Constant(_vector(32, half), None))
        whole = builder.and_(dim, index(-_WIDTH))
        with _loop(builder, index(0), whole, index(_WIDTH), inc=True) as (column, _):
            place = builder.bitcast(builder.gep(start, [column]), _vector(8, _WIDTH).as_pointer())
            code = builder.sext(builder.sext(builder.load(place, align=1), _vector(16, _WIDTH)), _vector(32, _WIDTH))
            place = builder.bitcast(builder.gep(other.data, [column]), _vector(16, _WIDTH).as_pointer())
            value = builder.sext(builder.load(place, align=2), _vector(32, _WIDTH))
            product = builder.mul(code, value)
            pairs = builder.add(*(builder.shuffle_vector(product, product, _every(half, 2, i)) for i in (0, 1)))
            builder.store(builder.add(builder.load(total), pairs), total)
        lanes, width = builder.load(total), half
        while width > 1:
            width //= 2
            lanes = builder.add(*(builder.shuffle_vector(lanes, lanes, _every(width, 1, i)) for i in (0, width)))
        return builder.extract_element(lanes, ir.IntType(32)(0))

    return types.int32(codes, types.int64, values), generate


def _compiled(codes: Any, row: Any, values: Any) -> Any:
    total = np.int64(_vector_dot(codes, row, values))  # type: ignore[call-arg]
    for column in range(len(values) // _WIDTH * _WIDTH, len(values)):
        total += np.int64(codes[row, column]) * np.int64(values[column])
    return total


def _interpreted(codes: Any, row: Any, values: Any) -> Any:
    return int(codes[row].astype(np.int64) @ values.astype(np.int64))


#: Σ_j codes[row, j] · values[j] of a C-contiguous int8 table and int16 values within `levels_for` its width.
int_dot: Any = _interpreted if getattr(numba.config, "DISABLE_JIT", False) else numba.njit(nogil=True)(_compiled)
