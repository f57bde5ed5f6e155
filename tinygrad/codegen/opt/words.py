"""Words of packed numbers, as dot-product and tile instructions read them.

In:   the numbers of one word: 2 of 16 bits or 4 of 8 bits, as they are read from memory or computed.
Out:  one uint32, the first number in its lowest bits.
Why:  numbers that lie beside each other in memory are a word already, which is read as such: packing two of them takes
      five instructions, four of them eleven.
"""

from __future__ import annotations

import math

from tinygrad.codegen.late.affine import affine, from_affine
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.record import replace
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

WORD_BYTES = 4


def word_of(numbers: list[UOp]) -> UOp:
    """Return a word of numbers."""
    found = _word_in_memory(numbers)
    return _packed(numbers) if found is None else found


def _packed(numbers: list[UOp]) -> UOp:
    """Return a word of any numbers, put together by shifts."""
    bits = numbers[0].dtype.itemsize * 8
    unsigned = dtypes.uint8 if bits == 8 else dtypes.uint16
    word: UOp | None = None
    for n, number in enumerate(numbers):
        part = UOp(Ops.BITCAST, unsigned, (number,), unsigned) if number.dtype is not unsigned else number
        part = UOp(Ops.CAST, dtypes.uint32, (part,), dtypes.uint32)
        if n:
            part = UOp(Ops.SHL, dtypes.uint32, (part, UOp(Ops.CONST, dtypes.uint32, (), n * bits)))
        word = part if word is None else UOp(Ops.OR, dtypes.uint32, (word, part))
    assert word is not None
    return word


def _word_in_memory(numbers: list[UOp]) -> UOp | None:
    """Return the read of a word whose numbers lie beside each other in a buffer, from a whole word on; else None."""
    first, last, count = numbers[0], numbers[-1], len(numbers)
    memory = first.src[0] if first.op is last.op is Ops.INDEX and first.src[0] is last.src[0] else None
    if memory is None or memory.op is not Ops.PARAM or memory.arg.addrspace is not AddrSpace.GLOBAL:
        return None
    terms = _whole_words(first.src[1], last.src[1], count)
    if terms is None or len(first.src) != len(last.src):
        return None
    gates = [list(u.src[2].split_uop(Ops.AND)) if len(u.src) > 2 else [] for u in (first, last)]
    if len(gates[0]) != len(gates[1]) or not all(_same_gate(a, b, count) for a, b in zip(*gates, strict=True)):
        return None
    # The same argument, seen as an array of words.
    shape = (math.prod(int(n) for n in memory.arg.shape) * memory.dtype.itemsize // WORD_BYTES,)
    words = UOp(Ops.PARAM, dtypes.uint32, (), replace(memory.arg, dtype=dtypes.uint32, shape=shape))
    place = from_affine({t: f // count for t, f in terms[0].items()}, terms[1] // count)
    return UOp(Ops.INDEX, dtypes.uint32, (words, place, *first.src[2:]))


def _whole_words(first: UOp, last: UOp, count: int) -> tuple[dict[UOp, int], int] | None:
    """Return the affine form of the place of a word's first number if it is a multiple of ``count``, or None."""
    (terms, const), (other, end) = affine(first), affine(last)
    is_whole = terms == other and end == const + count - 1 and not any(f % count for f in (*terms.values(), const))
    return (terms, const) if is_whole else None


def _same_gate(first: UOp, last: UOp, count: int) -> bool:
    """Whether a condition holds for the first and for the last number of any word, or for neither."""
    if first is last:
        return True
    if not first.op is last.op is Ops.CMPLT or first.src[1] is not last.src[1] or first.src[1].op is not Ops.CONST:
        return False
    return first.src[1].arg % count == 0 and _whole_words(first.src[0], last.src[0], count) is not None
