"""Words of kernels: loops, loads and stores, their order, and calls of finished bodies.

In:   nodes of a kernel that is written by hand or by the scheduler.
Out:  ``KernelMethods``, which UOp inherits: one method per node kind of a kernel.
Why:  kernels of users and kernels of this package are written with the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import DType, dtypes
from tinygrad.mixin.hooks import Hooks
from tinygrad.uop import AxisType, GroupOp, Ops
from tinygrad.uop.records import CallInfo
from tinygrad.uop.sint import sint, sint_to_uop

if TYPE_CHECKING:
    from tinygrad.device import TinyELF
    from tinygrad.uop.ops import UOp

# The arg of an END whose loops the optimiser may treat as a kernel of its own.
NEST = "nest"


class KernelMethods(Hooks):
    """Methods of UOp that build kernels."""

    __slots__ = ()

    def f(self, op: Ops, **kwargs: Any) -> UOp:
        """Return ``op`` applied to this node."""
        u = self._uop
        return graph.UOp(op, kwargs.pop("dtype", None), (u,), **kwargs)

    def ins(self, arg: Any, **kwargs: Any) -> UOp:
        """Return a machine instruction that reads this node."""
        u = self._uop
        return graph.UOp(Ops.INS, kwargs.pop("dtype", u.dtype), (u, *kwargs.pop("src", ())), arg, **kwargs)

    def broadcast(self, n: int) -> UOp:
        """Return a vector of n lanes that all hold this scalar."""
        u = self._uop
        return graph.UOp(Ops.STACK, u.dtype, (u,) * n)

    @staticmethod
    def range(
        end: sint,
        axis_id: int,
        axis_type: AxisType = AxisType.LOOP,
        *arg: Any,
        dtype: DType = dtypes.weakint,
        src: tuple[UOp, ...] = (),
    ) -> UOp:
        """Return a loop variable that runs from 0 to end - 1."""
        # Simplified here, so that an index that is simplified later still names this very loop.
        return graph.UOp(Ops.RANGE, dtype, (sint_to_uop(end, dtype).simplify(), *src), (axis_id, *arg, axis_type))

    @staticmethod
    def special(end: sint, name: str, dtype: DType = dtypes.weakint) -> UOp:
        """Return a hardware index such as ``gidx0``."""
        return graph.UOp(Ops.SPECIAL, dtype, (sint_to_uop(end, dtype),), name)

    @staticmethod
    def iota(n: sint) -> UOp:
        """Return the tensor-level primitive behind arange: 0, 1, ..., n - 1, weakint, without a device.

        The scheduler turns it into the loop variable itself, so it never exists in memory.
        """
        return graph.UOp(Ops.SPECIAL, dtypes.weakint, (sint_to_uop(n),), "iota")

    def index(self, *idx: UOp, gate: UOp | None = None) -> UOp:
        """Return element ``idx`` of kernel storage; several indices address a shaped placeholder."""
        u = self._uop
        if len(idx) > 1 or u.op in GroupOp.Movement or (u.op is Ops.AFTER and u.src[0].op in GroupOp.Movement):
            from tinygrad.uop.views import kernel_index

            return kernel_index(u, idx, gate)
        return graph.UOp(Ops.INDEX, u.dtype, (u, *idx) if gate is None else (u, *idx, gate))

    def load(self, *src: UOp, width: int | None = None) -> UOp:
        """Return a LOAD of an INDEX (or of a register); ``src`` is (alternative, gate)."""
        u = self._uop
        return graph.UOp(Ops.LOAD, u.dtype, (u, *src), width)

    def store(self, value: Any, gate: UOp | None = None) -> UOp:
        """Return a STORE of ``value`` to this view, INDEX or register."""
        u = self._uop
        value = value if isinstance(value, graph.UOp) else u.const_like(value)
        return graph.UOp(Ops.STORE, dtypes.void, (u, value) if gate is None else (u, value, gate))

    def set(self, value: Any, end: Sequence[UOp] | UOp = ()) -> UOp:
        """Store, close the ranges ``end``, and return the buffer after that."""
        u = self._uop
        ends = (end,) if isinstance(end, graph.UOp) else tuple(end)
        storage = u.buf_uop.after(u.store(value).end(*ends))
        return storage.reshape(u.tag) if u.op is Ops.INDEX and isinstance(u.tag, tuple) else storage

    def end(self, *ranges: UOp) -> UOp:
        """Close ranges, outermost first; without ranges returns self."""
        u = self._uop
        return graph.UOp(Ops.END, dtypes.void, (effect_of(u), *ranges)) if ranges else u

    def nest(self, *ranges: UOp) -> UOp:
        """Close ranges, and let the optimiser split and type the loops inside of them like those of a kernel.

        All storage that the nest shares with other parts of the kernel is seen in one state: through one AFTER.
        """
        u = self._uop
        return graph.UOp(Ops.END, dtypes.void, (effect_of(u), *ranges), NEST)

    def after(self, *deps: UOp) -> UOp:
        """Return this value, ordered after ``deps``; without them returns self."""
        u = self._uop
        return graph.UOp(Ops.AFTER, u.dtype, (u, *map(effect_of, deps))) if deps else u

    def barrier(self, *src: UOp) -> UOp:
        """Return a work-group barrier after this node and ``src``."""
        u = self._uop
        return graph.UOp(Ops.BARRIER, dtypes.void, (u, *src))

    def reduce(self, *ranges: UOp, arg: Ops, **kwargs: Any) -> UOp:
        """Return the combination of this value over kernel ranges."""
        u = self._uop
        return graph.UOp(Ops.REDUCE, u.dtype, (u, *ranges), (arg, ())) if ranges else u

    def to_elf(self) -> TinyELF:
        """Return a finished PROGRAM with all that a device needs to load it.

        The signature is empty if the PROGRAM came from the disk cache, which keeps no instructions.

        Raises:
            RuntimeError: This is no PROGRAM, or one that has not been compiled.
        """
        from tinygrad.uop.finished import elf_of

        u = self._uop
        if u.op is not Ops.PROGRAM:
            raise RuntimeError(f"to_elf: {u.op} is no PROGRAM")
        return elf_of(u)

    def gettuple(self, i: int) -> UOp:
        """Return result ``i`` of a FUNCTION or TUPLE."""
        u = self._uop
        if u.op not in (Ops.FUNCTION, Ops.TUPLE):
            raise AssertionError(f"gettuple: expected FUNCTION or TUPLE, got {u.op}")
        return u.src[i] if u.op is Ops.TUPLE else graph.UOp(Ops.GETTUPLE, None, (u,), i)

    def call(
        self,
        *args: UOp,
        grad_fxn: Callable[..., Any] | None = None,
        name: str | None = None,
        precompile: bool = False,
        precompile_backward: bool = False,
        aux: Any = None,
        **kwargs: Any,
    ) -> UOp:
        """Return a call of this body: CALL for a kernel-like body, FUNCTION for values (wrapped in a TUPLE)."""
        u = self._uop
        info = CallInfo(grad_fxn, name, precompile, precompile_backward, aux)
        if u.op in (Ops.SINK, Ops.PROGRAM, Ops.LINEAR, Ops.COPY, Ops.CUSTOM_FUNCTION):
            open_ranges = [r for r in u.ranges if r.arg[-1] is not AxisType.DEVICE]
            if open_ranges:
                raise AssertionError(f"ranges {open_ranges} are leaking out of the call; close them with .end()")
            return graph.UOp(Ops.CALL, dtypes.void, (u, *args), info)
        body = u if u.op is Ops.TUPLE else graph.UOp.maketuple(u)
        return graph.UOp(Ops.FUNCTION, dtypes.void, (body, *args), info)

    @staticmethod
    def wmma(
        a: UOp, b: UOp, acc: UOp, dims: tuple[int, int, int], device: str, threads: int, tc_upcast_axes: Any = None
    ) -> UOp:
        """Return the multiply-add of a matrix unit on fragments: a @ b + acc."""
        return graph.UOp(Ops.WMMA, acc.dtype, (a, b, acc), (dims, a.dtype, device, threads, tc_upcast_axes))

    @staticmethod
    def custom_function(name: str, *src: UOp) -> UOp:
        """Return an operation that the runtime implements."""
        return graph.UOp(Ops.CUSTOM_FUNCTION, dtypes.void, tuple(src), name)

    def valid(self, cond: UOp) -> UOp:
        """Return this index where ``cond`` holds, an undefined value elsewhere."""
        u = self._uop
        return graph.UOp(Ops.WHERE, u.dtype, (cond, u, graph.UOp.invalid(u.dtype)))

    def get_idx(self) -> UOp:
        """Return the index of a ``valid`` pair."""
        u = self._uop
        return u.src[1] if u.op is Ops.WHERE and u.src[2].is_invalid else u

    def get_valid(self) -> UOp:
        """Return the condition of a ``valid`` pair; True for a plain index."""
        u = self._uop
        return u.src[0] if u.op is Ops.WHERE and u.src[2].is_invalid else graph.UOp.const(True, dtypes.bool)


def effect_of(u: UOp) -> UOp:
    """Return what a kernel has to wait for: the storage after its writes, for a view of it (kernels have no views)."""
    return u.base if u.op in GroupOp.Movement and u.base.op is Ops.AFTER and u.device is None else u


from tinygrad.uop import ops as graph  # noqa: E402  in a circle: only methods use it, once they run
