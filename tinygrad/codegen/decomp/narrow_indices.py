"""Index arithmetic in 32 bits, for targets that want it and those without 64-bit integers.

In:   a kernel graph whose indices are weakint: numbers of any size.
Out:  the same kernel, in which all weakint arithmetic may wrap at 32 bits: what a wrapped operand would change is
      computed in int64, of which codegen/decomp/wide_integers.py makes 32-bit words where the target lacks it.
Why:  an index that is used lies inside a buffer and so fits 32 bits, and sums and products that wrap still end at it.
      Only what asks for the whole number, such as the test whether an index that was read from memory is inside, needs
      more bits.
"""

from __future__ import annotations

from typing import Final

from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.errors import DTypeError, error_text
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

_I32: Final = dtypes.int32
# The low 32 bits of these are made of the low 32 bits of their operands alone.
_LOW_BITS: Final = frozenset({Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.AND, Ops.OR, Ops.XOR, Ops.WHERE})
_MOST: Final = 1 << 31


def _fits(u: UOp) -> bool:
    return bool(_I32.min <= u.vmin and u.vmax <= _I32.max)


class _Narrowing:
    """One walk over a kernel."""

    def __init__(self) -> None:
        self.new: dict[UOp, UOp] = {}
        self.wide: dict[UOp, UOp] = {}

    def convert(self, u: UOp) -> UOp:
        """Return what stands for a node whose sources are converted."""
        if u.dtype is dtypes.weakint and u.op is Ops.CONST and not _fits(u):
            return UOp(Ops.CONST, u.dtype, (), (u.arg + (1 << 31) & 0xFFFFFFFF) - (1 << 31))
        asks = u.op in GroupOp.Elementwise - _LOW_BITS and any(
            s.dtype is dtypes.weakint and not _fits(s) for s in u.src
        )
        if asks and u.op is Ops.CAST:
            wide = self.widened(u.src[0])
            return wide if wide.dtype is u.dtype else UOp(Ops.CAST, u.dtype, (wide,), u.arg)
        if asks:
            src = tuple(self.widened(s) if s.dtype is dtypes.weakint else self.new[s] for s in u.src)
            made = UOp(u.op, dtypes.int64 if u.dtype is dtypes.weakint else u.dtype, src, u.arg)
            return UOp(Ops.CAST, u.dtype, (made,), u.dtype) if u.dtype is dtypes.weakint else made
        src = tuple([self.new[s] for s in u.src])
        return u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)

    def widened(self, u: UOp) -> UOp:
        """Return a weakint node in int64, with all its bits."""
        found = self.wide.get(u)
        if found is None:
            found = self.wide[u] = self._widened(u)
        return found

    def _widened(self, u: UOp) -> UOp:
        if u.op is Ops.CONST:
            return UOp(Ops.CONST, dtypes.int64, (), u.arg)
        x = self.new[u]
        if u.op is Ops.CAST:
            x = self.new[u.src[0]]
        elif not _fits(u) and u.op in GroupOp.ALU:
            src = tuple(self.widened(s) if s.dtype is dtypes.weakint else self.new[s] for s in u.src)
            return UOp(u.op, dtypes.int64, src, u.arg)
        return x if x.dtype is dtypes.int64 else UOp(Ops.CAST, dtypes.int64, (x,), dtypes.int64)


def narrow_indices(sink: UOp) -> UOp:
    """Return the kernel with index arithmetic that may wrap at 32 bits; ``index_dtype`` says whether it can be."""
    walk = _Narrowing()
    for u in sink.toposort():
        walk.new[u] = walk.convert(u)
    return walk.new[sink]


def index_dtype(sink: UOp, wanted: DType, has_wide_integers: bool) -> DType:
    """Return the dtype of a kernel's index arithmetic.

    Args:
        sink: The kernel.
        wanted: What the target prefers.
        has_wide_integers: Whether it has 64-bit integers.

    Returns:
        ``wanted``, or int64 if the kernel needs more than 32 bits; int32 without 64-bit integers.

    Raises:
        DTypeError: The kernel needs more than 32 bits, and the target does not have them.
    """
    if has_wide_integers and wanted is dtypes.int64:
        return wanted
    for u in sink.toposort():
        if u.op not in {Ops.PARAM, Ops.BUFFER, Ops.RANGE, Ops.SPECIAL}:
            continue
        large = _too_large(u, words=1 if has_wide_integers else 2)
        if large is None:
            continue
        if has_wide_integers:
            return dtypes.int64
        fault = f"the target has no 64-bit integers, and {large}"
        raise DTypeError(error_text("kernel", fault, hint="split the tensor or the work into smaller parts"))
    return _I32


def _too_large(u: UOp, words: int) -> str | None:
    """Return why 32 bits do not count the elements of a buffer or the steps of a loop; None if they do."""
    if u.op in {Ops.RANGE, Ops.SPECIAL} or u.arg.addrspace is AddrSpace.ALU:
        fits = u.dtype is not dtypes.weakint or _fits(u)
        return None if fits else f"a loop or Variable goes up to {u.vmax}"
    size = u.arg.shape[0] if u.arg.shape else 1
    most = _MOST // (words if u.dtype in dtypes.int64s else 1)
    if not isinstance(size, int) or size <= most:
        return None
    return f"buffer {u.arg.slot} has {size} elements of {u.dtype}, more than the {most} that 32-bit indices reach"
