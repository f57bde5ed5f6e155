"""Linear algebra: QR and singular value decomposition, inverse, Newton-Schulz iteration; over batches of matrices.

In:   matrices in the last two dims.
Out:  their factors. The decompositions are kernels of their own (``linalg_kernels.py``) with stated gradients.
Why:  rotations of rows one after the other do not fit into elementwise nodes and reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import dtypes, least_upper_float, strong_dtype
from tinygrad.errors import error_text, shown
from tinygrad.helpers import all_int, prod
from tinygrad.mixin.composite import CompositeShapeError
from tinygrad.mixin.hooks import Hooks, hint_to_pad
from tinygrad.record import record

if TYPE_CHECKING:
    from typing import Self

    from tinygrad.mixin.elementwise import ElementwiseMixin as _Base
    from tinygrad.uop.ops import UOp
else:
    _Base = Hooks


class LinalgMixin(_Base):
    """Decompositions of matrices."""

    __slots__ = ()

    def qr(self) -> tuple[Self, Self]:
        """Return Q, orthogonal and square, and R, upper triangular, with ``Q @ R == self``; by Householder reflections.

        Returns:
            Q of shape (..., m, m) and R of shape (..., m, n), for ``self`` of shape (..., m, n). Integers give the
            default float. The gradient is that of the first min(m, n) columns of Q. Realize both together.

        Raises:
            ShapeError: Fewer than two dims, or symbolic ones.

        Example:
            >>> q, r = Tensor([[3.0, 0.0], [4.0, 5.0]]).qr()
            >>> (q @ r).allclose(Tensor([[3.0, 0.0], [4.0, 5.0]]), atol=1e-5).item()
            True

        Source: Householder, "Unitary Triangularization of a Nonsymmetric Matrix", 1958.
        """
        q, r = _apply(self, "qr", _qr_body, _qr_gradient)
        return self._wrap_uop(q), self._wrap_uop(r)

    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """Return U, S and V^T with ``U @ diag(S) @ V^T == self``; by one-sided Jacobi rotations.

        Args:
            full_matrices: U and V are square; else they have min(m, n) columns.

        Returns:
            U (..., m, m), S (..., min(m, n)) in descending order and V^T (..., n, n), for ``self`` of (..., m, n).
            The gradient is that of the first min(m, n) columns of U and V, and needs different singular values.
            Realize the three together: each one alone repeats the rotations.

        Raises:
            ShapeError: Fewer than two dims, or symbolic ones.

        Example:
            >>> [round(s, 4) for s in Tensor([[0.0, 2.0], [1.0, 0.0]]).svd()[1].tolist()]
            [2.0, 1.0]

        Source: Hestenes, "Inversion of Matrices by Biorthogonalization and Related Results", 1958.
        """
        u, s, vt = _apply(self, "svd", _SvdBody(full_matrices), _svd_gradient)
        return self._wrap_uop(u), self._wrap_uop(s), self._wrap_uop(vt)

    def inverse(self) -> Self:
        """Return the inverse of square matrices, by Gauss-Jordan elimination; infinite or NaN where there is none.

        Raises:
            ShapeError: Fewer than two dims, symbolic ones, or the matrices are not square.

        Example:
            >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).inverse().tolist()
            [[0.5, 0.0], [0.0, 0.25]]
        """
        if self.ndim >= 2 and self.shape[-1] is not self.shape[-2] and self.shape[-1] != self.shape[-2]:
            sizes = f"{shown(self.shape[-2])} x {shown(self.shape[-1])}"
            raise CompositeShapeError(
                error_text("inverse", f"the matrices are {sizes}", {"tensor": self}, "square matrices")
            )
        (inverse,) = _apply(self, "inverse", _inverse_body, _inverse_gradient)
        return self._wrap_uop(inverse)

    def newton_schulz(self, steps: int, params: Sequence[float], eps: float = 1e-7) -> Self:
        """Move all singular values towards 1 by an odd polynomial, applied ``steps`` times to the normalised matrices.

        One step takes X to params[0] * X + params[1] * (X X^T) X + params[2] * (X X^T)^2 X + ...

        Args:
            steps: How often.
            params: Coefficients of the odd powers.
            eps: Added to the norm by which a matrix is divided first.

        Raises:
            ShapeError: Fewer than two dims.
            ValueError: No coefficients, or a negative number of steps.

        Example:
            >>> x = Tensor([[3.0, 0.0], [0.0, 4.0]])
            >>> x.newton_schulz(steps=8, params=(1.5, -0.5)).numpy().round(3)
            array([[1., 0.],
                   [0., 1.]], dtype=float32)
        """
        if self.ndim < 2:
            raise CompositeShapeError(
                error_text("newton_schulz", f"{self.ndim} dims", {"tensor": self}, "at least 2 dims")
            )
        if steps < 0 or not len(params):
            fault = f"steps={steps}, params={tuple(params)}"
            raise ValueError(error_text("newton_schulz", fault, rule="steps >= 0, and at least one coefficient"))
        x: Any = self
        x = x / (x.square().sum(axis=(-2, -1), keepdim=True).sqrt() + eps)
        rows, columns = x.max_shape[-2:]
        x = x.transpose(-2, -1) if rows > columns else x  # X X^T is the smaller of the two products then
        for _ in range(steps):
            gram = x.matmul(x.transpose(-2, -1))
            power, total = x, x * params[0]
            for coefficient in params[1:]:
                power = gram.matmul(power)
                total = total + power * coefficient
            x = total
        result: Self = x.transpose(-2, -1) if rows > columns else x
        return result


# ---- what the decompositions share -----------------------------------------------------------------------------------


def _apply(x: Any, name: str, body: Callable[[UOp], tuple[UOp, ...]], grad_fxn: Callable[..., Any]) -> list[UOp]:
    """Return the results of ``body`` on the matrices (batch, m, n): those of one node with a gradient of its own."""
    from tinygrad.uop.ops import UOp

    if x.ndim < 2 or not all_int(x.shape):
        raise CompositeShapeError(
            error_text(
                name, f"shape {shown(x.shape)}", {"tensor": x}, "at least 2 dims, static sizes", hint_to_pad(x.shape)
            )
        )
    floating = strong_dtype(least_upper_float(x.dtype))
    working = floating if floating is dtypes.float64 else dtypes.float32
    *lead, m, n = x.shape
    # Several devices each take some of the matrices, or all of them: a matrix is never split.
    whole = x._uop if x._uop.axis in (None, 0) and lead else x._uop.gathered()
    matrices = whole.cast(working).reshape((prod(lead), m, n))
    results = UOp.maketuple(*body(matrices.param_like(0))).call(matrices, grad_fxn=grad_fxn, name=name)
    found = [results.gettuple(i) for i in range(len(results.src[0].src))]
    return [u.reshape((*lead, *u.shape[1:])).cast(floating) for u in found]


def _scaled(a: UOp) -> tuple[UOp, UOp]:
    """Return the matrices divided by their largest element, so that squares neither overflow nor vanish; and it."""
    largest = a.abs().max(axis=(1, 2), keepdim=True)
    largest = (largest > 0).where(largest, 1)
    return a / largest, largest


def _columns_of_identity(like: UOp, count: int, size: int) -> UOp:
    from tinygrad.uop.ops import UOp

    identity = UOp.eye(count, size, dtype=like.dtype).expand((like.shape[0], count, size))
    return _storage(like, count, size, value=identity)


def _storage(like: UOp, *sizes: int, value: UOp | None = None) -> UOp:
    """Return fresh storage (batch, *sizes) of the dtype and on the device of ``like``, its batch split alike."""
    from tinygrad.device import canonicalize_device
    from tinygrad.uop.ops import UOp

    shape = (like.shape[0], *sizes)
    shown = UOp.placed_buffer(canonicalize_device(like.device), shape, like.dtype, like.axis)
    if value is None:
        return shown
    storage = shown.base
    return storage.after(storage.store(value.reshape(storage.shape))).reshape(shape)


def _transposed(a: UOp) -> UOp:
    return a.transpose(1, 2)


def _product(a: UOp, b: UOp) -> UOp:
    """Return the matrix product, stored: chains of small ones would be one loop inside of another."""
    return a.matmul(b).contiguous()


def _is_empty(a: UOp) -> bool:
    return 0 in a.shape


# ---- QR --------------------------------------------------------------------------------------------------------------


def _reflected(columns: UOp, wanted: int) -> tuple[UOp, UOp]:
    """Return ``wanted`` columns of Q, and those of R, of matrices given by their columns (batch, n, m)."""
    from tinygrad.mixin.linalg_kernels import householder
    from tinygrad.uop.ops import UOp

    _, n, m = columns.max_shape
    steps = min(m, n)
    q, r = _columns_of_identity(columns, wanted, m), _storage(columns, n, m, value=columns)
    scratch = _storage(columns, steps, m), _storage(columns, steps)
    q, r, *_ = UOp.custom_kernel(q, r, *scratch, fxn=householder)
    return q, r


def _qr_body(a: UOp) -> tuple[UOp, UOp]:
    _, m, n = a.max_shape
    if _is_empty(a):
        return _columns_of_identity(a, m, m), _storage(a, m, n)
    a, scale = _scaled(a)
    q, r = _reflected(_transposed(a), m)
    return _transposed(q), (_transposed(r) * scale).triu()


def _qr_gradient(grad_q: UOp, grad_r: UOp, call: UOp) -> tuple[UOp]:
    """Return the gradient of a matrix of full rank from those of its QR factors.

    Source: Walter, Lehmann and Lamour, "On Evaluating Higher-Order Derivatives of the QR Decomposition", 2012.
    """
    a, q, r = call.src[1], call.gettuple(0), call.gettuple(1)
    _, m, n = a.max_shape
    if _is_empty(a):
        return (a.const_like(0),)
    k = min(m, n)
    q, grad_q = (x.shrink_to((None, None, k)) for x in (q, grad_q))
    left = r.shrink((None, (0, k), (0, k)))
    grad_left, grad_right = grad_r.shrink((None, (0, k), (0, k))), grad_r.shrink((None, (0, k), (k, n)))
    # The columns beyond the square part are Q^T times theirs: they pass their gradient on to Q.
    rest = a.shrink((None, None, (k, n)))
    grad_q = grad_q + _product(rest, _transposed(grad_right)) if n > k else grad_q
    inner = _product(left, _transposed(grad_left)) - _product(_transposed(grad_q), q)
    symmetric = inner.tril(-1) + _transposed(inner.tril(-1)) + inner.tril().triu()
    grad_square = _product(grad_q + _product(q, symmetric), _transposed(left.inverse()))
    return (grad_square.cat(_product(q, grad_right), dim=2) if n > k else grad_square,)


# ---- SVD -------------------------------------------------------------------------------------------------------------


@record(frozen=True)
class _SvdBody:
    """The body of ``svd``."""

    full: bool

    def __call__(self, a: UOp) -> tuple[UOp, UOp, UOp]:
        """Return U, S, V^T."""
        _, m, n = a.max_shape
        if _is_empty(a):
            rows, columns = (m, n) if self.full else (min(m, n),) * 2
            u, vt = _columns_of_identity(a, m, rows), _columns_of_identity(a, columns, n)
            return u, _storage(a, min(m, n)), vt
        a, scale = _scaled(a)
        if m >= n:
            long, s, short = self._tall(_transposed(a))
            return _transposed(long), s * scale.reshape((-1, 1)), short
        long, s, short = self._tall(a)
        return _transposed(short), s * scale.reshape((-1, 1)), long

    def _tall(self, columns: UOp) -> tuple[UOp, UOp, UOp]:
        """Return the columns of U, S, and the columns of V, of tall matrices given by their columns (batch, n, m)."""
        from tinygrad.mixin.linalg_kernels import jacobi
        from tinygrad.uop.ops import UOp

        _, n, m = columns.max_shape
        w, v = UOp.custom_kernel(
            _storage(columns, n, m, value=columns), _columns_of_identity(columns, n, n), fxn=jacobi
        )
        # The rotations leave the columns sorted, but those that are rounding errors.
        s, _ = w.square().sum(axis=2).sqrt().cummin(axis=1)
        # The columns of U S are orthogonal: their QR decomposition divides them by their lengths, up to a sign, and
        # completes them to a basis, also where a length is 0.
        u, r = _reflected(w, m if self.full else n)
        diagonal = r.diagonal(0, 1, 2)
        sign = (diagonal < 0).where(-1.0, 1.0).cast(u.dtype).reshape((-1, n, 1))
        return u * sign.pad((None, (0, u.shape[1] - n), None), value=1.0), s, v


def _svd_gradient(grad_u: UOp, grad_s: UOp, grad_vt: UOp, call: UOp) -> tuple[UOp]:
    """Return the gradient of a matrix from those of its singular value decomposition.

    Source: Townsend, "Differentiating the Singular Value Decomposition", 2016.
    """
    from tinygrad.uop.ops import UOp

    a = call.src[1]
    k = min(a.max_shape[1:])
    if _is_empty(a):
        return (a.const_like(0),)
    u, grad_u = (x.shrink_to((None, None, k)) for x in (call.gettuple(0), grad_u))
    v, grad_v = (_transposed(x.shrink_to((None, k, None))) for x in (call.gettuple(2), grad_vt))
    s = call.gettuple(1).reshape((-1, 1, k))
    ut, vt = _transposed(u), _transposed(v)
    same = UOp.eye(k, dtype=dtypes.bool)
    gap = (s - _transposed(s)) * (s + _transposed(s))  # s[j]^2 - s[i]^2
    f = same.where(0, same.where(1, gap).reciprocal())
    along_u, along_v = _product(ut, grad_u), _product(vt, grad_v)
    inner = (f * (along_u - _transposed(along_u))) * s + _transposed(s) * (f * (along_v - _transposed(along_v)))
    inner = inner + same.where(grad_s.reshape((-1, 1, k)), 0)
    total = _product(_product(u, inner), vt)
    # What leaves the spaces of U and V: divided by the singular values; none of it where that space is everything.
    total = total + _product((grad_u - _product(u, along_u)) / s, vt) if a.shape[1] > k else total
    return (total + _product(u / s, _transposed(grad_v - _product(v, along_v))) if a.shape[2] > k else total,)


# ---- inverse ---------------------------------------------------------------------------------------------------------


def _inverse_body(a: UOp) -> tuple[UOp]:
    from tinygrad.mixin.linalg_kernels import gauss_jordan
    from tinygrad.uop.ops import UOp

    n = a.max_shape[1]
    if _is_empty(a):
        return (_storage(a, n, n),)
    identity = UOp.eye(n, dtype=a.dtype).expand(a.shape)
    (rows,) = UOp.custom_kernel(_storage(a, n, 2 * n, value=a.cat(identity, dim=2)), fxn=gauss_jordan)
    return (rows.shrink((None, None, (n, 2 * n))),)


def _inverse_gradient(grad: UOp, call: UOp) -> tuple[UOp]:
    inverse = _transposed(call.gettuple(0))
    return (_product(_product(inverse, grad), inverse) * -1,)
