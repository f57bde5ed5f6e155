"""Convolutions and their gradients, over any number of spatial dims.

In:   x (N, G*Cin, *spatial), weight (G*Cout, Cin, *kernel), stride, dilation, padding, groups.
Out:  y (N, G*Cout, *out) with
      y[n, g, co, o] = sum over ci, k of  x[n, g, ci, o*stride + k*dilation - pad] * w[g, co, ci, k].
Why:  a convolution is linear in each operand, so both gradients are contractions of the same kind: towards x a
      convolution of the spread and padded output gradient with the flipped, transposed weight, or, where a stride would
      spread it by many zeros, one for each position modulo the stride; towards w a contraction over (n, o). Stated as
      FUNCTION nodes, no gradient ever scatters overlapping windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from tinygrad.dtype import DType, DTypeLike, dtypes, least_upper_dtype, strong_dtype, to_dtype
from tinygrad.errors import ArgumentError, error_text, shown
from tinygrad.helpers import ceildiv, flat_to_grouped, make_tuple, prod, resolve_pool_pads
from tinygrad.mixin.composite import CompositeShapeError, composite, contract, contraction_dtypes, sizes_differ
from tinygrad.mixin.hooks import exceeds, same_size
from tinygrad.mixin.reduce import ReduceMixin
from tinygrad.record import record, replace

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

Pair = tuple[int, int]
Sizes = tuple[Any, ...]

IDLE_TAPS = 0.08  # share of taps outside of the input, along one dim, from which on they are left out


@record(frozen=True)
class ConvSpec:
    """A convolution without its operands.

    Args:
        groups: Independent parts that the channels are cut into.
        stride: Step of the window per spatial dim.
        dilation: Distance between the taps of the kernel per spatial dim.
        padding: (before, after) per spatial dim, first dim first; negative amounts crop.
        accumulator: Dtype of products and sums.
    """

    groups: int
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[Pair, ...]
    accumulator: DType

    @property
    def dims(self) -> int:
        """Number of spatial dims."""
        return len(self.stride)

    @property
    def plain(self) -> ConvSpec:
        """The same taps with stride 1."""
        return replace(self, stride=(1,) * self.dims)


def _has_idle_taps(size: Any, k: Any, dilation: int, padding: Pair) -> bool:
    """Whether so many taps along one dim lie outside of the input that leaving them out pays."""
    before, after = padding
    if not all(isinstance(n, int) for n in (size, k, before, after)) or min(before, after) < 0:
        return False
    taps = k * max(1, size + before + after - dilation * (k - 1))
    used = sum(
        max(0, min(size, size + after - dilation * (k - 1 - t)) - max(0, dilation * t - before)) for t in range(k)
    )
    return bool(used < (1 - IDLE_TAPS) * taps)


def _padded(x: UOp, kernel: Sizes, spec: ConvSpec) -> UOp:
    """Return x with its zeros around; those that only idle taps read are a padding of their own, outside of the others.

    The loop over such taps is cut to those inside, so that these zeros are never in memory (``opt/trim.py``). Along the
    last dim, iterations are lanes or copies, which have all taps in common.
    """
    outside = [
        padding if n + 1 < spec.dims and spec.stride[n] == 1 and _has_idle_taps(size, k, dilation, padding) else (0, 0)
        for n, (size, k, dilation, padding) in enumerate(
            zip(x.shape[2:], kernel, spec.dilation, spec.padding, strict=True)
        )
    ]
    rest = [(0, 0) if mine != (0, 0) else padding for mine, padding in zip(outside, spec.padding, strict=True)]
    return x.pad(((0, 0), (0, 0), *rest)).pad(((0, 0), (0, 0), *outside))


def _windows(padded: UOp, kernel: Sizes, spec: ConvSpec) -> UOp:
    """Return the padded x (N, C, *spatial) cut into windows (N, C, *out, *kernel)."""
    if all(k == 1 for k in kernel) and all(s == 1 for s in spec.stride):
        return padded.reshape((*padded.shape, *kernel))
    return padded._pool(kernel, spec.stride, spec.dilation)


def _conv_body(x: UOp, w: UOp, spec: ConvSpec) -> UOp:
    G, dims = spec.groups, spec.dims
    kernel, cin, cout = w.shape[2:], w.shape[1], w.shape[0] // G
    windows = _windows(_padded(x, kernel, spec), kernel, spec)
    batch, out = windows.shape[0], windows.shape[2 : 2 + dims]
    spatial, taps = tuple(range(4, 4 + dims)), tuple(range(4 + dims, 4 + 2 * dims))
    # (N, G, 1, *out, Cin, *kernel) * (1, G, Cout, 1.., Cin, *kernel)
    left = windows.reshape(batch, G, 1, cin, *out, *kernel).permute(0, 1, 2, *spatial, 3, *taps)
    right = w.reshape(1, G, cout, *(1,) * dims, cin, *kernel)
    return contract(left, right, 1 + dims, spec.accumulator).reshape(batch, G * cout, *out).cast(x.dtype)


def _weight_gradient_body(x: UOp, grad: UOp, spec: ConvSpec, kernel: Sizes) -> UOp:
    G, dims = spec.groups, spec.dims
    windows = _windows(x.pad(((0, 0), (0, 0), *spec.padding)), kernel, spec)
    batch, out = windows.shape[0], windows.shape[2 : 2 + dims]
    cin, cout = x.shape[1] // G, grad.shape[1] // G
    spatial, taps = tuple(range(4, 4 + dims)), tuple(range(4 + dims, 4 + 2 * dims))
    # (G, 1, Cin, *kernel, N, *out) * (G, Cout, 1, 1.., N, *out)
    left = windows.reshape(batch, G, 1, cin, *out, *kernel).permute(1, 2, 3, *taps, 0, *spatial)
    right = grad.reshape(batch, G, cout, 1, *(1,) * dims, *out).permute(1, 2, 3, *spatial, 0, *taps)
    return contract(left, right, 1 + dims, spec.accumulator).reshape(G * cout, cin, *kernel).cast(x.dtype)


def convolve(x: UOp, w: UOp, spec: ConvSpec) -> UOp:
    """Return the convolution of x with w; both of the result's dtype."""
    return composite(lambda a, b: _conv_body(a, b, spec), (x, w), ConvGradient(spec, x.shape[2:], w.shape[2:]), "conv")


def convolve_weight_gradient(x: UOp, grad: UOp, spec: ConvSpec, kernel: Sizes) -> UOp:
    """Return the gradient of the weight: x correlated with the gradient of the output."""
    gradient = WeightGradientGradient(spec, x.shape[2:], kernel)
    return composite(
        lambda a, b: _weight_gradient_body(a, b, spec, kernel), (x, grad), gradient, "conv_weight_gradient"
    )


def flip_weight(w: UOp, groups: int) -> UOp:
    """Return the weight (G*Cout, Cin, *kernel) as that of the transpose: (G*Cin, Cout, *kernel), flipped."""
    cout, cin, kernel = w.shape[0] // groups, w.shape[1], w.shape[2:]
    swapped = w.reshape(groups, cout, cin, *kernel).permute(0, 2, 1, *range(3, 3 + len(kernel)))
    return swapped.reshape(groups * cin, cout, *kernel).flip(tuple(range(2, 2 + len(kernel))))


def spread(x: UOp, stride: tuple[int, ...]) -> UOp:
    """Insert stride - 1 zeros between neighbours of each spatial dim: size n becomes (n - 1)*stride + 1."""
    if all(s == 1 for s in stride):
        return x
    lead, sizes = x.shape[:2], x.shape[2:]
    apart = x.reshape((*lead, *(part for n in sizes for part in (n, 1))))
    gaps = apart.pad(((0, 0), (0, 0), *(amount for s in stride for amount in ((0, 0), (0, s - 1)))))
    joined = gaps.reshape((*lead, *(n * s for n, s in zip(sizes, stride, strict=True))))
    # Without the zeros behind the last element; a size of 0 has none.
    return joined.shrink_to((*lead, *(max(n * s - s + 1, 0) for n, s in zip(sizes, stride, strict=True))))


def convolve_input_gradient(grad: UOp, w: UOp, spec: ConvSpec, size: Sizes) -> UOp:
    """Return the gradient of the input, of spatial ``size``: the spread gradient convolved with the flipped weight."""
    if _has_phases(grad, w, spec, size):
        return _input_gradient_by_phases(grad, w, spec, size)
    apart = spread(grad, spec.stride)
    padding: list[Any] = []
    for n, there, k, d, (before, _) in zip(
        size, apart.shape[2:], w.shape[2:], spec.dilation, spec.padding, strict=True
    ):
        reach = d * (k - 1)
        padding.append((reach - before, n + before - there))
    return convolve(apart, flip_weight(w, spec.groups), replace(spec.plain, padding=tuple(padding)))


def _has_phases(grad: UOp, w: UOp, spec: ConvSpec, size: Sizes) -> bool:
    """Whether most products of the spread gradient would be with its zeros, and phases without them are possible."""
    numbers = (*size, *grad.shape[2:], *w.shape[2:], *(n for pair in spec.padding for n in pair))
    if not all(isinstance(n, int) for n in numbers) or 0 in numbers[: 2 * spec.dims] or set(spec.dilation) != {1}:
        return False
    if same_size(w.shape[0], spec.groups):
        return False  # depthwise: as slow as memory, which phases write with gaps
    taps = prod(w.shape[2:])
    return bool(taps >= 2 * prod(tuple(ceildiv(k, s) for k, s in zip(w.shape[2:], spec.stride, strict=True))))


def _input_gradient_by_phases(grad: UOp, w: UOp, spec: ConvSpec, size: Sizes) -> UOp:
    """Return the gradient of the input, position by position modulo the stride.

    Where the input's position is s*q + r, taps s*u + r meet the gradients q - u: a convolution with every s-th tap, of
    which there are s, as channels beside each other.
    """
    dims, G, stride = spec.dims, spec.groups, spec.stride
    cout, cin = w.shape[0] // G, w.shape[1]
    taps = tuple(ceildiv(k, s) for k, s in zip(w.shape[2:], stride, strict=True))
    filled = w.pad(((0, 0), (0, 0), *((0, u * s - k) for u, s, k in zip(taps, stride, w.shape[2:], strict=True))))
    parts = filled.reshape(G, cout, cin, *(n for pair in zip(taps, stride, strict=True) for n in pair))
    us, rs = tuple(range(3, 3 + 2 * dims, 2)), tuple(range(4, 4 + 2 * dims, 2))
    phases = parts.flip(us).permute(0, 2, *rs, 1, *us).reshape(G * cin * prod(stride), cout, *taps)
    firsts, padding = [], []
    for n, m, u, s, (before, _) in zip(grad.shape[2:], size, taps, stride, spec.padding, strict=True):
        first, end = before // s, ceildiv(before + m, s)
        firsts.append(before - first * s)
        padding.append((u - 1 - first, end - n))
    y = convolve(grad, phases, replace(spec.plain, padding=tuple(padding)))
    counts = y.shape[2:]
    beside = y.reshape(y.shape[0], G * cin, *stride, *counts)
    order = (axis for i in range(dims) for axis in (2 + dims + i, 2 + i))
    joined = beside.permute(0, 1, *order).reshape(
        y.shape[0], G * cin, *(n * s for n, s in zip(counts, stride, strict=True))
    )
    return joined.shrink((None, None, *((i, i + m) for i, m in zip(firsts, size, strict=True))))


@record(frozen=True)
class ConvGradient:
    """Gradient function of ``convolve``."""

    spec: ConvSpec
    size: Sizes
    kernel: Sizes

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, UOp]:
        """Return the gradients of input and weight."""
        x, w = call.src[1:]
        return (
            convolve_input_gradient(grad, w, self.spec, self.size),
            convolve_weight_gradient(x, grad, self.spec, self.kernel),
        )


@record(frozen=True)
class WeightGradientGradient:
    """Gradient function of ``convolve_weight_gradient``, which is linear in both operands too."""

    spec: ConvSpec
    size: Sizes
    kernel: Sizes

    def __call__(self, grad: UOp, call: UOp) -> tuple[UOp, UOp]:
        """Return the gradients of the input and of the output gradient; ``grad`` has the shape of the weight."""
        x, y_grad = call.src[1:]
        return convolve_input_gradient(y_grad, grad, self.spec, self.size), convolve(x, grad, self.spec)


def pads_of(padding: int | Sequence[int], dims: int) -> tuple[Pair, ...]:
    """Return (before, after) per spatial dim, first dim first, from any of the accepted forms."""
    numbers = padding if isinstance(padding, (list, tuple)) else (padding,)
    if not all(isinstance(n, int) for n in numbers):
        raise ArgumentError(error_text("padding", f"padding is {shown(padding)}", rule="an int or a tuple of ints"))
    return tuple((int(before), int(after)) for before, after in flat_to_grouped(resolve_pool_pads(padding, dims)))


def named_padding(
    op: str, padding: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """Return the padding that a name stands for, as flat (before, after) pairs, last dim first.

    Raises:
        ValueError: Another name, or "same" with a stride.
    """
    match padding.lower():
        case "valid":
            return (0,) * (2 * len(kernel))
        case "same":
            if any(step != 1 for step in stride):
                raise ValueError(
                    f'{op}: padding="same" needs stride 1, not {stride}: with a stride the output is smaller than the '
                    "input, so give the padding in numbers"
                )
            missing = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
            return tuple(amount for total in reversed(missing) for amount in (total // 2, total - total // 2))
    raise ValueError(f'{op}: padding must be numbers, "same" or "valid", not {padding!r}')


class ConvMixin(ReduceMixin):
    """Convolutions of Tensor and UOp."""

    __slots__ = ()

    def _conv_operands(self, weight: Self, dtype: DTypeLike | None) -> tuple[UOp, UOp, DType, DType]:
        common = least_upper_dtype(self.dtype, weight.dtype)
        accumulator, result = contraction_dtypes(common, None if dtype is None else to_dtype(dtype))
        stored = strong_dtype(common)
        if dtypes.is_int(result) or (dtype is not None and result.itemsize > stored.itemsize):
            stored = accumulator  # the sum must not be cut to a narrower dtype before the caller sees it
        return self._uop.cast(stored), weight._uop.cast(stored), accumulator, result

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Convolve over all dims after the second one (cross-correlation, as in torch), whatever their number.

        Args:
            weight: Shape (Cout, Cin // groups, *kernel).
            bias: Shape (Cout,), added to every position, or None.
            groups: Independent parts that the channels are cut into.
            stride: Step of the window, one number or one per spatial dim.
            dilation: Distance between the taps of the kernel, one number or one per spatial dim.
            padding: Zeros around the input: one number, one per spatial dim, or flat (before, after) pairs, last dim
                first. Negative amounts crop. "valid" is none, "same" as many as keep the size, the odd one behind.
            dtype: Of accumulator and result; default: float32 sums for float16 and bfloat16, the operands' dtype out.

        Returns:
            Shape (N, Cout, *out) with out = (size + pads - dilation*(kernel - 1) - 1) // stride + 1.

        Raises:
            ShapeError: Channels, ranks or lengths do not fit, or the kernel is empty or larger than the padded input.
            ValueError: Another string as padding, or "same" with a stride.

        Example:
            >>> Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
            [[[[4.0, 4.0], [4.0, 4.0]]]]
        """
        dims = weight.ndim - 2
        channels, expected = (x.shape[1] if x.ndim > 1 else 1 for x in (self, weight))
        _check_conv("conv2d", self, weight, groups, channels, groups * expected)
        steps, apart = per_dim("conv2d", "stride", stride, dims), per_dim("conv2d", "dilation", dilation, dims)
        x, w, accumulator, result = self._conv_operands(weight, dtype)
        if isinstance(padding, str):
            padding = named_padding("conv2d", padding, weight.shape[2:], steps, apart)
        spec = ConvSpec(groups, steps, apart, pads_of(padding, dims), accumulator)
        _check_kernel_fits(self, weight, spec)
        return self._with_bias(self._wrap_uop(convolve(x, w, spec).cast(result)), bias)

    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
    ) -> Self:
        """Apply the transpose of a convolution: what ``conv2d`` with this weight does to gradients (as in torch).

        Args:
            weight: Shape (Cin, Cout // groups, *kernel).
            bias: Shape (Cout,), or None.
            groups: Independent parts that the channels are cut into.
            stride: Distance between the inputs in the output.
            dilation: Distance between the taps of the kernel.
            padding: Cropped from both sides of the output.
            output_padding: Added behind the output; less than ``stride`` or ``dilation``.

        Returns:
            Shape (N, Cout, *out) with out = (size - 1)*stride - pads + dilation*(kernel - 1) + output_padding + 1.

        Raises:
            ShapeError: Channels, ranks or lengths do not fit, the kernel is empty, or nothing is left of the output
                (unless the batch is empty).

        Example:
            >>> Tensor.ones(1, 1, 2).conv_transpose2d(Tensor.ones(1, 1, 2)).tolist()
            [[[1.0, 2.0, 1.0]]]
        """
        dims = weight.ndim - 2
        channels, expected = self.shape[1] if self.ndim > 1 else 1, weight.shape[0] if weight.ndim else 1
        _check_conv("conv_transpose2d", self, weight, groups, channels, expected)
        op = "conv_transpose2d"
        steps, apart = per_dim(op, "stride", stride, dims), per_dim(op, "dilation", dilation, dims)
        extra, pads = per_dim(op, "output_padding", output_padding, dims, least=0), pads_of(padding, dims)
        if any(more >= max(s, d) for more, s, d in zip(extra, steps, apart, strict=True)):
            fault = f"output_padding {extra} with stride {steps} and dilation {apart}"
            rule = "output_padding is smaller than the stride or the dilation"
            raise CompositeShapeError(error_text(op, fault, {"input": self, "weight": weight}, rule))
        x, w, accumulator, result = self._conv_operands(weight, None)
        spec = ConvSpec(groups, steps, apart, pads, accumulator)
        size = tuple(
            (n - 1) * s - before - after + d * (k - 1) + more + 1
            for n, s, (before, after), d, k, more in zip(
                self.shape[2:], steps, pads, apart, weight.shape[2:], extra, strict=True
            )
        )
        # Nothing is a result of a batch of nothing, and only of that: elsewhere it hides a wrong size.
        least = 0 if same_size(self.shape[0], 0) else 1
        if any(isinstance(n, int) and n < least for n in size):
            fault = f"an output of size {shown(size)}"
            rule = f"(size - 1)*stride - pads + dilation*(kernel - 1) + output_padding >= {least - 1}"
            raise CompositeShapeError(error_text(op, fault, {"input": self, "weight": weight}, rule,
                                                 "less padding, or a larger kernel or stride"))  # fmt: skip
        if 0 in size:
            y = self.cast(result).flatten().reshape((0, weight.shape[1] * groups, *size))
        else:
            y = self._wrap_uop(convolve_input_gradient(x, w, spec, size).cast(result))
        return self._with_bias(y, bias)

    def image_conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Convolve as ``conv2d`` does; there is one layout.

        Example:
            >>> Tensor.ones(1, 1, 3, 3).image_conv2d(Tensor.ones(1, 1, 3, 3)).tolist()
            [[[[9.0]]]]
        """
        return self.conv2d(weight, bias, groups, stride, dilation, padding, dtype)

    def _with_bias(self, y: Self, bias: Self | None) -> Self:
        return y if bias is None else y + bias.reshape(1, -1, *(1,) * (y.ndim - 2))


def per_dim(op: str, name: str, value: int | Sequence[int], dims: int, least: int = 1) -> tuple[int, ...]:
    """Return a number, or one number per spatial dim, as a tuple.

    Raises:
        ArgumentError: No ints.
        ShapeError: Another count, or a number below ``least``.
    """
    numbers = make_tuple(value, dims)
    if not all(isinstance(n, int) for n in numbers):
        raise ArgumentError(error_text(op, f"{name} is {shown(value)}", rule=f"{name} is an int or a tuple of ints"))
    if len(numbers) != dims or any(n < least for n in numbers):
        few = f"{name} {numbers} has {len(numbers)} numbers, the kernel {dims} dims"
        raise CompositeShapeError(
            error_text(
                op,
                few if len(numbers) != dims else f"{name} {numbers} has a number below {least}",
                rule=f"{name} is one number or one per spatial dim, at least {least}",
            )
        )
    return numbers


def _check_conv(op: str, x: Any, weight: Any, groups: int, channels: Any, expected: Any) -> None:
    if weight.ndim < 3 or x.ndim != weight.ndim:
        raise CompositeShapeError(
            error_text(
                op,
                f"input has {x.ndim} dims, weight {weight.ndim}",
                {"input": x, "weight": weight},
                rule="input.ndim == weight.ndim >= 3: (N, C, *spatial) and (out, in, *kernel)",
                hint="add a batch dim with .unsqueeze(0)",
            )
        )
    if sizes_differ(channels, expected):
        raise CompositeShapeError(
            error_text(
                op,
                f"input has {channels} channels, the weight expects {expected} (groups={groups})",
                {"input": x, "weight": weight},
                rule="input.shape[1] == groups * weight.shape[1]"
                if op == "conv2d"
                else "input.shape[1] == weight.shape[0]",
            )
        )
    if groups < 1 or weight.shape[0] % groups != 0:
        raise CompositeShapeError(
            error_text(
                op,
                f"{weight.shape[0]} rows of the weight do not divide into {groups} groups",
                {"input": x, "weight": weight},
                rule="weight.shape[0] % groups == 0",
            )
        )

    if 0 in weight.shape[2:]:
        raise CompositeShapeError(error_text(op, f"a kernel of size {shown(weight.shape[2:])}",
                                             {"input": x, "weight": weight}, "sizes of at least 1"))  # fmt: skip


def _check_kernel_fits(x: Any, weight: Any, spec: ConvSpec) -> None:
    for size, k, d, (before, after) in zip(x.shape[2:], weight.shape[2:], spec.dilation, spec.padding, strict=True):
        if exceeds(d * (k - 1) + 1, size + before + after):
            raise CompositeShapeError(
                error_text(
                    "conv2d",
                    f"kernel spans {d * (k - 1) + 1}, the padded input {shown(size + before + after)}",
                    {"input": x, "weight": weight},
                    rule="dilation*(kernel - 1) + 1 <= size + pads",
                    hint="pad the input, or take a smaller kernel or dilation",
                )
            )
