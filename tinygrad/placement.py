"""Where a tensor lives: copies to other devices, and values split over several.

In:   a tensor and names of devices.
Out:  ``PlacementMethods``: tensors with COPY nodes, which carry ``grad`` and the flags of training along.
Why:  a move is a node like any other: it happens when the value is needed, and gradients are moved back through it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.device import canonicalize_device
from tinygrad.properties import PropertyMethods
from tinygrad.uop.records import Placement
from tinygrad.uop.sharding import check_split

if TYPE_CHECKING:
    from typing import Self


class PlacementMethods(PropertyMethods):
    """Methods of Tensor that move values between devices."""

    __slots__ = ()

    def to(self, device: Any) -> Self:
        """Return the value on ``device`` (None: the default one), with ``grad`` and ``is_param``; self if it is there.

        A tuple of devices gives each of them the whole value. From several devices the value is gathered.

        Raises:
            RuntimeError: The dtype is weak.

        Example:
            >>> Tensor([1, 2]).to("PYTHON").device
            'PYTHON'
        """
        where = canonicalize_device(device)
        if self.device is None or self.device == where:
            return self
        moved = self._wrap_uop(self.uop.copy_to_device(where))
        moved.grad = None if self.grad is None else self.grad.to(where)
        return moved._with_flags(self)

    def to_(self, device: Any) -> Self:
        """Move this tensor (and its ``grad``) to ``device``; returns self.

        Example:
            >>> Tensor([1, 2]).to_("PYTHON").device
            'PYTHON'
        """
        moved = self.to(device)
        if moved is not self:
            self.uop, self.grad = moved.uop, moved.grad
        return self

    def shard(self, devices: Any, axis: int | None = None) -> Self:
        """Split over several devices along ``axis``: each holds an equal piece. One device is ``to``.

        Operations on the result run on all of its devices, each on its piece; where a piece does not suffice, the
        devices exchange what they need. Operands without a device (numbers, ranges) go with everything.

        Args:
            devices: Names of the devices.
            axis: The axis that is split; None gives each device the whole value.

        Returns:
            Tensor of this shape and dtype, with ``grad`` and ``is_param``. A tensor without a device stays as it is.

        Raises:
            RuntimeError: It is on several devices already, the devices do not divide the axis, or the dtype is weak.
            ShapeError: There is no such axis.

        Example:
            >>> t = Tensor([1.0, 2.0, 3.0, 4.0]).shard(("CPU:0", "CPU:1"), axis=0)
            >>> t.uop.shard_shape, t.sum().item()
            ((2,), 10.0)
        """
        where = canonicalize_device(devices)
        if axis is not None:
            axis = self._resolve_dim(axis, op="shard")
        if isinstance(where, str):
            return self.to(where)
        if self.device is None:
            return self
        moved = self._wrap_uop(self.uop.shard(where, axis))
        moved.grad = None if self.grad is None else self.grad.shard(where, axis)
        return moved.is_param_(self.is_param)

    def shard_(self, devices: Any, axis: int | None = None) -> Self:
        """``shard`` this tensor and its ``grad`` in place; returns self.

        Raises:
            RuntimeError: As ``shard``.
            ShapeError: As ``shard``.

        Example:
            >>> Tensor([1, 2]).shard_(("CPU:0", "CPU:1"), axis=0).uop.shard_shape
            (1,)
        """
        moved = self.shard(devices, axis)
        if moved is not self:
            self.uop, self.grad = moved.uop, moved.grad
        return self

    def shard_like(self, y: Self) -> Self:
        """Return the value where ``y`` is: on its device, or on its devices and split along the same axis.

        What is on several devices already is split anew.

        Raises:
            RuntimeError: The devices do not divide the axis, or the dtype is weak.
            ShapeError: There is no such axis.

        Example:
            >>> y = Tensor([0.0, 0.0]).shard(("CPU:0", "CPU:1"), axis=0)
            >>> Tensor([[1, 2], [3, 4]]).shard_like(y).uop.shard_shape
            (1, 2)
        """
        if not isinstance(y.device, tuple):
            return self if y.device is None else self.to(y.device)
        axis = y.uop.axis
        if self.device is None or (self.device == y.device and self.uop.axis == axis):
            return self
        if axis is not None:
            axis = check_split(self.shape, axis, len(y.device))
        if not isinstance(self.device, tuple):
            return self.shard(y.device, axis)
        moved = self._wrap_uop(self.uop.copy_to_device(y.device if axis is None else Placement(y.device, axis)))
        moved.grad = None if self.grad is None else self.grad.shard_like(y)
        return moved.is_param_(self.is_param)
