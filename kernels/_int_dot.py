"""Dot products of int8 or int16 codes with int16 values: eight rows at once, sixteen products an instruction.

Numba turns the plain loop into one with half the width, and each row ends with adding up the lanes of its sum. Written
as vectors, LLVM finds the multiply-and-add of pairs that processors have (pmaddwd, smlal), and eight rows share the
adding up: at 128 columns that is four times as quick.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["ROWS_AT_ONCE", "int_dots", "levels_for"]

ROWS_AT_ONCE: Final = 8
_WIDTH: Final = 16
_LARGEST_CODE: Final = 127
_MOST_LEVELS: Final = 32_000


def levels_for(dim: int) -> int:
    """The largest int16 magnitude with which no sum of `dim` products with int8 values (−127 to 127) overflows."""
    return min(_MOST_LEVELS, (2**31 - 1) // (_LARGEST_CODE * max(dim, 1)))


_unpack: Any = cgutils.unpack_tuple
_loop: Any = cgutils.for_range_slice
_alloca: Any = cgutils.alloca_once


def _vector(bits: int, width: int) -> Any:
    return ir.VectorType(ir.IntType(bits), width)


def _lanes(numbers: Any) -> Any:
    word = ir.IntType(32)
    chosen = [word(number) for number in numbers]
    return ir.Constant(_vector(32, len(chosen)), chosen)


def _joined(builder: Any, first: Any, second: Any, run: int) -> Any:
    """Sums of two rows' lanes in one vector: of runs of `run` lanes, every other is added to its neighbour."""
    both = range(2 * ROWS_AT_ONCE)
    halves = ([lane for lane in both if lane // run % 2 == half] for half in (0, 1))
    return builder.add(*(builder.shuffle_vector(first, second, _lanes(lanes)) for lanes in halves))


@intrinsic
def _vector_dots(_typing: Any, codes: Any, rows: Any, start: Any, values: Any, out: Any) -> Any:
    """Of the columns up to the last multiple of the width."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        index, bits = ir.IntType(64), codes.dtype.bitwidth
        array, chosen, other, result = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 1, 3, 4)
        )
        dim = _unpack(builder, array.shape, 2)[1]
        places = [builder.add(arguments[2], index(i)) for i in range(ROWS_AT_ONCE)]
        numbers = [builder.load(builder.gep(chosen.data, [place])) for place in places]
        starts = [builder.gep(array.data, [builder.mul(number, dim)]) for number in numbers]
        zero = ir.Constant(_vector(32, _WIDTH // 2), None)
        totals = [_alloca(builder, zero.type) for _ in starts]
        for total in totals:
            builder.store(zero, total)
        whole = builder.and_(dim, index(-_WIDTH))
        with _loop(builder, index(0), whole, index(_WIDTH), inc=True) as (column, _):
            place = builder.bitcast(builder.gep(other.data, [column]), _vector(16, _WIDTH).as_pointer())
            value = builder.sext(builder.load(place, align=2), _vector(32, _WIDTH))
            for row, total in zip(starts, totals, strict=True):
                place = builder.bitcast(builder.gep(row, [column]), _vector(bits, _WIDTH).as_pointer())
                code = builder.load(place, align=bits // 8)
                for wider in (16, 32):  # in two steps: so LLVM sees that it was 16 bits wide at most
                    code = builder.sext(code, _vector(wider, _WIDTH)) if wider > bits else code
                product = builder.mul(code, value)
                even, odd = (builder.shuffle_vector(product, product, _lanes(range(i, _WIDTH, 2))) for i in (0, 1))
                builder.store(builder.add(builder.load(total), builder.add(even, odd)), total)
        sums = [builder.load(total) for total in totals]
        run = ROWS_AT_ONCE // 2
        while len(sums) > 1:
            sums = [_joined(builder, sums[i], sums[i + 1], run) for i in range(0, len(sums), 2)]
            run //= 2
        place = builder.bitcast(builder.gep(result.data, [arguments[2]]), sums[0].type.as_pointer())
        builder.store(sums[0], place, align=4)
        return context.get_dummy_value()

    return types.void(codes, rows, types.int64, values, out), generate


def _compiled(codes: Any, rows: Any, start: Any, values: Any, out: Any) -> Any:
    _vector_dots(codes, rows, start, values, out)  # type: ignore[call-arg]
    whole = len(values) // _WIDTH * _WIDTH
    if whole < len(values):
        for i in range(start, start + ROWS_AT_ONCE):
            for column in range(whole, len(values)):
                out[i] += np.int32(codes[rows[i], column]) * np.int32(values[column])


def _interpreted(codes: Any, rows: Any, start: Any, values: Any, out: Any) -> Any:
    part = slice(start, start + ROWS_AT_ONCE)
    out[part] = codes[rows[part]].astype(np.int64) @ values.astype(np.int64)


#: out[i] = Σ_j codes[rows[i], j] · values[j] for the eight i from `start` on: a C-contiguous int8 or int16 table, int64
#: rows of it, int16 values, int32 out. One side is within ±127, the other within `levels_for` their number.
int_dots: Any = _interpreted if getattr(numba.config, "DISABLE_JIT", False) else numba.njit(nogil=True)(_compiled)
