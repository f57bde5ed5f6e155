"""einops-style patterns, turned into reshape, permute and reshape.

In:   a tensor, a pattern such as ``"b (h w) c -> b c h w"`` and the sizes of some names.
Out:  the rearranged tensor.
Why:  a pattern says what the dims mean, and is checked against the shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tinygrad.errors import error_text, shown
from tinygrad.helpers import prod
from tinygrad.mixin.hooks import known_size, same_size, ssimplify

if TYPE_CHECKING:
    from tinygrad.mixin.views import ViewMixin

X = TypeVar("X", bound="ViewMixin")


def rearrange(x: X, formula: str, sizes: dict[str, Any]) -> X:
    """Apply a pattern: split the parentheses of the left side, permute, merge those of the right side."""

    def require(condition: bool, summary: str) -> None:
        if not condition:
            raise AssertionError(
                error_text("rearrange", summary, {"tensor": x, "pattern": formula, "sizes": str(sizes)})
            )

    require(formula.count("->") == 1, "a pattern has exactly one '->'")
    left, right = (_parse(side, require) for side in formula.split("->"))
    if any("..." in group for group in left):
        hidden = [f"...{i}" for i in range(max(x.ndim - (len(left) - 1), 0))]
        left, right = _expand_ellipsis(left, hidden), _expand_ellipsis(right, hidden)
    require(len(left) == x.ndim, f"the left side has {len(left)} dims, the tensor {x.ndim}")
    names = [name for group in left for name in group]
    out_names = [name for group in right for name in group]
    for side in (names, out_names):
        require(len(set(side)) == len(side), "a name appears twice on one side")
    require(set(names) == set(out_names), f"names differ: {sorted(set(names) ^ set(out_names))}")
    require(set(sizes) <= set(names), f"sizes for unknown names: {sorted(set(sizes) - set(names))}")
    known: dict[str, Any] = dict(sizes)
    for group, size in zip(left, x.shape, strict=True):
        open_names = [name for name in group if name not in known]
        total = prod(known[name] for name in group if name in known)
        require(len(open_names) <= 1, f"more than one unknown size in ({' '.join(group)})")
        if open_names:
            is_whole = not same_size(total, 0) and known_size(ssimplify(size % total)) == 0
            require(is_whole, f"size {shown(size)} does not divide by {shown(total)} in ({' '.join(group)})")
            known[open_names[0]] = ssimplify(size // total)
        else:
            require(
                same_size(total, size), f"({' '.join(group)}) has {shown(total)} elements, the tensor {shown(size)}"
            )
    split = x.reshape([known[name] for name in names])
    moved = split.permute([names.index(name) for name in out_names])
    return moved.reshape([prod(known[name] for name in group) for group in right])


def _parse(side: str, require: Callable[[bool, str], None]) -> list[list[str]]:
    tokens = re.findall(r"\.\.\.|[A-Za-z_]\w*|1|[()]|\S", side)
    groups: list[list[str]] = []
    inside: list[str] | None = None
    for token in tokens:
        if token == "(":
            require(inside is None, "nested parentheses")
            inside = []
        elif token == ")":
            require(inside is not None, "unbalanced parentheses")
            groups.append(inside or [])
            inside = None
        elif token == "1":
            if inside is None:
                groups.append([])
        else:
            require(token == "..." or token.isidentifier(), f"unexpected {token!r}")
            inside.append(token) if inside is not None else groups.append([token])
    require(inside is None, "unbalanced parentheses")
    require(sum(group.count("...") for group in groups) <= 1, "more than one '...' on a side")
    return groups


def _expand_ellipsis(groups: list[list[str]], hidden: list[str]) -> list[list[str]]:
    expanded: list[list[str]] = []
    for group in groups:
        if group == ["..."]:
            expanded += [[name] for name in hidden]
        else:
            expanded.append([name for item in group for name in (hidden if item == "..." else [item])])
    return expanded
