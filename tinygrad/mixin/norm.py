"""Normalisation, dropout and attention.

In:   tensors; statistics over named axes.
Out:  tensors of the same shape. Half precision inputs are normalised in float32 and cast back.
Why:  sums of squares leave the range of half precision, so the dtype of statistics is chosen here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.errors import DTypeError, ShapeError, error_text, shown
from tinygrad.helpers import TRAINING
from tinygrad.mixin.attention import attention, is_worth_blocks, share_heads
from tinygrad.mixin.hooks import same_size
from tinygrad.mixin.reduce import ReduceMixin

if TYPE_CHECKING:
    from tinygrad.dtype import DType


def _wide(dtype: DType) -> DType:
    """Return the dtype in which statistics of values of this dtype are computed."""
    if not dtypes.is_float(dtype) or dtype in dtypes.weaks:
        return dtypes.default_float
    return least_upper_dtype(dtype, dtypes.float32)


class NormMixin(ReduceMixin):
    """Normalisation, dropout and attention of Tensor and UOp."""

    __slots__ = ()

    if TYPE_CHECKING:  # from the mixins that build on this one

        def rand_like(self, **kwargs: Any) -> Self: ...  # noqa: D102
        def tril(self, diagonal: Any = 0) -> Self: ...  # noqa: D102

    def layernorm(self, axis: int | Sequence[int] = -1, eps: float = 1e-5) -> Self:
        """Shift and scale to mean 0 and variance 1 over ``axis``: (x - mean) / sqrt(var + eps), var without correction.

        Args:
            axis: One axis or several, over which mean and variance are taken.
            eps: Added to the variance.

        Example:
            >>> Tensor([1.0, 3.0]).layernorm(eps=0.0).tolist()
            [-1.0, 1.0]

        Source: Ba, Kiros and Hinton, "Layer Normalization", 2016, arXiv:1607.06450.
        """
        result = self.dtype if dtypes.is_float(self.dtype) and self.dtype not in dtypes.weaks else dtypes.default_float
        x = self.cast(_wide(self.dtype))
        centred = x - x.mean(axis=axis, keepdim=True)
        return (centred * (centred.square().mean(axis=axis, keepdim=True) + eps).rsqrt()).cast(result)

    def batchnorm(
        self, weight: Self | None, bias: Self | None, mean: Self, invstd: Self, axis: int | tuple[int, ...] = 1
    ) -> Self:
        """Return (x - mean) * invstd * weight + bias, the statistics laid along ``axis``.

        Args:
            weight: One scale per channel, or None.
            bias: One shift per channel, or None.
            mean: One value per channel.
            invstd: One value per channel (1/sqrt(var + eps)), or anything that broadcasts to x.
            axis: The channel axis, or several.

        Example:
            >>> x = Tensor([[1.0, 10.0], [3.0, 30.0]])
            >>> x.batchnorm(None, None, mean=Tensor([2.0, 20.0]), invstd=Tensor([1.0, 0.1])).tolist()
            [[-1.0, -1.0], [1.0, 1.0]]

        Source: Ioffe and Szegedy, "Batch Normalization", 2015, arXiv:1502.03167.
        """
        axes = tuple(self._resolve_dim(a, op="batchnorm") for a in (axis if isinstance(axis, tuple) else (axis,)))
        shape = tuple(n if i in axes else 1 for i, n in enumerate(self.shape))
        x = self - mean.reshape(shape)
        scale = invstd.reshape(shape) if invstd.ndim == len(axes) else invstd
        if weight is not None:
            scale = scale * weight.reshape(shape)
        x = x * scale
        return x if bias is None else x + bias.reshape(shape)

    def dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Zero each element with probability ``p`` and divide the others by 1 - p; identity unless training.

        Args:
            p: Probability of a zero.
            training: Whether anything is dropped; the setting TRAINING if None.

        Raises:
            ValueError: ``p`` is outside [0, 1].

        Example:
            >>> Tensor.manual_seed(0)
            >>> with Context(TRAINING=1):
            ...     print(Tensor.ones(6).dropout(0.5).tolist())
            [0.0, 2.0, 2.0, 2.0, 0.0, 0.0]
            >>> Tensor.ones(2).dropout(0.5).tolist()
            [1.0, 1.0]

        Source: Srivastava et al., "Dropout", 2014, jmlr.org/papers/v15/srivastava14a.html.
        """
        if not 0 <= p <= 1:
            raise ValueError(f"dropout: p={p} is not a probability; expected 0 <= p <= 1")
        if not (TRAINING if training is None else training) or p == 0:
            return self
        if p == 1:
            return self.const_like(False, dtypes.bool).where(self, 0).cast(self.dtype)
        kept = self._uniform_like(dtypes.float32) >= p
        return kept.where(self, 0).cast(self.dtype) * (1.0 / (1.0 - p))

    def _uniform_like(self, dtype: DType) -> Self:
        """Return fresh uniform numbers of this shape and device."""
        return self.rand_like(dtype=dtype)

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
        *,
        scale: float | None = None,
    ) -> Self:
        """Return softmax(q @ k.T / sqrt(d) + mask) @ v, with ``self`` as q.

        A row whose keys are all masked gives zeros, and zero gradients.

        Args:
            key: Shape (..., S, d), where ``self`` is (..., L, d).
            value: Shape (..., S, dv).
            attn_mask: Broadcast to (..., L, S): bool, True where a key counts; or numbers that are added to the scores.
            dropout_p: Probability with which an attention weight is dropped, in TRAINING.
            is_causal: Whether query i sees only the keys 0 to i.
            enable_gqa: Whether keys and values have fewer heads (dim -3), each shared by a group of query heads.
            scale: Factor of the scores in place of 1 / sqrt(d).

        Raises:
            RuntimeError: ``attn_mask`` together with ``is_causal``.
            DTypeError: ``attn_mask`` is an integer tensor.
            ShapeError: Shapes do not fit.

        Example:
            >>> q, k, v = Tensor.zeros(1, 2, 4), Tensor.zeros(1, 2, 4), Tensor([[[1.0], [3.0]]])
            >>> q.scaled_dot_product_attention(k, v).tolist()
            [[[2.0], [2.0]]]
            >>> q.scaled_dot_product_attention(k, v, is_causal=True).tolist()
            [[[1.0], [2.0]]]

        Source: Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762.
        """
        if attn_mask is not None and dtypes.is_int(attn_mask.dtype):
            found = f"attn_mask of dtype {attn_mask.dtype}"
            raise DTypeError(error_text("scaled_dot_product_attention", found, {"query": self, "attn_mask": attn_mask},
                                        "bool, True where a key counts, or floats that are added to the scores",
                                        "attn_mask != 0"))  # fmt: skip
        if is_causal and attn_mask is not None:
            raise RuntimeError(
                "scaled_dot_product_attention: is_causal and attn_mask exclude each other; give one mask"
            )
        if enable_gqa:
            _check_heads(key, value, heads=self.shape[-3])
            if same_size(key.shape[-3], 0) or not same_size(key.shape[-3], value.shape[-3]):
                key, value, enable_gqa = self._with_all_heads(key), self._with_all_heads(value), False
        if scale is not None:
            # The scores are linear in the query; what they are multiplied by below is taken out here.
            scaled: Self = self * (self._root_of(self.shape[-1]) * scale)
            return scaled.scaled_dot_product_attention(key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        if not (TRAINING and dropout_p):
            blocks = self._attention_in_blocks(key, value, attn_mask, is_causal, enable_gqa)
            if blocks is not None:
                return blocks
        if enable_gqa:
            key, value = self._with_all_heads(key), self._with_all_heads(value)
        wide = least_upper_dtype(self.dtype, key.dtype, dtypes.float32)
        scores: Self = self.matmul(key.transpose(-2, -1), dtype=wide) * (1.0 / self._root_of(self.shape[-1]))
        if is_causal:
            attn_mask = scores.const_like(True, dtypes.bool).tril()
        if attn_mask is not None and attn_mask.dtype == dtypes.bool:
            scores = attn_mask.where(scores, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask.cast(wide)
        largest = scores.max(axis=-1, keepdim=True).detach()
        # -inf - -inf is NaN: a fully masked row is shifted by 0, and its sum of 0 is divided as if it were 1.
        e = (scores - largest.eq(-math.inf).where(0.0, largest)).exp()
        total = e.sum(axis=-1, keepdim=True)
        weights = e / total.eq(0).where(1.0, total)
        return weights.cast(self.dtype).dropout(dropout_p).matmul(value).cast(self.dtype)

    def _with_all_heads(self, x: Self) -> Self:
        """Return keys or values with a head for each of the queries: each of theirs in a row for its group."""
        return x if same_size(x.shape[-3], 0) else x.repeat_interleave(self.shape[-3] // x.shape[-3], dim=-3)

    def _root_of(self, size: Any) -> Any:
        """Return the square root of a size, as a number where it is one; 1 of nothing, whose scores are 0."""
        return math.sqrt(size or 1) if isinstance(size, int) else self.ufix(size).cast(dtypes.float32).sqrt()

    def _attention_in_blocks(self, key: Any, value: Any, mask: Any, is_causal: bool, enable_gqa: bool) -> Self | None:
        """Return attention as the kernel that never stores the scores, or None where that has no use or no place."""
        wide = least_upper_dtype(self.dtype, key.dtype, value.dtype, dtypes.float32)
        if wide not in (dtypes.float32, dtypes.float64):
            return None
        args = [self, key, value] if mask is None else [self, key, value, mask]
        nodes = [x._uop if x.dtype == dtypes.bool else x.cast(wide)._uop for x in args]
        if enable_gqa:
            nodes = share_heads(*nodes)
        if not is_worth_blocks(*nodes):
            return None
        out = attention(*nodes, causal=is_causal)
        return self._wrap_uop(out.reshape((*out.shape[:-4], -1, *out.shape[-2:])) if enable_gqa else out).cast(
            self.dtype
        )


def _check_heads(*args: Any, heads: Any) -> None:
    for x in args:
        if x.ndim < 3 or (heads != 0 if same_size(x.shape[-3], 0) else heads % x.shape[-3] != 0):
            raise ShapeError(
                error_text(
                    "scaled_dot_product_attention",
                    f"{heads} query heads for {shown(x.shape[-3:-2])} key or value heads",
                    {"key or value": x},
                    rule="query heads are a multiple of the others",
                )
            )
