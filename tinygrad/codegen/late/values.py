"""Constructors of lowered values: scalars and vectors with concrete dtypes, constants folded, splats made as needed.

In:   lowered values and an operation.
Out:  the lowered result. A vector's lane count is kept in ``Values.width``; what is not in there is a scalar.
Why:  copies of a loop body substitute constants, and most gates and index terms fold away at once.
"""

from __future__ import annotations

from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, exec_alu


class Values:
    """Makes lowered nodes of one kernel.

    Args:
        index_dtype: Dtype that stands for weakint.
        has_max: Whether MAX is native; if not, a comparison and a selection take its place.
    """

    def __init__(self, index_dtype: DType, has_max: bool = True) -> None:
        self.index_dtype, self.has_max = index_dtype, has_max
        self.width: dict[UOp, int] = {}
        self._const_lanes: dict[UOp, tuple[Any, ...]] = {}

    def concrete(self, dtype: DType) -> DType:
        """Return the dtype that the target stores for a possibly weak one."""
        if dtype is dtypes.weakint:
            return self.index_dtype
        return dtypes.default_float if dtype is dtypes.weakfloat else dtype

    def const(self, value: Any, dtype: DType) -> UOp:
        """Return a scalar constant."""
        return UOp(Ops.CONST, dtype, (), value)

    def index(self, value: int) -> UOp:
        """Return a scalar index constant."""
        return UOp(Ops.CONST, self.index_dtype, (), value)

    def stack(self, lanes: tuple[UOp, ...]) -> UOp:
        """Return a vector of scalars."""
        vector = UOp(Ops.STACK, lanes[0].dtype, lanes)
        self.width[vector] = len(lanes)
        if all(s.op is Ops.CONST for s in lanes):
            self._const_lanes[vector] = tuple(s.arg for s in lanes)
        return vector

    def splat(self, value: UOp, n: int) -> UOp:
        """Return ``value`` as a vector of ``n`` lanes; a vector stays as it is."""
        return value if n == 1 or value in self.width else self.stack((value,) * n)

    def iota(self, n: int, step: int, start: int, dtype: DType | None = None) -> UOp:
        """Return the constant vector start, start + step, ..."""
        dtype = self.index_dtype if dtype is None else dtype
        return self.stack(tuple(UOp(Ops.CONST, dtype, (), start + step * i) for i in range(n)))

    def lane(self, vector: UOp, i: int) -> UOp:
        """Return lane ``i`` of a vector; a scalar is its own every lane."""
        if vector not in self.width:
            return vector
        if vector.op is Ops.STACK and vector.arg is None:
            return vector.src[i]
        return UOp(Ops.INDEX, vector.dtype, (vector, self.index(i)))

    def shuffle(self, vectors: tuple[UOp, ...], lanes: tuple[int, ...]) -> UOp:
        """Return a vector of lanes of vectors, counted through all of them: one node, whatever the number of lanes.

        It is not looked through: where several shuffles follow each other, each stays the instruction that it is.
        """
        made = UOp(Ops.STACK, vectors[0].dtype, vectors, lanes)
        self.width[made] = len(lanes)
        return made

    def const_lanes(self, value: UOp) -> tuple[Any, ...] | None:
        """Return the values of a constant vector, or None."""
        return self._const_lanes.get(value)

    def add(self, a: UOp, b: UOp) -> UOp:
        """Return an integer sum."""
        return self.alu(Ops.ADD, a.dtype, (a, b))

    def scaled(self, a: UOp, factor: int) -> UOp:
        """Return an integer multiple of a scalar or vector."""
        return a if factor == 1 else self.alu(Ops.MUL, a.dtype, (a, self.const(factor, a.dtype)))

    def alu(self, op: Ops, dtype: DType, src: tuple[UOp, ...], arg: Any = None) -> UOp:
        """Return an elementwise operation; scalars that meet vectors are splat."""
        if op is Ops.MAX and not self.has_max:
            return self._selected_max(dtype, *src)
        width = self.width
        n = 1
        for s in src:
            n = width.get(s, n)
        if op in GroupOp.ALU and (src[0].dtype is dtypes.bool or not dtypes.is_float(src[0].dtype)):
            folded = self._fold(op, dtype, src, n)
            if folded is not None:
                return folded
        if n == 1:
            return UOp(op, dtype, src, arg)
        made = UOp(op, dtype, tuple(s if s in width else self.splat(s, n) for s in src), arg)
        width[made] = n
        return made

    def _selected_max(self, dtype: DType, x: UOp, y: UOp) -> UOp:
        # max(x, y) = y < x or x is NaN ? x : y
        if dtype is dtypes.bool:
            return self.alu(Ops.OR, dtype, (x, y))
        takes_first = self.alu(Ops.CMPLT, dtypes.bool, (y, x))
        if dtypes.is_float(dtype):
            is_nan = self.alu(Ops.CMPNE, dtypes.bool, (x, x))
            takes_first = self.alu(Ops.OR, dtypes.bool, (takes_first, is_nan))
        return self.alu(Ops.WHERE, dtype, (takes_first, x, y))

    def _fold(self, op: Ops, dtype: DType, src: tuple[UOp, ...], n: int) -> UOp | None:
        """Fold integer and boolean operations on constants, and the identities that masks are full of."""
        if op is Ops.WHERE:
            condition = src[0]
            if condition.op is Ops.CONST:
                return src[1] if condition.arg else src[2]
            lanes = self._const_lanes.get(condition)
            if lanes is not None and len(set(lanes)) == 1:
                return self.splat(src[1] if lanes[0] else src[2], n)
            return src[1] if src[1] is src[2] else None
        if all(s.op is Ops.CONST for s in src):
            return UOp(Ops.CONST, dtype, (), exec_alu(op, dtype, tuple(s.arg for s in src)))
        if n > 1 and all(s.op is Ops.CONST or s in self._const_lanes for s in src):
            columns = [self._const_lanes.get(s) or (s.arg,) * n for s in src]
            values = [exec_alu(op, dtype, operands) for operands in zip(*columns, strict=True)]
            return self.stack(tuple(UOp(Ops.CONST, dtype, (), v) for v in values))
        if len(src) == 2:
            for a, b in ((src[0], src[1]), (src[1], src[0])):
                found = self._identity(op, dtype, a, b, b is src[1])
                if found is not None:
                    return found
        return None

    def _identity(self, op: Ops, dtype: DType, a: UOp, b: UOp, b_is_right: bool) -> UOp | None:
        """Return ``a op b`` if b is a constant that decides it; ``b_is_right`` tells the order of the operands."""
        if b.op is Ops.CONST:
            value = b.arg
        else:
            lanes = self._const_lanes.get(b)
            if lanes is None or len(set(lanes)) != 1:
                return None
            value = lanes[0]
        if dtype is dtypes.bool:
            if op is Ops.AND or op is Ops.MUL:
                return a if value else b
            if op is Ops.OR or op is Ops.MAX:
                return b if value else a
            return None
        keeps = (op in (Ops.ADD, Ops.OR, Ops.XOR) and value == 0) or (op is Ops.MUL and value == 1)
        keeps = keeps or (
            b_is_right and ((op in (Ops.SHL, Ops.SHR, Ops.SUB) and value == 0) or (op is Ops.CDIV and value == 1))
        )
        if keeps:
            return self.splat(a, self.width.get(b, 1))
        if value == 0 and (op is Ops.MUL or op is Ops.AND):
            return self.splat(b, self.width.get(a, 1))
        return None
