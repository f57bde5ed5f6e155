"""Which results show later writes to what they were made from: views do, values do not, realized or not."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from test.helpers_methods import CALLS, NOT_CALLED, names, public_methods, tensors
from tinygrad import GlobalCounters, Tensor, TinyJit, UOp, dtypes

VALUES = np.sin(np.arange(36, dtype=np.float32)).reshape(6, 6)
# Views show the elements of their tensor.
VIEWS = names("""
    broadcast_to chunk detach diagonal dsplit expand expand_as flatten flip fliplr flipud hsplit meshgrid moveaxis
    movedim narrow permute ravel rearrange reshape reshape_as rot90 select shrink shrink_to split squeeze swapaxes
    swapdims t tensor_split transpose unbind unflatten unfold unsqueeze view view_as vsplit
""")
# These return the tensor itself where there is nothing to convert.
CONVERSIONS = names("""
    cast contiguous cpu dropout float realize shard shard_like to type type_as ufix
""")
RANDOM = frozenset({"bernoulli", "multinomial"})
SOURCES: dict[str, Callable[[], Tensor]] = {
    "stored": lambda: Tensor(VALUES).clone().realize(),
    "written": lambda: Tensor(VALUES).clone(),
    "computed": lambda: Tensor(VALUES) + 0,
}
WRITES: dict[str, Callable[[Tensor], Any]] = {
    "assign": lambda x: x.assign(x * 0 + 5),
    "in place": lambda x: x.add_(x * 2 + 1),
    "setitem": lambda x: x.__setitem__((slice(None), slice(0, 6)), 7.0),
    "positions": lambda x: x.__setitem__(Tensor([0, 1, 2, 3, 4, 5]), 7.0),
}


def written(x: Tensor, write: str) -> bool:
    """Write to x; return False if ``x[...] = v`` is refused because something pending reads x."""
    try:
        WRITES[write](x)
    except RuntimeError as error:
        if "other uses" not in str(error):
            raise
        return False
    return True


def test_every_public_method_is_called() -> None:
    assert public_methods() == CALLS.keys() | NOT_CALLED
    assert not CALLS.keys() & NOT_CALLED
    assert CALLS.keys() >= VIEWS | CONVERSIONS


@pytest.mark.parametrize("source", ["stored", "computed"])
@pytest.mark.parametrize("name", sorted(CALLS.keys() - CONVERSIONS - RANDOM))
def test_results_of_methods(name: str, source: str) -> None:
    before = [t.numpy() for t in tensors(CALLS[name](SOURCES["stored"]()))]
    for is_realized, write in ((False, "assign"), (True, "in place")):
        x = SOURCES[source]()
        made = tensors(CALLS[name](x))
        if is_realized:
            made[0].realize(*made[1:])
        WRITES[write](x)
        wanted = [t.numpy() for t in tensors(CALLS[name](Tensor(x.numpy())))] if name in VIEWS else before
        for got, want in zip(made, wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5, err_msg=f"{write} {is_realized}")


COPIES_IN_TORCH = names("flip fliplr flipud rot90")  # as docs/runtime.md says
VIEWS_IN_TORCH = names("einsum")


def shares_storage_in_torch(name: str) -> bool | None:
    """Whether the result of a method shares storage with its source in torch; None if it cannot be called like ours."""
    x = torch.tensor(VALUES)
    try:
        made = torch.einsum("ij->ji", x) if name == "einsum" else CALLS[name](x)  # type: ignore[arg-type]
    except (AttributeError, TypeError, RuntimeError, ValueError):
        return None
    first = made[0] if isinstance(made, (tuple, list)) else made
    if not isinstance(first, torch.Tensor):  # the call makes tensors of this package
        return None
    return first.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.filterwarnings("ignore")  # what torch warns of
def test_views_are_those_of_torch() -> None:
    found = {name: shares_storage_in_torch(name) for name in sorted(CALLS.keys() - CONVERSIONS - RANDOM)}
    shares = {name: is_view for name, is_view in found.items() if is_view is not None}
    assert len(shares) >= 120
    wanted = {name: (name in VIEWS and name not in COPIES_IN_TORCH) or name in VIEWS_IN_TORCH for name in shares}
    assert shares == wanted


@pytest.mark.parametrize("source", ["stored", "computed"])
@pytest.mark.parametrize("name", sorted(CALLS.keys() - CONVERSIONS - RANDOM))
def test_writes_to_results_of_methods(name: str, source: str) -> None:
    x = SOURCES[source]()
    made = tensors(CALLS[name](x))[0]
    shown = made.numpy()
    made.assign(made.logical_not() if made.dtype == dtypes.bool else made + 1)
    changed = not np.array_equal(x.numpy(), VALUES)
    # A broadcast result becomes a value of its own, and so does a view of something computed on the way.
    repeats = shown.size > x.numel() or name in {"meshgrid", "unfold"}
    assert changed == (name in VIEWS and not repeats)


TRIVIAL: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(0), "max": lambda x: x.max(0, keepdim=True), "mean": lambda x: x.mean(0),
    "prod": lambda x: x.prod(0), "cumsum": lambda x: x.cumsum(0), "cummax": lambda x: x.cummax(0)[0],
    "sort": lambda x: x.sort(0)[0], "topk": lambda x: x.topk(1, 0)[0], "roll": lambda x: x.roll(36, 1),
    "+ 0": lambda x: x + 0, "* 1": lambda x: x * 1, "/ 1": lambda x: x / 1, "** 1": lambda x: x**1,
    "where": lambda x: Tensor(True).where(x, 0), "maximum": lambda x: x.maximum(x), "pad": lambda x: x.pad((0, 0)),
    "pad more": lambda x: x.pad((1, 0)), "pad_to": lambda x: x.pad_to(1, 36), "repeat": lambda x: x.repeat(1, 1),
    "repeat more": lambda x: x.repeat(2, 1), "tile": lambda x: x.tile(1, 1), "cat": lambda x: Tensor.cat(x),
    "cat nothing": lambda x: x.cat(Tensor.zeros(0, 36)), "stack": lambda x: Tensor.stack(x),
    "stack a list": lambda x: Tensor.stack([x]), "repeat_interleave": lambda x: x.repeat_interleave(1),
    "diag": lambda x: x.reshape(36)[:1].diag(), "all rows": lambda x: x[[0]],
    "mask": lambda x: x[Tensor([True])], "pool": lambda x: x.reshape(1, 1, 6, 6).max_pool2d(1),
    "interpolate": lambda x: x.reshape(1, 1, 36).interpolate((36,)), "einsum": lambda x: Tensor.einsum("ij->ji", x),
    "contiguous_backward": lambda x: x.contiguous_backward(), "clone": lambda x: x.clone(),
    "a view of one": lambda x: x.roll(0, 0).T, "several": lambda x: x.roll(0, 0).pad((0, 0)).repeat(1, 1)[0],
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("is_realized", [False, True])
@pytest.mark.parametrize("name", TRIVIAL)
def test_results_that_happen_to_be_views_are_values(name: str, is_realized: bool, write: str) -> None:
    for source in SOURCES.values():
        x = source().reshape(1, 36)
        y = TRIVIAL[name](x)
        expected = y.numpy() if is_realized else TRIVIAL[name](Tensor(VALUES.reshape(1, 36))).numpy()
        if written(x, write):
            np.testing.assert_array_equal(y.numpy(), expected)
        # And the other way round.
        x, x_before = source().reshape(1, 36), VALUES.reshape(1, 36)
        TRIVIAL[name](x).add_(1)
        np.testing.assert_array_equal(x.numpy(), x_before)


# Methods on a single number, for which there may be nothing to do. (Those with an axis work on numbers too.)
ON_ONE_NUMBER: dict[str, Callable[[Tensor], Any]] = {
    **{
        name: lambda x, name=name: getattr(x, name)()
        for name in sorted(names("""
            abs amax amin aminmax argsort ceil clone contiguous_backward cummax cummin cumsum floor logcumsumexp
            max mean min median msort nan_to_num nanmean nansum prod relu round sort square sum tril trunc usum uprod
        """))
    },
    "topk": lambda x: x.topk(1), "cumprod": lambda x: x.cumprod(0), "sum of an axis": lambda x: x.sum(0),
    "max of an axis": lambda x: x.max(0), "diff": lambda x: x.diff(n=0), "roll": lambda x: x.roll(0),
    "clip": lambda x: x.clip(-99, 99), "masked_fill": lambda x: x.masked_fill(x > 99, 0), "+ 0": lambda x: x + 0,
    "* 1": lambda x: x * 1, "/ 1": lambda x: x / 1, "** 1": lambda x: x**1, "maximum": lambda x: x.maximum(x),
    "pool": lambda x: x.reshape(1, 1, 1, 1).adaptive_avg_pool2d(1), "quantile": lambda x: x.quantile(0.5),
    "lerp": lambda x: x.lerp(x, 0.5), "gather": lambda x: x.gather(0, (x * 0).int()),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize("name", ON_ONE_NUMBER)
def test_results_of_one_number_are_values(name: str, shape: tuple[int, ...]) -> None:
    if name == "tril" and len(shape) < 2:
        shape = (1, 1)
    values = np.full(shape, 3, dtype=np.float32)
    before = [t.numpy() for t in tensors(ON_ONE_NUMBER[name](Tensor(values)))]
    for make in (lambda: Tensor(values).clone().realize(), lambda: Tensor(values) + 0):
        for is_realized in (False, True):
            x = make()
            made = tensors(ON_ONE_NUMBER[name](x))
            if is_realized:
                made[0].realize(*made[1:])
            x.assign(x * 0 + 9)
            for got, want in zip(made, before, strict=True):
                np.testing.assert_array_equal(got.numpy(), want)
            made[0].add_(1)
            np.testing.assert_array_equal(x.numpy(), values * 3)


def test_a_value_that_is_read_by_others_costs_no_copy() -> None:
    x = Tensor(VALUES).clone().realize()
    GlobalCounters.reset()
    y = (x.roll(0, 0).dropout(0.5).pad((0, 0)) * 2).realize()
    assert GlobalCounters.kernel_count == 1
    np.testing.assert_array_equal(y.numpy(), VALUES * 2)


def test_gradient_passes_through_values_of_their_own() -> None:
    for name in ("pad", "roll", "** 1", "cat", "repeat more", "einsum"):
        x = Tensor(VALUES.reshape(1, 36)).clone().realize()
        weights = Tensor(np.cos(np.arange(36, dtype=np.float32)))
        (grad,) = (TRIVIAL[name](x).reshape(-1, 36) * weights).sum().gradient(x)
        times = 2 if name == "repeat more" else 1
        np.testing.assert_allclose(grad.numpy(), weights.numpy()[None] * times, rtol=1e-6)


@pytest.mark.parametrize("is_realized", [False, True])
@pytest.mark.parametrize("source", ["stored", "computed", "constant"])
@pytest.mark.parametrize("target", ["a row", "transposed", "reversed", "whole"])
def test_a_broadcast_result_and_its_views_are_one_value(target: str, source: str, is_realized: bool) -> None:
    row = Tensor.ones(2) if source == "constant" else SOURCES[source]()[0, :2] * 0 + 1
    row = row.clone().realize() if source == "stored" else row
    table = row.expand(3, 2)
    views = {"a row": table[0], "transposed": table.T, "reversed": table[::-1], "whole": table}
    if is_realized:
        table.realize()
    wanted = np.ones((3, 2), dtype=np.float32)
    shown = {"a row": wanted[0], "transposed": wanted.T, "reversed": wanted[::-1], "whole": wanted}
    views[target][0] = 5.0
    shown[target][0] = 5.0
    for name, view in views.items():
        np.testing.assert_array_equal(view.numpy(), shown[name], err_msg=name)
    np.testing.assert_array_equal(row.numpy(), [1.0, 1.0])
    row += 1
    np.testing.assert_array_equal(table.numpy(), wanted)


# ---- equal expressions, and views of values without storage ----------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(("view", "other", "realize"))), ids=str)
@pytest.mark.parametrize("target", ["view", "whole"])
def test_a_write_reaches_views_of_a_value_and_nothing_else(order: tuple[str, ...], target: str) -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    a = x + 1
    made: dict[str, Tensor] = {}
    for step in order:
        if step == "view":
            made["view"] = a[1:]
        elif step == "other":
            made["other"], made["reader"], made["similar"] = x + 1, a * 10, (x + 1)[1:]
        elif "view" in made:
            made["view"].realize()
        else:
            a[:1].realize()
    if target == "view":
        made["view"].assign([8.0, 9.0])
    else:
        a[1:] = Tensor([8.0, 9.0])
    assert a.tolist() == [2.0, 8.0, 9.0]
    assert made["view"].tolist() == [8.0, 9.0]
    assert made["other"].tolist() == [2.0, 3.0, 4.0]
    assert made["similar"].tolist() == [3.0, 4.0]
    assert made["reader"].tolist() == [20.0, 30.0, 40.0]


def test_writes_after_one_of_two_equal_values_is_realized() -> None:
    x = Tensor([1.0, 2.0]).realize()
    a, b = x + 1, x + 1
    first, second = a[:1], b[:1]
    a.realize()
    b += 10
    first += 100
    assert (a.tolist(), b.tolist()) == ([102.0, 3.0], [12.0, 13.0])
    assert (first.tolist(), second.tolist()) == ([102.0], [12.0])


def test_a_view_that_was_computed_alone_is_one_again_after_a_write() -> None:
    a = Tensor([1.0, 2.0, 3.0]) * 2
    GlobalCounters.reset()
    part = a[1:].realize()
    again = part[:1].realize()
    assert part.tolist() == [4.0, 6.0]
    a += 1
    assert (a.tolist(), part.tolist(), again.tolist()) == ([3.0, 5.0, 7.0], [5.0, 7.0], [5.0])
    again.assign([0.0])
    assert (a.tolist(), part.tolist()) == ([3.0, 0.0, 7.0], [0.0, 7.0])


def test_a_view_that_was_computed_alone_is_one_again_when_all_is() -> None:
    a = Tensor([1.0, 2.0, 3.0]) * 2
    part = a[1:].realize()
    a.realize()
    part += 1
    assert (a.tolist(), part.tolist()) == ([2.0, 5.0, 7.0], [5.0, 7.0])


def test_in_place_operators_on_parts_of_equal_values() -> None:
    x = Tensor([1.0, 2.0]).realize()
    a, b = x + 1, x + 1
    a[:1] += 1
    b[1:] *= 2
    assert (a.tolist(), b.tolist()) == ([3.0, 3.0], [2.0, 6.0])


def test_a_value_that_is_assigned_is_not_shared() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    a, b = x * 2, x * 3
    part = b[1:]
    a.assign(b)
    a += 1
    assert (a.tolist(), b.tolist(), part.tolist()) == ([4.0, 7.0, 10.0], [3.0, 6.0, 9.0], [6.0, 9.0])
    a.assign(b.flip(0).pad((1, 0))[:3])
    first = a[0]
    a += 1
    assert (a.tolist(), first.item()) == ([1.0, 10.0, 7.0], 1.0)


def test_copies_and_pickles_are_values_of_their_own() -> None:
    a = Tensor([1.0, 2.0, 3.0]) * 2
    part = a[1:].realize()
    for other in (copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        other += 1
        assert other.tolist() == [3.0, 5.0, 7.0]
    assert (a.tolist(), part.tolist()) == ([2.0, 4.0, 6.0], [4.0, 6.0])


def test_constants_with_views() -> None:
    x = Tensor.zeros(3)
    part = x[1:]
    x[2] = 5.0
    assert (x.tolist(), part.tolist()) == ([0.0, 0.0, 5.0], [0.0, 5.0])
    part[0] = 7.0
    assert (x.tolist(), part.tolist()) == ([0.0, 7.0, 5.0], [7.0, 5.0])


def test_results_of_a_jit_do_not_share_storage() -> None:
    @TinyJit
    def step(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x + 1
        return y, (x + 1).reshape(1, 3), y.roll(0, 0)

    for i in range(4):
        a, b, c = step(Tensor([1.0, 2.0, 3.0 + i]).realize())
        a += 10
        assert b.tolist() == [[2.0, 3.0, 4.0 + i]]
        assert c.tolist() == [2.0, 3.0, 4.0 + i]
        assert a.tolist() == [12.0, 13.0, 14.0 + i]


@pytest.mark.parametrize("axis", [None, 0])
def test_over_several_devices(axis: int | None) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).shard(("CPU", "CPU:1"), axis).realize()
    for make in (lambda: x + 1, lambda: x.clone()):
        a, b = make(), make()
        part, same = a.T, b.roll(0, 0)
        part.realize()
        same.realize()
        a += 1
        b *= 0
        extra = 1 if make().tolist() == [[2.0, 3.0], [4.0, 5.0]] else 0
        assert part.tolist() == [[2.0 + extra, 4.0 + extra], [3.0 + extra, 5.0 + extra]]
        assert same.tolist() == [[1.0 + extra, 2.0 + extra], [3.0 + extra, 4.0 + extra]]


@pytest.mark.parametrize("births", [False, True])
def test_tensors_that_are_born_or_die_hide_no_other_from_a_write(births: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import tinygrad.live as live

    junk, seen = [Tensor.empty(2) for _ in range(8)], live.buffer_under
    first, second = Tensor.empty(2), Tensor.empty(3)

    def look(u: UOp) -> UOp | None:
        if junk:
            junk.pop()
        if births and len(junk) == 4:
            junk.extend(Tensor.empty(1) for _ in range(2))
            junk.clear()
        return seen(u)

    monkeypatch.setattr(live, "buffer_under", look)
    written = first[0:1]
    second.assign(Tensor.ones(3))
    first.assign(Tensor([1.0, 2.0]))
    assert written.tolist() == [1.0]
    assert first.tolist() == [1.0, 2.0]
    assert second.tolist() == [1.0, 1.0, 1.0]
