"""Graphs as functions of tensors: calls of a graph, hand-written kernels.

In:   tensors, and a graph or kernel with placeholders for them.
Out:  the results of a FUNCTION or CALL node as tensors.
Why:  a body that is called is one node of the graph, differentiated and compiled as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinygrad.errors import error_text
from tinygrad.live import point
from tinygrad.reading import ReadMixin
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

if TYPE_CHECKING:
    from typing import Self


class CallMixin(ReadMixin):
    """Calls of graphs and kernels on a Tensor."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _is_pending(self) -> bool: ...

    def as_param(self, slot: int) -> Self:
        """Return a placeholder (PARAM ``slot``) of this shape, dtype and device for the graph given to ``call``.

        Example:
            >>> body = Tensor.empty(2).as_param(0) * 10
            >>> Tensor([1.0, 2.0]).call(fxn=body).tolist()
            [10.0, 20.0]
        """
        return self._wrap_uop(self._uop.param_like(slot))

    def call(self, *lst: Self, fxn: Self | UOp, grad_fxn: Callable[..., Any] | None = None) -> Self:
        """Call the graph ``fxn``, written with PARAMs, on self and ``lst``.

        Args:
            *lst: Arguments 1, 2, ...; self is argument 0.
            fxn: The graph.
            grad_fxn: ``grad_fxn(grad, call=node)`` returns one gradient (or None) per argument; derived if None.

        Example:
            >>> a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
            >>> body = a.as_param(0) * b.as_param(1)
            >>> a.call(b, fxn=body).tolist()
            [3.0, 8.0]
        """
        body = fxn._uop
        return self._wrap_uop(body.call(*(t._uop for t in (self, *lst)), grad_fxn=grad_fxn).gettuple(0))

    def custom_kernel(
        self, *lst: Self, fxn: Callable[..., UOp], grad_fxn: Callable[..., Any] | None = None
    ) -> list[Self]:
        """Run a hand-written kernel over self and ``lst``.

        Args:
            *lst: More arguments.
            fxn: Gets one placeholder node per tensor and returns the kernel: a SINK with KernelInfo, or a PROGRAM.
            grad_fxn: ``grad_fxn(grad, call)`` returns one gradient (or None) per argument.

        Returns:
            The same tensors, ordered after the kernel: those that it writes hold its results.

        Raises:
            AssertionError: A shape is symbolic, or a loop of the kernel is not closed.

        Example:
            >>> from tinygrad.uop.ops import KernelInfo
            >>> def double(out, x):
            ...     i = UOp.range(x.shape[0], 0)
            ...     return out[i].store(x[i] * 2).end(i).sink(arg=KernelInfo(name="double"))
            >>> Tensor.empty(3).custom_kernel(Tensor([1.0, 2.0, 3.0]), fxn=double)[0].tolist()
            [2.0, 4.0, 6.0]
        """
        return [
            self._wrap_uop(u) for u in UOp.custom_kernel(self._uop, *(t._uop for t in lst), fxn=fxn, grad_fxn=grad_fxn)
        ]

    def decode_hevc_frame(
        self, frame_pos: UOp, shape: tuple[int, ...], state: Self, ref_frames: list[Self] | None = None
    ) -> Self:
        """Decode one chunk of an HEVC video held in self into a frame, on a device that has a decoder.

        Args:
            frame_pos: Bound Variable: the position of the frame in the ring of decoded frames.
            shape: Of the decoded frame.
            state: State of the decoder.
            ref_frames: Frames that this one refers to.

        Raises:
            AssertionError: ``frame_pos`` is not a bound Variable.
            NotImplementedError: The device has no decoder.

        Example:
            >>> frame = Variable("frame", 0, 3).bind(1)
            >>> try:
            ...     Tensor([0]).decode_hevc_frame(frame, (4, 4), Tensor([0]))
            ... except NotImplementedError as error:
            ...     print("no video decoder" in str(error))
            True
        """
        if not getattr(frame_pos, "is_bound_var", False):
            fault = f"frame_pos is {frame_pos!r}"
            raise AssertionError(error_text("decode_hevc_frame", fault, rule="a bound Variable"))
        fault = f"device {self.device} has no video decoder"
        hint = "no device here has one: decode the video with another program, and give its frames as numpy arrays"
        raise NotImplementedError(error_text("decode_hevc_frame", fault, {"chunk": self}, hint=hint))

    def callify(self, *lst: Self) -> Self:
        """Turn the pending graph of self and ``lst`` into one call node without running it; returns self.

        Example:
            >>> x = (Tensor([1, 2]) + 1).callify()
            >>> x.tolist()
            [2, 3]
        """
        tensors = [t for t in (self, *lst) if t._is_pending()]
        roots = UOp.sink(*(t._uop for t in tensors))
        leaves = [u for u in roots.toposort(enter_calls=False) if u.op is Ops.BUFFER]
        body = roots.substitute({u: u.param_like(i) for i, u in enumerate(leaves)}, walk=True)
        call = UOp.maketuple(*body.src).call(*leaves)
        for i, t in enumerate(tensors):
            show: Any = t  # only Tensor has this mixin
            point(show, call.gettuple(i))
        return self
