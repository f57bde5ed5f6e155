"""Random numbers: counter-based Threefry-2x32-20, the same numbers on every device.

In:   shapes, dtypes, and a key for each call (``random_state``).
Out:  tensors whose numbers are fixed at the moment they are made, whatever is computed first.
Why:  numbers that are a function of a key and their position need no order: every kernel makes those that it uses.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Self

from tinygrad.dtype import DType, DTypeLike, dtypes, to_dtype, truncate
from tinygrad.errors import ShapeError, error_text, shown
from tinygrad.helpers import argfix, ceildiv, prod
from tinygrad.mixin.hooks import exceeds, largest_shape, size_arg
from tinygrad.mixin.op import OpMixin
from tinygrad.mixin.random_state import current_seed, set_seed, state_of

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

# One block makes two words from a 32-bit counter, so a request is cut into chunks of at most this many words.
MAX_WORDS = 2**32 - 1
MOST_NUMBERS = 2**40  # more than memories hold; a request is refused before its counter is taken
_LONGEST_WAIT = 3e38  # finite in float32
_UINTS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def _joined(words: UOp) -> UOp:
    """Return two uint32 words (low, high) as one uint64 of shape (1,)."""
    low, high = (words.shrink([(i, i + 1)]).cast(dtypes.uint64) for i in (0, 1))
    return low | (high << 32)


def _words(key: UOp, count: int) -> UOp:
    """Return ``count`` words under a key of shape (1,): block i makes word i of each half."""
    from tinygrad.uop.ops import UOp

    half = ceildiv(count, 2)
    position = UOp.arange(count, dtype=dtypes.uint64)
    is_low = position < half
    # A word chooses its block and then its half of it: joining two halves would encrypt two blocks for every word.
    index = is_low.where(position, position - half)
    block = (index | ((index + half) << 32)).threefry(key._broadcast_to((count,)))
    words: UOp = is_low.where(block.cast(dtypes.uint32), (block >> 32).cast(dtypes.uint32))
    return words


def _unit_floats(bits: UOp, dtype: DType) -> UOp:
    """Return random bits as floats in [0, 1): the top bits become the mantissa of a number in [1, 2)."""
    _, mantissa = dtypes.finfo(dtype)
    width = dtype.itemsize * 8
    word = _UINTS[dtype.itemsize]
    bias = (1 << (width - 2 - mantissa)) - (0 if dtype in dtypes.fp8_fnuz else 1)
    top: UOp = (bits >> (width - mantissa)) | bits.const_like(bias << mantissa, word)
    return top.bitcast(dtype) - 1


def _scaled_words(words: UOp, span: int) -> UOp:
    """Return random words of shape (3, n) as n uint64 integers in [0, span), for a span of at most 2 ** 64.

    Three words w are a fraction of 96 bits, and the result is floor(w * span / 2 ** 96): the likelihoods of two values
    differ by a factor of 1 + 2 ** -32 at most. It is found word by word from the lowest, so that 64 bits hold each sum.
    """
    high, low = divmod(span, 2**32)
    made = words.const_like(0, dtypes.uint64).shrink([(0, 1), None])
    for i in range(3):
        word = words.shrink([(i, i + 1), None]).cast(dtypes.uint64)
        carry = ((made & (2**32 - 1)) + word * word.const_like(low)) >> 32
        made = word * word.const_like(high) + (made >> 32) + carry
    return made


def _one_device(name: str, device: Any) -> str:
    from tinygrad.device import canonicalize_device

    if isinstance(device, (tuple, list)) and len(device) != 1:
        raise ValueError(
            error_text(name, f"devices {device}", rule="one device", hint="make it on one and .shard() it")
        )
    where: str = canonicalize_device(device)
    return where


def _checked_shape(name: str, shape: tuple[Any, ...]) -> tuple[int, ...]:
    sizes = argfix(*shape) if shape else ()
    sizes = tuple(size_arg(s, sizes, name) for s in sizes)
    if not all(isinstance(s, int) and s >= 0 for s in sizes):
        hint = None
        if all(s >= 0 if isinstance(s, int) else s.vmin >= 0 for s in sizes if s is not None):
            hint = "draw for the largest sizes, and cut: Tensor.rand(8, 4).shrink_to(v, 4)"
        raise ShapeError(error_text(name, f"shape {shown(sizes)}", rule="sizes are ints >= 0", hint=hint))
    if prod(sizes) > MOST_NUMBERS:
        raise MemoryError(error_text(name, f"shape {sizes} has {prod(sizes)} numbers", rule=f"at most {MOST_NUMBERS}"))
    return sizes


def _is_wide(low: float, high: float, dtype: DType) -> bool:
    """Return whether the dtype holds the bounds but not their difference."""
    if dtypes.is_int(dtype):
        # Floats become integers of 8 and 16 bits by way of int32.
        return dtype.itemsize >= 4 and high - low > dtype.max + 1 and high - low <= 2 ** (8 * dtype.itemsize)
    if not dtypes.is_float(dtype):
        return False
    held, span = truncate[dtype], float(high) - float(low)
    if dtype in dtypes.fp8s:
        largest: float = held(math.ldexp(1.0, 100))  # conversion saturates
        return span > largest
    return math.isfinite(held(low)) and math.isfinite(held(high)) and not math.isfinite(held(span))


class RandMixin(OpMixin):
    """Random creation; last class of the mixin chain."""

    __slots__ = ()

    @staticmethod
    def manual_seed(seed: int = 0) -> None:
        """Set the seed and forget the counters of all devices. Without it the seed is the start time.

        Raises:
            TypeError: The seed is no integer.

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.randint(5).tolist()
            [3, 0, 1, 1, 5]
        """
        set_seed(operator.index(seed))

    @staticmethod
    def _current_seed() -> int:
        """Return the seed of the running generator."""
        return current_seed()

    @classmethod
    def random_bits(cls, key: Self, counter: Self, num: int) -> Self:
        """Return ``num`` uint32 words for an explicit key and counter.

        Args:
            key: Two uint32 words.
            counter: Two uint32 words (low, high), advanced by the chunks of a request above 2**32 - 1 words.
            num: Number of words.

        Example:
            >>> key, counter = Tensor([1, 2], dtype="uint32"), Tensor([0, 0], dtype="uint32")
            >>> Tensor.random_bits(key, counter, 3).tolist()
            [2804340251, 2492954182, 2733399006]
        """
        parts, at = [], _joined(counter._uop)
        for start in range(0, max(num, 1), MAX_WORDS):
            parts.append(_words((at + start).threefry(_joined(key._uop)), min(num - start, MAX_WORDS)))
        return key._wrap_uop(parts[0].cat(*parts[1:]) if len(parts) > 1 else parts[0])

    @classmethod
    def _fresh_bits(cls, words: int, device: str) -> Self:
        """Return uint32 words that no other call on this device gets."""
        if not hasattr(cls, "realize"):
            raise NotImplementedError("rand: a node has no random state; use random_bits with a key and a counter")
        state, left = state_of(device), words
        parts: list[UOp] = []
        while left > 0 or not parts:
            count = min(left, MAX_WORDS)
            parts.append(_words(state.draw(count).uop, count))
            left -= count
        node = parts[0].cat(*parts[1:]) if len(parts) > 1 else parts[0]
        return cls._wrap_uop(node)

    @classmethod
    def rand(
        cls,
        *shape: Any,
        device: Any = None,
        dtype: DTypeLike | None = None,
        contiguous: bool = True,
        requires_grad: bool | None = None,
    ) -> Self:
        """Return uniform numbers in [0, 1), multiples of 2 ** -m for a dtype with m bits of mantissa.

        They are rounded down to that grid, so their mean is 0.5 - 2 ** -(m + 1): in fp8, where the grid is coarse,
        0.4375 (e4m3) and 0.375 (e5m2). Draw in float32 and cast where that matters.

        A process that was forked goes on with the state of its parent, so both draw the same numbers, as with numpy and
        torch: call ``manual_seed`` in the child, with a seed of its own.

        Args:
            *shape: Sizes, separate or as one tuple.
            device: Device name; the default device if None.
            dtype: A float dtype; the default float if None.
            contiguous: Whether the numbers get storage of their own, instead of being computed wherever they are read.
            requires_grad: Accepted for older programs; sets ``is_param``.

        Raises:
            ValueError: A size is negative or symbolic, the dtype is no stored float, or several devices are given.

        Example:
            >>> Tensor.manual_seed(0)
            >>> Tensor.rand(2, 2).shape
            (2, 2)
        """
        sizes = _checked_shape("rand", shape)
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        if not dtypes.is_float(kind) or kind in dtypes.weaks:
            raise ValueError(error_text("rand", f"dtype {kind}", rule="a float dtype", hint="randint makes integers"))
        where = _one_device("rand", device)
        count = prod(sizes)
        bits = cls._fresh_bits(ceildiv(count * kind.itemsize, 4), where)._uop
        if kind.itemsize != 4:
            bits = bits.bitcast(_UINTS[kind.itemsize]).shrink_to(count)
        made = cls._wrap_uop(_unit_floats(bits, kind).reshape(sizes))
        return (made.contiguous() if contiguous else made)._set_param_flag(requires_grad)

    def rand_like(self, **kwargs: Any) -> Self:
        """Return ``rand`` of this shape, dtype and device; sharded like ``self``.

        Of symbolic sizes it draws for the largest, and cuts.

        Raises:
            ValueError: The dtype is no float.
            RuntimeError: ``device`` is given for a tensor on several devices.

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.zeros(3).rand_like().numpy()
            array([0.5334207 , 0.67015517, 0.7630789 ], dtype=float32)
        """
        return self._random_like(type(self).rand, **kwargs)

    def _rand_beside(self, *shape: Any) -> Self:
        """Return float32 ``rand`` where self is; the same numbers on each of several devices."""
        device = self.device
        first = device[0] if isinstance(device, tuple) else device
        made = type(self).rand(*largest_shape(shape), device=first, dtype=dtypes.float32).shrink_to(shape)
        return made._wrap_uop(made._uop.shard(device)) if isinstance(device, tuple) else made

    def _random_like(self, make: Any, **kwargs: Any) -> Self:
        dtype = kwargs.pop("dtype", None) or self.dtype
        if isinstance(self.device, tuple):
            if kwargs.get("device") is not None:
                raise RuntimeError(
                    error_text("rand_like", "device cannot be given for a tensor on several devices", {"tensor": self})
                )
            kwargs.pop("device", None)
            whole = make(*largest_shape(self.shape), dtype=dtype, device=self.device[0], **kwargs)
            sharded: Self = whole.shard(self.device, getattr(self._uop, "axis", None))
            return sharded.shrink_to(self.shape)
        device = kwargs.pop("device", None) or self.device
        made: Self = make(*largest_shape(self.shape), dtype=dtype, device=device, **kwargs)
        return made.shrink_to(self.shape)

    @classmethod
    def randn(
        cls, *shape: Any, dtype: DTypeLike | None = None, requires_grad: bool | None = None, **kwargs: Any
    ) -> Self:
        """Return normal numbers of mean 0 and variance 1, by Box-Muller on float32 uniforms; always finite.

        Args:
            *shape: Sizes, separate or as one tuple.
            dtype: Of the result; the default float if None.
            requires_grad: Accepted for older programs; sets ``is_param``.
            **kwargs: ``device``, ``contiguous`` as for ``rand``.

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.randn(3).numpy()
            array([-0.36704475,  1.1842942 ,  0.73243177], dtype=float32)

        Source: Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958.
        """
        sizes = _checked_shape("randn", shape)
        uniform = cls.rand(2, *sizes, dtype=dtypes.float32, **kwargs)
        angle, radius = (uniform.shrink([(i, i + 1), *[None] * len(sizes)]).reshape(sizes) for i in (0, 1))
        # 1 - u lies in (0, 1], so the logarithm is finite.
        normal = (angle * (2 * math.pi)).cos() * ((1 - radius).log() * -2).sqrt()
        return normal.cast(dtypes.default_float if dtype is None else to_dtype(dtype))._set_param_flag(requires_grad)

    def randn_like(self, dtype: DTypeLike | None = None, **kwargs: Any) -> Self:
        """Return ``randn`` of this shape, dtype and device.

        Raises:
            ValueError: The dtype is weak and none is given.

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.zeros(3).randn_like().numpy()
            array([-0.36704475,  1.1842942 ,  0.73243177], dtype=float32)
        """
        if dtype is None and self.dtype in dtypes.weaks:
            raise ValueError(
                error_text("randn_like", f"dtype {self.dtype} is weak", {"tensor": self}, hint="give dtype=")
            )
        return self._random_like(type(self).randn, dtype=dtype, **kwargs)

    @classmethod
    def randint(cls, *shape: Any, low: int = 0, high: int = 10, dtype: DTypeLike = dtypes.int32, **kwargs: Any) -> Self:
        """Return integers in [low, high).

        Args:
            *shape: Sizes, separate or as one tuple.
            low: Smallest value.
            high: One more than the largest value.
            dtype: An integer dtype.
            **kwargs: As for ``rand``.

        Raises:
            TypeError: Bounds or dtype are no integers.
            ValueError: ``low >= high``, or the dtype does not hold all of [low, high).

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.randint(5, low=0, high=10).tolist()
            [3, 0, 1, 1, 5]
        """
        kind = to_dtype(dtype)
        if not all(isinstance(bound, int) for bound in (low, high)):
            raise TypeError(f"randint: bounds must be ints, got low={low!r} and high={high!r}")
        if not dtypes.is_int(kind):
            raise TypeError(f"randint: dtype must be an integer dtype, got {kind}")
        if low < high and (low < kind.min or high - 1 > kind.max):
            found = f"values from {low} to {high - 1} do not fit {kind}"
            rule = f"{kind.min} <= low and high <= {kind.max + 1}"
            raise ValueError(error_text("randint", found, rule=rule, hint="give a wider dtype="))
        return cls.uniform(*shape, low=low, high=high, dtype=kind, **kwargs)

    @classmethod
    def _wide_integers(cls, sizes: tuple[int, ...], low: int, span: int, dtype: DType, device: Any) -> Self:
        """Return integers in [low, low + span), for spans that floats cast to the dtype cannot reach."""
        count = prod(sizes)
        words = cls._fresh_bits(3 * count, _one_device("randint", device))._uop.reshape((3, count))
        steps = _scaled_words(words, span)
        # Unsigned integers wrap, so that low + step comes out right for a negative low.
        return cls._wrap_uop((steps + steps.const_like(low % 2**64)).cast(dtype).reshape(sizes))

    @classmethod
    def normal(cls, *shape: Any, mean: float = 0.0, std: float = 1.0, **kwargs: Any) -> Self:
        """Return ``mean + std * randn``.

        Raises:
            ValueError: ``std`` is negative.

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.normal(3, mean=10.0, std=0.5).numpy()
            array([ 9.816478, 10.592147, 10.366216], dtype=float32)
        """
        if std < 0:
            raise ValueError(f"normal: std={std} is negative")
        flag = kwargs.pop("requires_grad", None)
        return (cls.randn(*shape, **kwargs) * std + mean)._set_param_flag(flag)

    @classmethod
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DTypeLike | None = None,
        contiguous: bool = True,
        requires_grad: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return uniform numbers in [low, high), cast to any dtype; other arguments as for ``rand``.

        Raises:
            ValueError: ``low >= high``, or a bad shape.

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.uniform(3, low=-1.0, high=1.0).numpy()
            array([0.06684136, 0.34031034, 0.52615786], dtype=float32)
        """
        if low >= high:
            raise ValueError(f"uniform: low={low} must be below high={high}")
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        is_wide = _is_wide(low, high, kind)
        # What gets storage is the result, not the numbers in [0, 1) that it is made of.
        if is_wide and dtypes.is_int(kind) and isinstance(low, int) and isinstance(high, int):
            sizes = _checked_shape("uniform", shape)
            made = cls._wide_integers(sizes, low, high - low, kind, kwargs.pop("device", None), **kwargs)
        else:
            base = cls.rand(*shape, dtype=kind if dtypes.is_float(kind) else None, contiguous=False, **kwargs)
            if is_wide:
                made = (base * high + (1 - base) * low).cast(kind)
            elif dtypes.is_int(kind):
                made = ((base * (high - low)).cast(kind) + low).cast(kind)
            else:
                made = (base * (high - low) + low).cast(kind)
        return (made.contiguous() if contiguous else made)._set_param_flag(requires_grad)

    @classmethod
    def scaled_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Return uniform numbers in [-1, 1), divided by the root of their number.

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.scaled_uniform(2, 2).numpy()
            array([[ 0.03342068,  0.17015517],
                   [ 0.26307893, -0.06794477]], dtype=float32)
        """
        sizes = _checked_shape("scaled_uniform", shape)
        scale: float = max(prod(sizes), 1) ** -0.5
        return cls.uniform(*sizes, low=-1.0, high=1.0, **kwargs) * scale

    @classmethod
    def glorot_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Return uniform numbers with bound sqrt(6 / (dim 0 + product of the other dims)).

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.glorot_uniform(2, 2).numpy()
            array([[ 0.08186364,  0.41679335],
                   [ 0.6444092 , -0.16643   ]], dtype=float32)

        Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
        """
        sizes = _checked_shape("glorot_uniform", shape)
        bound = math.sqrt(6 / max(sizes[0] + prod(sizes[1:]), 1)) if sizes else math.sqrt(3)
        return cls.uniform(*sizes, low=-bound, high=bound, **kwargs)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
        """Return uniform numbers with bound sqrt(6 / ((1 + a**2) * fan in)).

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.kaiming_uniform(2, 2).numpy()
            array([[ 0.11576688,  0.5894054 ],
                   [ 0.9112865 , -0.23535585]], dtype=float32)

        Source: He et al., "Delving Deep into Rectifiers", 2015, arXiv:1502.01852.
        """
        sizes = _checked_shape("kaiming_uniform", shape)
        bound = math.sqrt(6 / ((1 + a**2) * max(prod(sizes[1:]), 1)))
        return cls.uniform(*sizes, low=-bound, high=bound, **kwargs)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
        """Return normal numbers with deviation sqrt(2 / ((1 + a**2) * fan in)); source as ``kaiming_uniform``.

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.kaiming_normal(2, 2).numpy()
            array([[0.622553  , 0.1705677 ],
                   [0.8296678 , 0.30672523]], dtype=float32)
        """
        sizes = _checked_shape("kaiming_normal", shape)
        return cls.normal(*sizes, mean=0.0, std=math.sqrt(2 / ((1 + a**2) * max(prod(sizes[1:]), 1))), **kwargs)

    @classmethod
    def randperm(cls, n: int, device: Any = None, dtype: DTypeLike = dtypes.int32, **kwargs: Any) -> Self:
        """Return the numbers 0 to n - 1 in random order.

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor.randperm(6).tolist()
            [1, 2, 3, 5, 0, 4]
        """
        return cls.rand(n, device=device, **kwargs).argsort().cast(to_dtype(dtype))

    def multinomial(self, num_samples: int = 1, replacement: bool = False) -> Self:
        """Return int32 indices drawn with probability proportional to ``self`` (1-d, or one distribution per row).

        An index of weight 0 is drawn only without replacement, after all others. A row of weights that are no
        distribution (one is negative, infinite or NaN, or all are 0) gives -1 throughout.

        Args:
            num_samples: Draws per row.
            replacement: Whether an index may be drawn again.

        Raises:
            AssertionError: Not 1-d or 2-d, ``num_samples`` not positive, or more draws than weights.
            ValueError: The weights are few and in memory, and those of a row are no distribution.

        Example:
            >>> Tensor.manual_seed(42)
            >>> Tensor([1.0, 0.0, 3.0]).multinomial(6, replacement=True).tolist()
            [2, 0, 0, 0, 2, 2]
        """
        fits = self.ndim in {1, 2} and num_samples > 0 and (replacement or not exceeds(num_samples, self.shape[-1]))
        if not fits:
            raise AssertionError(
                error_text(
                    "multinomial",
                    f"num_samples={num_samples}, replacement={replacement}",
                    {"weights": self},
                    rule="1 or 2 dims, num_samples > 0, and at most as many as weights without replacement",
                )
            )
        weight = self.cast(dtypes.float32).reshape(-1, self.shape[-1])
        self._check_weights()
        if replacement:
            total = weight.cumsum(1)
            end = total._slice_dim(1, weight.shape[1] - 1, weight.shape[1])
            mark = weight._rand_beside(weight.shape[0], num_samples) * end
            # The number of categories that end at or below the mark; rounding must not lead past the last one that has
            # a weight, which is where the sum reaches its end.
            last = (total < end).sum(-1, keepdim=True)
            index = (mark.unsqueeze(-1) < total.unsqueeze(1)).logical_not().sum(-1).minimum(last)
        else:
            # The smallest of exponential waiting times with these rates (Efraimidis and Spirakis, 2006).
            uniform = weight._rand_beside(*weight.shape)
            # A weight of 0 waits longer than any other; a uniform 0 would make 0 / 0 of it.
            wait = weight.eq(0).where(math.inf, ((1 - uniform).log() * -1 / weight).minimum(_LONGEST_WAIT))
            index = wait.topk(num_samples, 1, largest=False)[1]
        is_valid = ((weight >= 0) & (weight < math.inf)).all(1, keepdim=True) & (weight > 0).any(1, keepdim=True)
        index = is_valid.where(index, -1)
        return index.cast(dtypes.int32).reshape((*self.shape[:-1], num_samples))

    def _check_weights(self) -> None:
        """Raise if the weights are few and in memory, and those of a row are no distribution."""
        known = self._few_values_in_memory() if hasattr(self, "_few_values_in_memory") else None
        if not known:
            return
        width = self.shape[-1]
        for start in range(0, len(known), width):
            row = [float(value) for value in known[start : start + width]]
            if not all(0 <= value < math.inf for value in row) or not any(row):
                raise ValueError(
                    error_text("multinomial", f"weights {shown(tuple(row))} are no distribution", {"weights": self},
                               rule="finite weights of at least 0, one of them above")
                )  # fmt: skip
