"""Movement ops as index arithmetic, under the name by which the scheduler knows it.

In:   nothing.
Out:  the functions of ``uop/movement.py``, which kernels written by hand need too.
Why:  the scheduler's files say where they take index arithmetic from.
"""

from tinygrad.uop.movement import Idxs, apply_movement_op, both, flatten_index, pad_valid, steps, strides_of, zero

__all__ = ["Idxs", "apply_movement_op", "both", "flatten_index", "pad_valid", "steps", "strides_of", "zero"]
