"""Names that PyTorch and numpy have for what Tensor does in other words.

In:   the methods of Tensor.
Out:  ``TorchNames``: aliases, and compositions of a few lines, in groups that build on each other.
Why:  programs are written from memory. A name that has a plain meaning here works; ``in_place`` has those that end in
      an underscore, ``name_hints`` those that have no counterpart.

The first line of a docstring is the whole documentation: the call in the names of this package. Arguments are those of
torch.
"""

from __future__ import annotations

from typing import Final

from tinygrad.torch_names.alignments import AlignmentNames
from tinygrad.torch_names.arithmetic import ArithmeticNames
from tinygrad.torch_names.images import ImageNames
from tinygrad.torch_names.layers import LayerNames
from tinygrad.torch_names.losses import LossNames
from tinygrad.torch_names.numbers import NumberNames
from tinygrad.torch_names.products import ProductNames
from tinygrad.torch_names.shapes import ShapeNames
from tinygrad.torch_names.statistics import StatisticsNames


class TorchNames(AlignmentNames):
    """Methods of Tensor under the names of other packages."""

    __slots__ = ()


GROUPS: Final = (
    ShapeNames, ArithmeticNames, NumberNames, StatisticsNames, ProductNames, ImageNames, LayerNames, LossNames,
    AlignmentNames, TorchNames,
)  # fmt: skip
