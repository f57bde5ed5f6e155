"""Gradients: a table of rules, and one backward walk over the graph that applies them.

In:   a float root node, the gradient flowing into it, and the target nodes.
Out:  for every target that is reached, a node that computes its gradient. It is ordinary graph: nothing runs, and it
      can be differentiated again.
Why:  a derivative is one row of a table, and the backward pass is optimised by the same stages as the forward pass.

A rule gets the incoming gradient as ``ctx`` and returns one gradient per source; None means no gradient. Shapes and
dtypes are brought to those of the source afterwards: axes over which the source was broadcast are summed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.errors import DTypeError, GradientError, error_text, shown
from tinygrad.helpers import argsort
from tinygrad.mixin.gradient_sums import add_all, joined_slices
from tinygrad.mixin.hooks import Hooks, same_shape, same_size
from tinygrad.mixin.products import product_of_others
from tinygrad.mixin.random_state import is_random_state
from tinygrad.mixin.written_views import apply_chain, is_whole, view_chain, written_mask
from tinygrad.profiling import Metadata, labelled
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.matcher import PatternMatcher
from tinygrad.uop.upat import UPat

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.uop.ops import UOp

Gradients = tuple["UOp | None", ...]
_WITH_DTYPE = "Tensor(number, dtype=...) has a dtype of its own, and so has .clone(); compute with that"
LN2 = math.log(2.0)
# Nodes with several results receive one gradient per result, so their gradients are kept apart by the result's number.
_MULTIPLE = frozenset({Ops.FUNCTION, Ops.CALL})
_NO_GRADIENT = GroupOp.Comparison | {Ops.CONST, Ops.BUFFER, Ops.PARAM, Ops.RANGE, Ops.SPECIAL, Ops.BITCAST, Ops.TRUNC}


class GradientMixin(Hooks):
    """Entry to differentiation that Tensor and UOp share."""

    __slots__ = ()

    def gradient(self, *targets: Self, gradient: Self | None = None, materialize_grads: bool = True) -> list[Self]:
        """Return the gradient of self with respect to each target; zeros where self does not depend on it.

        What was realized in between, other than a single number, is data: nothing flows through it. Equal expressions
        are one: what flows to either is the gradient of both, unless a ``clone()`` tells them apart; where another
        tensor shows the expression of a target, that is a warning. Constants that were made one by one are told apart.

        Args:
            *targets: Float tensors of the graph of self.
            gradient: Gradient flowing into self; 1.0 if self is a scalar and this is None.
            materialize_grads: Accepted for other interfaces; unreached targets always give zeros.

        Raises:
            AssertionError: Self is no scalar and ``gradient`` is None, or its shape differs.
            DTypeError: Self or a target is no float.
            RuntimeError: An operation on the way has no gradient rule.

        Example:
            >>> x = Tensor([2.0, 3.0])
            >>> (x * x).sum().gradient(x)[0].tolist()
            [4.0, 6.0]
        """
        for name, tensor in (("self", self), *((f"target {i}", t) for i, t in enumerate(targets))):
            if not dtypes.is_float(tensor.dtype) or (name != "self" and tensor.dtype in dtypes.weaks):
                hint = _WITH_DTYPE if tensor.dtype is dtypes.weakfloat else None
                raise DTypeError(error_text("gradient", f"only float Tensors have gradient, {name} is {tensor.dtype}",
                                            {name: tensor}, hint=hint))  # fmt: skip
        root, *nodes = self._differentiated(*targets)
        found = compute_gradient(root, root_gradient(self, gradient), nodes)
        return [
            self._gradient_of(target, found[node] if node in found else node.const_like(0))
            for target, node in zip(targets, nodes, strict=True)
        ]

    def _differentiated(self, *targets: Self) -> list[UOp]:
        """Return the nodes to differentiate for self and the targets: their own."""
        return [t._uop for t in (self, *targets)]

    def _gradient_of(self, target: Self, node: UOp) -> Self:
        """Return the gradient of a target around its node."""
        return self._wrap_uop(node)


def root_gradient(root: Any, gradient: Any | None) -> UOp:
    """Return the node of the gradient that flows into ``root``: the given one, or 1.0 for a scalar."""
    if gradient is None:
        if not all(same_size(s, 1) for s in root.shape):
            raise AssertionError(error_text("backward", "when no gradient is provided, it must be called on a scalar",
                                            {"tensor": root}, hint="t.sum().backward()"))  # fmt: skip
        one: UOp = root._uop.const_like(1.0)
        return one
    if not same_shape(gradient.shape, root.shape):
        raise AssertionError(error_text("backward", "the gradient must have the shape of the tensor",
                                        {"tensor": root, "gradient": gradient}))  # fmt: skip
    given: UOp = gradient._uop.cast(root.dtype)
    return given


# ---- rules ---------------------------------------------------------------------------------------------------------


def reduce_gradient(ctx: UOp, ret: UOp, op: Ops) -> Gradients:
    """Return the gradient of a reduction."""
    x = ret.src[0]
    if op is Ops.ADD:
        return (ctx._broadcast_to(x.shape),)
    if op is Ops.MAX:
        # Ties share equally, and so do NaNs, one of which is the maximum if there are any. They are counted in float32:
        # half precision would lose the count. The maximum is one of the values as they are computed here: what was
        # computed of ``ret`` before may differ from all by a rounding.
        ties = x.eq(x.detach()._rop(Ops.MAX, ret.arg[1])) | x.ne(x)
        wide = least_upper_dtype(ctx.dtype, dtypes.float32)
        share = ctx.cast(wide) / ties.cast(wide)._rop(Ops.ADD, ret.arg[1])
        return (ties.where(share.cast(x.dtype), 0),)
    return (product_of_others(x, ret.arg[1]) * ctx,)


def max_gradient(ctx: UOp, ret: UOp) -> Gradients:
    """Return the gradient of the larger of two values; equal values get half each.

    Only what is certainly smaller gets none: where one is NaN both get the whole, as in torch, and nothing is lost.
    """
    x, y = ret.src
    share = x.eq(y).where(ctx * 0.5, ctx)
    return (x < y).where(0, share), (y < x).where(0, share)


def mod_gradient(ctx: UOp, ret: UOp) -> Gradients:
    """Return the gradients of the remainder toward zero: x - q * y, where the quotient q is constant."""
    x, y = ret.src
    return ctx, ctx * -((x - ret) / y).round()


def pow_gradient(ctx: UOp, ret: UOp) -> Gradients:
    """Return the gradients of base ** exponent, without the NaN that the formulas give at base 0 and exponent 0."""
    base, exponent = ret.src
    slope = exponent.eq(0).where(0.0, exponent * base.alu(Ops.POW, exponent - 1))
    log = (base.eq(0) & (exponent >= 0)).where(0.0, ret * (base.log2() * LN2))
    return ctx * slope, ctx * log


def stated_gradient(ctx: UOp, ret: UOp) -> Gradients:
    """Return the gradients of a DETACH that states its derivatives (see ``mixin/rounding.py``); a plain one cuts."""
    gradients: list[UOp | None] = [None] * len(ret.src)
    for i in range(1, len(ret.src), 2):
        gradients[i] = ctx * ret.src[i + 1]
    return tuple(gradients)


def shrink_gradient(ctx: UOp, ret: UOp) -> Gradients:
    """Return the gradient of a slice: zeros around it."""
    pads = tuple((start, size - end) for (start, end), size in zip(ret.marg, ret.src[0].shape, strict=True))
    return (ctx.pad(pads),)


def pad_gradient(ctx: UOp, ret: UOp) -> Gradients:
    """Return the gradient of padding: the inner part."""
    return (
        ctx.shrink([(before, before + size) for (before, _), size in zip(ret.marg, ret.src[0].shape, strict=True)]),
    )


def copy_gradient(ctx: UOp, ret: UOp) -> Gradients:
    """Return the gradient of a copy, moved back to where the source is."""
    from tinygrad.uop.sharding import place_like

    return (place_like(ctx, ret.src[0]),)


def after_gradient(ctx: UOp, ret: UOp) -> Gradients:
    """Return the gradients of storage after writes: for what it held before, and for each write."""
    before: UOp | None = ctx
    gradients: list[UOp | None] = []
    for effect in reversed(ret.src[1:]):
        if effect.op is not Ops.STORE:
            gradients.append(ctx)  # a call: it looks for the gradient of its result itself
            before = None
            continue
        if effect.src[0].op is Ops.INDEX and before is not None:
            from tinygrad.mixin.gather import gather_rows, overwritten_gradient, stored_gradient

            positions = effect.src[0].src[1]
            if effect.arg not in {None, Ops.ADD}:  # the function around it states its gradient
                raise GradientError(f"gradient: a store with {effect.arg} has none of its own")
            adds = effect.arg is Ops.ADD
            gradients.append((gather_rows if adds else stored_gradient)(before, positions))
            before = before if adds else overwritten_gradient(before, positions)
            continue
        chain = view_chain(effect.src[0], ret.src[0])
        if chain is None or before is None:
            gradients.append(None)
            continue
        gradients.append(apply_chain(chain, before))
        # What was overwritten has no gradient: the view's elements are cleared.
        before = None if is_whole(chain) else written_mask(chain, ret.src[0]).where(0, before)
    return before, *reversed(gradients)


pm_gradient = PatternMatcher([
    # elementwise
    (UPat(Ops.ADD), lambda ctx: (ctx, ctx)),
    (UPat(Ops.SUB), lambda ctx: (ctx, ctx * -1)),
    (UPat(Ops.NEG), lambda ctx: (ctx * -1,)),
    (UPat(Ops.MUL, name="ret"), lambda ctx, ret: (ret.src[1] * ctx, ret.src[0] * ctx)),
    (UPat(Ops.MULACC, name="ret"), lambda ctx, ret: (ret.src[1] * ctx, ret.src[0] * ctx, ctx)),
    (UPat(Ops.FDIV, name="ret"), lambda ctx, ret: (ctx / ret.src[1], ctx * (ret / ret.src[1]) * -1)),
    (UPat(Ops.RECIPROCAL, name="ret"), lambda ctx, ret: (ctx * (ret * ret) * -1,)),
    (UPat(Ops.SQRT, name="ret"), lambda ctx, ret: (ctx / (ret * 2),)),
    (UPat(Ops.EXP2, name="ret"), lambda ctx, ret: (ctx * ret * LN2,)),
    (UPat(Ops.LOG2, name="ret"), lambda ctx, ret: (ctx / (ret.src[0] * LN2),)),
    (UPat(Ops.SIN, name="ret"), lambda ctx, ret: (ctx * ret.src[0].cos(),)),
    (UPat(Ops.MAX, name="ret"), max_gradient),
    (UPat(Ops.CMOD, name="ret"), mod_gradient),
    (UPat(Ops.POW, name="ret"), pow_gradient),
    (UPat(Ops.WHERE, name="ret"), lambda ctx, ret: (None, ret.src[0].where(ctx, 0), ret.src[0].where(0, ctx))),
    (UPat(Ops.CAST, name="ret"), lambda ctx, ret: (ctx.cast(ret.src[0].dtype),)),
    # movement
    (UPat(Ops.RESHAPE, name="ret"), lambda ctx, ret: (ctx.reshape(ret.src[0].shape), None)),
    (UPat(Ops.PERMUTE, name="ret"), lambda ctx, ret: (ctx.permute(argsort(ret.marg)),)),
    (UPat(Ops.FLIP, name="ret"), lambda ctx, ret: (ctx._mop(Ops.FLIP, ret.marg),)),
    (UPat(Ops.EXPAND), lambda ctx: (ctx,)),  # the sum over the copies is taken when shapes are aligned
    (UPat(Ops.PAD, name="ret"), pad_gradient),
    (UPat(Ops.SHRINK, name="ret"), shrink_gradient),
    # the rest
    (UPat(Ops.REDUCE, name="ret"), lambda ctx, ret: reduce_gradient(ctx, ret, ret.arg[0])),
    (UPat((Ops.CONTIGUOUS, Ops.NOOP)), lambda ctx: (ctx,)),
    (UPat(Ops.CONTIGUOUS_BACKWARD), lambda ctx: (ctx.contiguous(),)),
    (UPat(Ops.COPY, name="ret"), copy_gradient),
    (UPat(Ops.DETACH, name="ret"), stated_gradient),
    (UPat(Ops.AFTER, name="ret"), after_gradient),
    (UPat(Ops.STORE), lambda ctx: (None, ctx)),
    (UPat(Ops.TUPLE), lambda: ()),
    (UPat(tuple(_NO_GRADIENT)), lambda: ()),
])


# ---- calls ---------------------------------------------------------------------------------------------------------


def call_gradient(grads: dict[int, UOp], call: UOp) -> Gradients:
    """Return the gradients of the arguments of a FUNCTION or CALL.

    Args:
        grads: Number of a result -> gradient that flows into it. For a CALL it numbers the argument that is written.
        call: The node.

    Raises:
        GradientError: A CALL without ``grad_fxn``, or one whose ``grad_fxn`` returns something else than a gradient of
            each argument.
    """
    info = call.arg
    if call.op is Ops.CALL:
        if info.grad_fxn is None:
            raise GradientError(
                f"failed to compute gradient: the custom call {info.name or ''} has no grad_fxn; give one"
            )
        return None, *_answer(call, info.grad_fxn(*(grads[i] for i in sorted(grads)), call))
    body = call.src[0]
    filled = [grads[i] if i in grads else out.const_like(0) for i, out in enumerate(body.src)]
    if info.grad_fxn is not None:
        return None, *_answer(call, info.grad_fxn(*filled, call=call))
    return None, *_body_gradient(call, filled)


def _answer(call: UOp, gradients: Any) -> Gradients:
    """Return what a ``grad_fxn`` returned as a tuple of nodes; it may build tensors, and return a single one.

    The keys of random numbers, which come last among the arguments, have no gradient.
    """
    given = gradients if isinstance(gradients, (tuple, list)) else (gradients,)
    nodes = tuple(getattr(g, "uop", g) for g in given)
    args, name = call.src[1:], call.arg.name or "a call"
    keys = [arg for arg in args if is_random_state(arg.without_after)]
    if len(nodes) == len(args) - len(keys):
        nodes += (None,) * len(keys)
    if len(nodes) != len(args):
        raise GradientError(f"grad_fxn of {name} returned {len(nodes)} gradients for {len(args)} arguments; "
                            "return one for each, None where there is none")  # fmt: skip
    for number, (node, arg) in enumerate(zip(nodes, args, strict=True)):
        if node is not None and (not hasattr(node, "_shape") or node.shape != arg.shape):
            found = f"shape {shown(node.shape)}" if hasattr(node, "_shape") else f"type {type(node).__name__}"
            raise GradientError(f"grad_fxn of {name} returned a gradient of {found} for argument {number}, "
                                f"expected a tensor of shape {shown(arg.shape)}")  # fmt: skip
    return nodes


def _body_gradient(call: UOp, grads: list[UOp]) -> list[UOp | None]:
    """Differentiate the body, and pack the result as a call of its own on the arguments and the incoming gradients."""
    from tinygrad.uop.ops import UOp
    from tinygrad.uop.sharding import place_like

    body, args = call.src[0], call.src[1:]
    params = {u.arg.slot: u for u in body.toposort(enter_calls=False) if u.op is Ops.PARAM and not u.is_variable}
    incoming = [
        UOp.param(len(args) + i, out.dtype, out.shape, out.device, axis=out.axis) for i, out in enumerate(body.src)
    ]  # fmt: skip
    roots = {out: grad for out, grad in zip(body.src, incoming, strict=True) if dtypes.is_float(out.dtype)}
    found = _backward(roots, list(params.values()))
    wanted = {slot: found[p] for slot, p in params.items() if p in found}
    if not wanted:
        return [None] * len(args)
    given = [
        place_like(g._broadcast_to(p.shape).cast(p.dtype), p) for g, p in zip(grads, incoming, strict=True)
    ]  # fmt: skip
    backward = UOp.maketuple(*wanted.values()).call(
        *args, *given, name=f"{call.arg.name or 'function'}_backward", precompile=call.arg.precompile_backward,
        precompile_backward=call.arg.precompile_backward,
    )  # fmt: skip
    number = {slot: i for i, slot in enumerate(wanted)}
    return [backward.gettuple(number[slot]) if slot in number else None for slot in range(len(args))]


# ---- the walk ------------------------------------------------------------------------------------------------------


def _differentiable_sources(u: UOp) -> tuple[UOp, ...]:
    """Return the sources that a gradient can flow to."""
    op = u.op
    if op is Ops.DETACH:
        return u.src[1::2]
    if op in _MULTIPLE:
        return u.src[1:]
    if op in {Ops.AFTER, Ops.STORE}:
        return u.src[1:2] if op is Ops.STORE else u.src
    if not dtypes.is_float(u.dtype) or op in _NO_GRADIENT:
        return ()
    if op is Ops.WHERE:
        return u.src[1:]
    return u.src[:1] if op in GroupOp.Movement else u.src


def _deepwalk(roots: Iterable[UOp], targets: Iterable[UOp]) -> list[UOp]:
    """Return the nodes between roots and targets, sources first: those through which a gradient has to flow."""
    wanted = set(targets)
    order: dict[UOp, bool] = {}  # node -> whether a target lies below it (or is it)
    stack = [(root, False) for root in roots]
    while stack:
        node, expanded = stack.pop()
        if node in order:
            continue
        sources = _differentiable_sources(node)
        if expanded:
            order[node] = node in wanted or any(order[s] for s in sources)
            continue
        stack.append((node, True))
        stack.extend((s, False) for s in sources if s not in order)
    return [node for node, on_path in order.items() if on_path]


def compute_gradient(root: UOp, root_grad: UOp, targets: Iterable[UOp]) -> dict[UOp, UOp]:
    """Walk the graph backwards once and return target -> gradient for the targets that are reached.

    Args:
        root: Float node to differentiate.
        root_grad: Gradient that flows into it, of its shape.
        targets: Nodes whose gradient is wanted.

    Raises:
        RuntimeError: An operation on the way has no rule.
    """
    return _backward({root: root_grad}, list(targets))


def _backward(roots: dict[UOp, UOp], targets: list[UOp]) -> dict[UOp, UOp]:
    path = _deepwalk(roots, targets)
    on_path = set(path)
    wanted = set(targets)
    # Contributions are collected and added in one balanced tree when the walk reaches their node.
    pending: dict[UOp, list[UOp]] = {root: [grad] for root, grad in roots.items()}
    by_result: dict[UOp, dict[int, list[UOp]]] = {}
    found: dict[UOp, UOp] = {}
    for node in reversed(path):
        if node.op in _MULTIPLE:
            if node not in by_result:
                continue
            results = by_result.pop(node)
            with labelled(_backward_label(node)):
                gradients: Gradients = call_gradient({i: add_all(g) for i, g in results.items()}, node)
        else:
            contributions = pending.pop(node, None)
            if not contributions:
                continue
            ctx = add_all(joined_slices(contributions))
            if node in wanted:
                found[node] = ctx
            if node.op is Ops.GETTUPLE and node.src[0].op in _MULTIPLE:
                by_result.setdefault(node.src[0], {}).setdefault(node.arg, []).append(ctx)
                continue
            with labelled(_backward_label(node)):
                gradients = _apply_rule(node, ctx, on_path)
        for source, gradient in zip(node.src, gradients, strict=False):
            if gradient is None or source not in on_path:
                continue
            if source.op is Ops.CALL:  # written storage after a custom kernel
                written = next((i for i, a in enumerate(source.src[1:]) if a.base is node.src[0].base), 0)
                shaped = gradient.reshape(source.src[1 + written].shape)
                by_result.setdefault(source, {}).setdefault(written, []).append(shaped)
            else:
                pending.setdefault(source, []).append(_align(gradient, source))
    return found


def _backward_label(node: UOp) -> Metadata | None:
    made_by = node.metadata
    return Metadata(made_by[0].name, backward=True) if made_by else None


def _apply_rule(node: UOp, ctx: UOp, on_path: set[UOp]) -> Gradients:
    found: Any = pm_gradient.rewrite(node, ctx=ctx)
    if found is None:
        if not any(s in on_path for s in _differentiable_sources(node)):
            return ()
        raise RuntimeError(f"failed to compute gradient for {node.op.name}: there is no rule for it")
    gradients: Gradients = found
    return gradients


def _align(gradient: UOp, source: UOp) -> UOp:
    """Bring a gradient to the shape, dtype and placement of its source.

    It is summed over the axes along which the source was broadcast.
    """
    if source.op is Ops.STORE:
        return gradient
    shape = source.shape
    if gradient.shape != shape:
        extra = gradient.ndim - len(shape)
        if extra >= 0:
            axes = (
                *range(extra),
                *(
                    i + extra
                    for i, s in enumerate(shape)
                    if type(s) is int and s == 1 and not same_size(gradient.shape[i + extra], 1)
                ),
            )  # fmt: skip
            if axes:
                gradient = gradient.sum(axes, keepdim=True)
            gradient = gradient.reshape(gradient.shape[extra:])
        gradient = gradient._broadcast_to(shape)
    if isinstance(source.device, tuple):
        from tinygrad.uop.sharding import place_like

        gradient = place_like(gradient, source)
    return gradient.cast(source.dtype)
