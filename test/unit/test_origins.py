"""Reading a single number does not change what backward and gradient find: the graph that it came from is kept."""

import weakref
from collections.abc import Callable

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit, nn, origins

READS: dict[str, Callable[[Tensor], object]] = {
    "item": Tensor.item,
    "tolist": Tensor.tolist,
    "numpy": Tensor.numpy,
    "data": Tensor.data,
    "realize": Tensor.realize,
    "print": lambda t: print(t, t.item()),
    "twice": lambda t: (t.item(), t.item()),
}


@pytest.fixture
def weight() -> Tensor:
    return Tensor([1.0, 2.0, 3.0]).realize()


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_loss_that_was_read_still_has_gradients(read: Callable[[Tensor], object], weight: Tensor) -> None:
    loss = (weight * weight).sum()
    read(loss)
    np.testing.assert_array_equal(loss.gradient(weight)[0].numpy(), [2, 4, 6])
    loss.backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [2, 4, 6])
    assert loss.grad.item() == 1


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_any_shape_of_one_element(shape: tuple[int, ...], weight: Tensor) -> None:
    loss = (weight * 3).sum().reshape(shape)
    loss.item()
    loss.backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [3, 3, 3])


def test_values_on_the_way_and_numbers_made_of_numbers(weight: Tensor) -> None:
    doubled = weight * 2
    first = doubled.sum()
    first.item()
    second = first * first
    second.item()
    (first + second).backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [50, 50, 50])
    np.testing.assert_array_equal(doubled.grad.numpy(), [25, 25, 25])
    assert (first.grad.item(), second.grad.item()) == (25, 1)


def test_a_total_that_is_read_in_every_step(weight: Tensor) -> None:
    total = Tensor(0.0)
    for i in range(4):
        loss = (weight * i).sum()
        loss.item()
        total = total + loss
        total.item()
    total.backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [6, 6, 6])


def test_one_element_of_a_vector(weight: Tensor) -> None:
    squares = weight * weight
    assert squares[1].item() == 4
    squares.sum().backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [2, 4, 6])


def test_dropout_draws_the_same_mask_again() -> None:
    weight = Tensor.ones(64).realize()
    with Context(TRAINING=1):
        kept = (weight * 3).dropout(0.5).dropout(0.25)
        loss = kept.sum()
        loss.item()
        Tensor.rand(4).realize()
        loss.backward()
    np.testing.assert_allclose(weight.grad.numpy(), kept.numpy())


@pytest.mark.parametrize("is_array", [False, True])
def test_an_overwritten_weight_ends_it_with_a_warning(weight: Tensor, is_array: bool) -> None:
    squares = weight * weight
    loss = squares.sum()
    (squares if is_array else loss).numpy()
    weight.assign(weight * 2).realize()
    with pytest.warns(
        RuntimeWarning, match=r"read before.*tensors of shape \(3,\) get no gradient.*\n.*line.*test_orig"
    ):
        loss.backward()
    assert weight.grad is None, "the value that the gradient needs is gone"
    again = (squares if is_array else loss).sum()
    again.backward()  # one warning is enough


def test_no_warning_where_the_gradient_goes_another_way(weight: Tensor) -> None:
    old = weight * 2
    old.numpy()
    weight.assign(weight + 1).realize()
    (weight * 3 - old).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0] * 3


def test_no_warning_for_what_was_detached(weight: Tensor) -> None:
    other = Tensor([1.0, 1.0, 1.0])
    old = (weight * 2).detach()
    old.numpy()
    (other * old).sum().backward()
    assert weight.grad is None
    assert other.grad is not None
    assert other.grad.tolist() == [2.0, 4.0, 6.0]


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "product": lambda t: t * t,
    "matmul": lambda t: t @ t.transpose(0, 1),
    "transposed": lambda t: (t * t).transpose(0, 1),
    "slice": lambda t: (t * t)[1:, ::2],
    "reversed": lambda t: (t.exp()).flip(0),
    "padded": lambda t: (t * 3).pad(((1, 0), (0, 2))),
    "expanded": lambda t: (t * t).sum(0).expand(5, 4),
    "softmax": lambda t: t.softmax(-1),
    "conv": lambda t: t.reshape(1, 1, 3, 4).conv2d(t.reshape(1, 1, 3, 4), padding=1),
    "cat": lambda t: t.cat(t * 2),
    "cast": lambda t: t.double() * 2,
    "contiguous": lambda t: (t * 2).contiguous(),
    "max": lambda t: t.max(0),
    "sort": lambda t: t.sort(0)[0] * t,
    "gather": lambda t: t[Tensor([2, 0, 0])] * 2,
    "scatter to rows": lambda t: (t * t).scatter(0, Tensor([[0, 1, 1, 2]]), 2.0),
    "scatter of itself": lambda t: t.scatter(0, Tensor([[1, 1, 0, 2]]), t * 3),
    "rows of a scatter": lambda t: t.scatter(0, Tensor([[0, 1, 1, 2]]), t).transpose(0, 1)[1:],
    "expanded scatter": lambda t: t.scatter(0, Tensor([[0, 1, 1, 2]]), t)[:1].expand(5, 4),
    "filled rows": lambda t: t.index_fill(0, Tensor([1]), 3.0),
    "copied rows": lambda t: t.index_copy(0, Tensor([1, 0]), t[1:] * 2)[1:],
    "inverse": lambda t: (t @ t.transpose(0, 1) + Tensor.eye(3) * 9).inverse(),
    "part of an inverse": lambda t: (t @ t.transpose(0, 1) + Tensor.eye(3) * 9).inverse().flip(0)[:, 1:],
    "factor": lambda t: t.transpose(0, 1).qr()[0].transpose(0, 1)[1:],
}
ARRAY_READS: dict[str, Callable[[Tensor], object]] = {
    "tolist": Tensor.tolist,
    "numpy": Tensor.numpy,
    "data": Tensor.data,
    "part": lambda t: t[:1].numpy(),
    "transposed": lambda t: t.transpose(0, -1).numpy(),
    "twice": lambda t: (t.numpy(), (t * 2).numpy(), t.numpy()),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize("read", ARRAY_READS.values(), ids=ARRAY_READS.keys())
def test_reading_an_array_changes_no_gradient(
    function: Callable[[Tensor], Tensor], read: Callable[[Tensor], object]
) -> None:
    found = []
    for is_read in (False, True):
        x = Tensor(np.sin(np.arange(12, dtype=np.float32)).reshape(3, 4)).realize()
        middle = function(x)
        later = middle * 2
        if is_read:
            read(middle)
        loss = (later * middle).sum()
        explicit = loss.gradient(x, middle, later)
        loss.backward()
        found.append([t.numpy() for t in (x.grad, middle.grad, later.grad, *explicit)])
    for plain, after_reading in zip(*found, strict=True):
        np.testing.assert_allclose(after_reading, plain, rtol=1e-5, atol=1e-6)


def test_arrays_that_were_read_one_after_the_other(weight: Tensor) -> None:
    value = weight
    for _ in range(4):
        value = value * weight
        value.numpy()
    value.sum().backward()
    np.testing.assert_allclose(weight.grad.numpy(), 5 * weight.numpy() ** 4)


def test_arrays_that_were_read_do_not_keep_large_inputs(weight: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "_MOST_BYTES", 1 << 16)
    monkeypatch.setattr(origins, "_LOOK_EVERY", 1)
    batch = Tensor.full((1 << 15,), 2.0).contiguous().realize()
    seen = weakref.ref(batch.uop.base)
    value = batch * weight.sum()
    value.numpy()
    del batch
    assert seen() is None
    with pytest.warns(RuntimeWarning, match=r"a value of 32768 elements was read before"):
        value.sum().backward()
    assert weight.grad is None


def test_what_is_realized_and_not_read_is_where_gradients_end(weight: Tensor) -> None:
    value = (weight * 2).realize()
    value.sum().backward()
    assert weight.grad is None


FRESH: dict[str, Callable[[], Tensor]] = {
    "ones": lambda: Tensor.ones(3),
    "full": lambda: Tensor.full((3,), 2.0),
    "computed from ones": lambda: Tensor.ones(3) * 2 + 1,
    "range": lambda: Tensor.arange(3.0).clone(),
    "one number": lambda: Tensor(2.0, requires_grad=True),
    "drawn": lambda: Tensor.uniform(3),
}


@pytest.mark.parametrize("make", FRESH.values(), ids=FRESH)
def test_weights_that_have_no_value_before_the_read(make: Callable[[], Tensor]) -> None:
    weight, other = make(), Tensor.ones(3)
    loss = (weight * weight * other).sum()
    loss.item()
    loss.backward()
    np.testing.assert_allclose(weight.grad.numpy(), 2 * weight.numpy() * 3 / weight.numel())
    np.testing.assert_allclose(other.grad.numpy(), np.broadcast_to(weight.numpy() ** 2, 3))


def test_a_weight_that_the_read_itself_overwrites() -> None:
    weight = Tensor.ones(3)
    loss = (weight * weight).sum()
    weight.assign(Tensor.full((3,), 5.0, buffer=False))
    Tensor.realize(loss, weight)
    with pytest.warns(RuntimeWarning, match="get no gradient"):
        loss.backward()
    assert weight.grad is None


@pytest.mark.parametrize("norm", [lambda: nn.LayerNorm(4), lambda: nn.BatchNorm(4), lambda: nn.RMSNorm(4)])
def test_the_first_step_of_layers_that_start_from_ones(norm: Callable[[], Callable[[Tensor], Tensor]]) -> None:
    steps = []
    for is_read_first in (False, True):
        Tensor.manual_seed(3)
        layers = [nn.Linear(4, 4), norm(), nn.Linear(4, 1)]
        optimizer = nn.optim.SGD(nn.state.get_parameters(layers), lr=0.1)
        with Context(TRAINING=1):
            for _ in range(2):
                loss = (Tensor.arange(8).reshape(2, 4).float().sequential(layers) - 1).square().mean()
                if is_read_first:
                    loss.item()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        steps.append([p.numpy() for p in nn.state.get_parameters(layers)])
    for a, b in zip(*steps, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_training_loop_may_print_before_backward() -> None:
    losses = []
    for is_read_first in (False, True):
        Tensor.manual_seed(3)
        layer = nn.Linear(4, 1)
        optimizer = nn.optim.Adam(nn.state.get_parameters(layer), lr=0.1)
        x = Tensor.arange(8).reshape(2, 4).float().realize()
        with Context(TRAINING=1):
            for _ in range(3):
                loss = layer(x).dropout(0.1).square().mean()
                if is_read_first:
                    loss.item()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    np.testing.assert_allclose(losses[3:], losses[:3], rtol=1e-5)


def test_graphs_do_not_pile_up(weight: Tensor) -> None:
    kept = [(weight * i).sum() for i in range(origins._MOST + 10)]
    for number in kept:
        number.item()
    assert len(origins._origins) <= origins._MOST
    del kept, number
    assert not origins._origins


def test_a_loop_that_keeps_losses_does_not_keep_inputs(weight: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "_MOST_BYTES", 1 << 16)
    losses, inputs = [], []
    for i in range(40):
        batch = Tensor.full((1 << 10,), float(i)).contiguous().realize()
        inputs.append(weakref.ref(batch.uop.base))
        loss = (weight.sum() * batch).mean()
        losses.append((loss.item(), loss))
    del batch
    assert sum(ref() is not None for ref in inputs) <= 16 + origins._LOOK_EVERY, "16 of 4 KiB, and the last ones"
    losses[-1][1].backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [39.0] * weight.numel()


def test_a_parameter_of_one_element_stays_a_parameter() -> None:
    weight = (Tensor([1.0]) * 3).realize()
    optimizer = nn.optim.SGD([weight], lr=0.5)
    with Context(TRAINING=1):
        for expected in (9.0, 0.0, 0.0):
            optimizer.zero_grad()
            loss = (weight * weight).sum()
            assert loss.item() == expected
            loss.backward()
            optimizer.step()


def test_a_replay_reads_what_a_number_has_become() -> None:
    scale = (Tensor([1.0]) * 3).realize()

    @TinyJit
    def slope(x: Tensor) -> Tensor:
        return (x * scale * scale).sum().gradient(x)[0].realize()

    for factor in (3.0, 3.0, 3.0, 5.0):
        scale.assign(Tensor([factor])).realize()
        assert slope(Tensor([1.0, 2.0]).realize()).tolist() == [factor**2] * 2


@pytest.mark.parametrize("is_argument", [False, True])
def test_a_replay_that_overwrites_a_weight_ends_it(is_argument: bool) -> None:
    weight = Tensor([1.0, 2.0]).clone().realize()

    @TinyJit
    def double(w: Tensor) -> None:
        (w if is_argument else weight).assign(weight * 2).realize()

    for _ in range(4):
        double(weight if is_argument else Tensor([0.0]).realize())
    loss = (weight * weight).sum()
    loss.item()
    double(weight if is_argument else Tensor([0.0]).realize())
    with pytest.warns(RuntimeWarning, match="read before"):
        loss.backward()
    assert weight.grad is None, "the value that the gradient needs is gone"


def written(w: Tensor) -> Tensor:
    z = Tensor.zeros(70, 70).contiguous().realize()
    return (z.assign(w * 3) * w).sum()


def filled(w: Tensor) -> Tensor:
    z = Tensor.zeros(70, 70).contiguous()
    z[:] = w * 3
    return z.square().sum() + (w * w).sum()


def marked(w: Tensor) -> Tensor:
    mask = Tensor.zeros(70, 70).contiguous()
    mask[3:9] = 1.0
    mask[:, 2] = 2.0
    return (mask * w).square().sum()


def copied(w: Tensor) -> Tensor:
    return (w.clone() * 3 + (w * 2).clone() * w).sum()


POSITIONS = Tensor.arange(70).reshape(1, 70).expand(70, 70)
WITH_KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "written": written,
    "filled": filled,
    "marked": marked,
    "copied": copied,
    "attention": lambda w: w[None].scaled_dot_product_attention(w[None] * 2, w[None] + 1).square().sum(),
    "attention of heads": lambda w: (
        Tensor.stack(w, w).scaled_dot_product_attention(Tensor.stack(w, w * 2), Tensor.stack(w, w)).square().sum()
    ),
    "cumsum": lambda w: w.flatten().cumsum(0).square().mean(),
    "sort": lambda w: (w.flatten().sort()[0] * Tensor.arange(4900)).mean(),
    "masked": lambda w: w[w > 0].square().sum(),
    "scatter": lambda w: Tensor.zeros(70, 70).scatter(0, POSITIONS, w).square().sum(),
    "qr": lambda w: w[:8, :8].qr()[1].square().sum(),
    "inverse": lambda w: w[:4, :4].inverse().square().sum(),
}


@pytest.mark.parametrize("read", ["loss", "double", "detached"])
@pytest.mark.parametrize("name", WITH_KERNELS)
def test_losses_over_written_storage_and_over_kernels_of_their_own(name: str, read: str) -> None:
    values = np.random.default_rng(0).standard_normal((70, 70)).astype(np.float32)
    weight = Tensor(values).realize()
    expected = WITH_KERNELS[name](weight).gradient(weight)[0].numpy()
    weight = Tensor(values).realize()
    loss = WITH_KERNELS[name](weight)
    {"loss": loss, "double": loss * 2, "detached": loss.detach()}[read].item()
    found = loss.gradient(weight)[0].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * max(1, abs(expected).max()))


PARTS: dict[str, Callable[[Tensor, Tensor], None]] = {
    "slice": lambda z, w: z.__setitem__(slice(1, None), w[1:] * 2),
    "one element": lambda z, w: z.__setitem__(2, w[0] * w[1]),
    "steps": lambda z, w: z.__setitem__(slice(None, None, 2), (w * w)[:2]),
    "twice": lambda z, w: (z.__setitem__(slice(1, None), w[:2]), z.__setitem__(slice(0, 2), w[1:] * 3)),
    "all, then a part": lambda z, w: (z.assign(w * w), z.__setitem__(0, 5.0)),
    "a copy": lambda z, w: z.__setitem__(slice(1, None), w[1:]),
    "a mask": lambda z, w: z.__setitem__(Tensor([True, False, True]), w[:2] * 2),
}
PART_READS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "loss": lambda loss, z: loss.item(),
    "storage": lambda loss, z: z.tolist(),
    "both": lambda loss, z: (z.tolist(), loss.item()),
    "loss first": lambda loss, z: (loss.item(), z.tolist()),
}


@pytest.mark.parametrize("read", PART_READS)
@pytest.mark.parametrize("write", PARTS)
def test_a_part_of_storage_that_was_written_before_the_read(write: str, read: str) -> None:
    found = []
    for is_read in (False, True):
        weight, z = Tensor([1.0, 2.0, 3.0]).realize(), Tensor([4.0, 5.0, 6.0]).clone().realize()
        PARTS[write](z, weight)
        loss = (z * z * weight).sum()
        if is_read:
            PART_READS[read](loss, z)
        loss.backward()
        found.append([weight.grad.tolist(), z.grad.tolist(), z.tolist()])
    assert found[0] == found[1]


def test_parts_that_are_written_one_after_the_other() -> None:
    weight, z = Tensor([1.0, 2.0, 3.0]).realize(), Tensor.zeros(4, 3).contiguous().realize()
    for i in range(4):
        z[i] = weight * i
        assert z.sum().item() == 6.0 * sum(range(i + 1))
    (z * z).sum().backward()
    assert weight.grad.tolist() == [28.0, 56.0, 84.0]


def test_a_part_that_was_computed_from_what_it_overwrites_ends_a_gradient_with_a_warning() -> None:
    weight = Tensor([1.0, 2.0, 3.0]).realize()
    z = Tensor.ones(3).contiguous().realize()
    z[1:] = weight[1:] * z[:2]
    loss = (z * weight).sum()
    loss.item()
    with pytest.warns(RuntimeWarning, match="get no gradient through it"):
        loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1.0, 2.0, 3.0], "what does not go through z"


def test_a_write_to_what_was_read() -> None:
    weight = Tensor([1.0, 2.0]).realize()
    z = weight * 2
    z.tolist()
    z[0] = 5.0
    assert (z * z).sum().gradient(weight)[0].tolist() == [0.0, 16.0]
    assert z.tolist() == [5.0, 4.0]
    assert (z * z).sum().gradient(weight)[0].tolist() == [0.0, 16.0]


@pytest.mark.parametrize("is_gradient_first", [False, True])
def test_a_pending_write_of_what_was_read_happens_once(is_gradient_first: bool) -> None:
    weight, z = Tensor([1.0, 2.0]).realize(), Tensor([10.0, 20.0]).clone().realize()
    tripled = weight * 3
    tripled.tolist()
    z += tripled * 2
    found = (z * z).sum().gradient(weight)[0]
    if is_gradient_first:
        assert found.tolist() == [192.0, 384.0]
    assert z.tolist() == [16.0, 32.0]
    assert found.tolist() == [192.0, 384.0]


@pytest.mark.parametrize("name", ["sort", "cumsum", "scatter", "qr"])
def test_kernels_that_read_what_was_read(name: str) -> None:
    values = np.random.default_rng(0).standard_normal((70, 70)).astype(np.float32)
    found = []
    for is_read in (False, True):
        weight = Tensor(values).realize()
        doubled = weight * 2
        if is_read:
            doubled.numpy()
        loss = WITH_KERNELS[name](doubled)
        found.append((loss.gradient(weight)[0].numpy(), loss.item()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-4, atol=1e-5 * abs(found[0][0]).max())
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-5)


LATER: dict[str, Callable[[Tensor], object]] = {"tolist": Tensor.tolist, "realize": Tensor.realize}
DATA: dict[str, Callable[[], Tensor]] = {
    "a list": lambda: Tensor([1.5, 2.5]),
    "storage": lambda: Tensor([1.5, 2.5]).realize(),
    "ones": lambda: Tensor.ones(2),
    "a range": lambda: Tensor.arange(2.0),
    "computed": lambda: Tensor([1.5, 2.5]) * 2,
}


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("data", DATA)
def test_what_a_value_was_computed_from_gets_storage_after_it(data: str, later: str) -> None:
    found = []
    for is_read in (False, True):
        x = DATA[data]()
        middle = x * 2
        y = middle + x
        if is_read:
            y.tolist()
            LATER[later](middle)
            LATER[later](x)
        found.append([g.tolist() for g in (y * y).sum().gradient(x, middle, y)])
    assert found[0] == found[1]


COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": Tensor.clone,
    "contiguous": Tensor.contiguous,
    "pad": lambda x: x.pad((0, 0)),
    "cat": lambda x: Tensor.cat(x),
    "roll": lambda x: x.roll(0),
    "clone of a view": lambda x: x.reshape(2, 1).clone(),
    "view of a clone": lambda x: x.clone().reshape(2, 1),
    "slice": lambda x: x[1:].clone(),
    "clone of a clone": lambda x: x.clone().clone(),
    "another device": lambda x: x.to("CPU:1").to("CPU"),
}


@pytest.mark.parametrize("is_source_read", [False, True])
@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("data", sorted(DATA.keys() - {"computed"}))
def test_a_copy_of_data_that_is_read(data: str, copy: str, is_source_read: bool) -> None:
    found = []
    for is_read in (False, True):
        x = DATA[data]()
        y = COPIES[copy](x)
        if is_read:
            y.tolist()
            if is_source_read:
                x.tolist()
        loss = (y * y).sum() + (x * 3).sum()
        found.append([g.tolist() for g in loss.gradient(x, y)])
    assert found[0] == found[1]


def test_a_copy_of_data_that_nobody_shows_keeps_nothing() -> None:
    weight = Tensor([1.0, 2.0]).clone()
    weight.numpy()
    assert weight.uop.base not in origins._origins


def test_copies_of_one_value_are_variables_of_their_own() -> None:
    weight = Tensor([1.0, 2.0, 3.0]).realize()
    a, b = (weight * 2).clone(), (weight * 2).clone()
    loss = (a * 3 + b * 2).sum()
    loss.item()
    assert [g.tolist() for g in loss.gradient(a, b, weight)] == [[3.0] * 3, [2.0] * 3, [10.0] * 3]


@pytest.mark.parametrize("view", [
    lambda x: x.reshape(2, 1), lambda x: x[1:], lambda x: x.expand(3, 2), lambda x: x.flip(0),
])  # fmt: skip
def test_a_view_of_data_that_has_no_storage_yet(view: Callable[[Tensor], Tensor]) -> None:
    x = Tensor([1.5, 2.5])
    expected = view(x).square().sum().gradient(x)[0].tolist()
    x = Tensor([1.5, 2.5])
    y = view(x)
    y.numpy()
    assert y.square().sum().gradient(x)[0].tolist() == expected


@pytest.mark.parametrize("is_known", [False, True])
def test_a_warning_where_only_a_part_of_the_gradient_goes_another_way(is_known: bool) -> None:
    weight = Tensor([1.0, 2.0, 3.0]).realize()
    middle = (weight * 2).realize()
    middle = Tensor.stack(middle, weight * 3)[1].clone()
    if not is_known:
        middle.realize()
    squares = middle * middle * weight
    squares.tolist()
    middle[0] = 7.0  # the gradient of the squares needs what is overwritten
    total = (squares + weight).sum()
    if is_known:
        assert total.gradient(weight)[0].tolist() == [28.0, 109.0, 244.0]
    else:
        with pytest.warns(RuntimeWarning, match=r"tensors of shape \(3,\) get no gradient through it"):
            total.gradient(weight)


@pytest.mark.parametrize("data", [lambda: Tensor([1.0, 2.0]), lambda: Tensor.arange(2.0), lambda: Tensor.ones(2)])
def test_a_warning_for_data_of_every_kind(data: Callable[[], Tensor]) -> None:
    x, y = data(), Tensor([3.0, 4.0]).realize()
    y *= x.exp()  # its gradient would need what was overwritten
    y.tolist()
    with pytest.warns(RuntimeWarning, match=r"tensors of shape \(2,\) get no gradient through it"):
        y.sum().gradient(x)
