"""Optimisers: the documented values, and every step against torch."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch

from tinygrad import Context, GlobalCounters, Tensor, TinyJit, dtypes, nn
from tinygrad.errors import ArgumentError
from tinygrad.nn.optim import LAMB, LARS, SGD, Adam, AdamW, Muon, Optimizer, OptimizerGroup

RNG = np.random.default_rng(11)
SHAPES = [(3, 4), (5,), (2, 3, 2)]


@pytest.fixture(autouse=True)
def training():
    with Context(TRAINING=1):
        yield


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("make", "arguments", "expected"),
    [
        (SGD, {}, [0.512, 1.024, -1.536]),
        (SGD, {"momentum": 0.9}, [0.062, 0.124, -0.186]),
        (SGD, {"momentum": 0.9, "classic": True}, [0.062, 0.124, -0.186]),
        (SGD, {"momentum": 0.9, "nesterov": True}, [-0.108352, -0.216704, 0.325056]),
        (SGD, {"momentum": 0.9, "weight_decay": 0.1}, [0.024319, 0.048638, -0.072957]),
        (Adam, {}, [0.701589, 1.700626, -2.700385]),
        (AdamW, {"weight_decay": 0.1}, [0.675104, 1.644372, -2.614408]),
        (LAMB, {}, [0.414215, 1.407528, -2.406156]),
        (LARS, {}, [0.999439, 1.998878, -2.998317]),
    ],
)
def test_documented_values(make, arguments: dict, expected: list[float], fused: bool) -> None:
    p = Tensor([1.0, 2.0, -3.0])
    optimizer = make([p], lr=0.1, fused=fused, **arguments)
    for _ in range(3):
        optimizer.zero_grad()
        p.square().sum().backward()
        optimizer.step()
    np.testing.assert_allclose(p.numpy(), expected, rtol=0, atol=2e-6)


STEPS_OF_ONE_NUMBER = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    "LARS": {}, "Adam": {}, "AdamW": {}, "LAMB": {}, "Muon": {}, "Adagrad": {"weight_decay": 0.1},
    "Adadelta": {}, "RMSprop": {"weight_decay": 0.1}, "Adamax": {}, "NAdam": {}, "RAdam": {},
}  # fmt: skip


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", STEPS_OF_ONE_NUMBER)
def test_a_parameter_of_no_dims(name: str, fused: bool) -> None:
    if name == "Muon" and fused:
        pytest.skip("works on matrices")
    number, row = Tensor(2.0).clone(), Tensor([2.0]).clone()
    for p in (number, row):
        optimizer = getattr(nn.optim, name)([p], lr=0.1, fused=fused, **STEPS_OF_ONE_NUMBER[name])
        for _ in range(3):
            optimizer.zero_grad()
            (p * p * 2 + p).sum().backward()
            optimizer.step()
    assert number.shape == ()
    assert number.item() == row.item() != 2.0


class Pair:
    """The same parameters and the same gradients here and in torch."""

    def __init__(self, shapes: list[tuple[int, ...]] = SHAPES) -> None:
        values = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
        self.ours = [Tensor(v).clone().realize() for v in values]
        self.theirs = [torch.from_numpy(v.copy()).requires_grad_() for v in values]

    def give_gradients(self) -> None:
        for o, t in zip(self.ours, self.theirs, strict=True):
            gradient = RNG.standard_normal(o.shape).astype(np.float32)
            o.grad, t.grad = Tensor(gradient), torch.from_numpy(gradient)

    def assert_equal(self, atol: float = 1e-6) -> None:
        for o, t in zip(self.ours, self.theirs, strict=True):
            np.testing.assert_allclose(o.numpy(), t.detach().numpy(), rtol=1e-5, atol=atol)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("make", "make_torch", "arguments"),
    [
        (SGD, torch.optim.SGD, {"lr": 0.1}),
        (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
        (Adam, torch.optim.Adam, {"lr": 0.01}),
        (AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    ],
)
def test_steps_as_torch(make, make_torch, arguments: dict, fused: bool) -> None:
    pair = Pair()
    ours, theirs = make(pair.ours, fused=fused, **arguments), make_torch(pair.theirs, **arguments)
    for _ in range(5):
        pair.give_gradients()
        ours.step()
        theirs.step()
        pair.assert_equal()


BETAS = {"betas": (0.8, 0.95)}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, {"maximize": True, "weight_decay": 0.1}) for name in (
        "SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "Adamax", "NAdam", "RAdam",
    )),
    *((name, BETAS) for name in ("Adam", "AdamW", "Adamax", "NAdam", "RAdam")),
    ("SGD", {"momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"momentum": 0.9, "dampening": 1.0, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.0, "dampening": 0.3}),
    ("SGD", {"momentum": 0.9, "maximize": True, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("Adam", {"amsgrad": True, "betas": (0.5, 0.1), "maximize": True}),
    ("Adam", {"weight_decay": 0.1}),
    ("Adam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"amsgrad": True, "weight_decay": 0.1, "betas": (0.5, 0.1)}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
]  # fmt: skip


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_options_of_torch(name: str, options: dict[str, Any], fused: bool) -> None:
    pair = Pair()
    ours = getattr(nn.optim, name)(pair.ours, lr=0.01, fused=fused, **options)
    theirs = getattr(torch.optim, name)(pair.theirs, lr=0.01, **options)
    for _ in range(7):
        pair.give_gradients()
        ours.step()
        theirs.step()
        pair.assert_equal(atol=3e-6)


@pytest.mark.parametrize(("name", "options"), [
    ("SGD", {"momentum": 0.9, "dampening": 0.3}), ("Adam", {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
], ids=str)  # fmt: skip
def test_options_in_a_replayed_step(name: str, options: dict[str, Any]) -> None:
    weights = []
    for is_jitted in (False, True):
        weight = Tensor([[1.0, -2.0], [0.5, 3.0]]).clone().realize()
        optimizer = getattr(nn.optim, name)([weight], lr=0.01, **options)

        def step(x: Tensor, weight: Tensor = weight, optimizer: Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = (x @ weight).square().sum().backward()
            optimizer.step()
            return loss.realize()

        run = TinyJit(lambda x, step=step: step(x)) if is_jitted else step
        for i in range(6):
            run(Tensor([[1.0, float(i)]]).realize())
        weights.append(weight.numpy())
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-6)


def test_options_that_do_not_fit() -> None:
    p = Tensor([1.0])
    with pytest.raises(ValueError, match=r"nesterov with dampening=0\.5; expected no dampening"):
        SGD([p], momentum=0.9, nesterov=True, dampening=0.5)
    with pytest.raises(ValueError, match=r"b2 must be in \[0, 1\), got 1\.5"):
        Adam([p], betas=(0.9, 1.5))
    groups: Any = [{"params": [p], "lr": 0.1}]
    with pytest.raises(ArgumentError, match=r"params hold .*no Tensor; make an optimiser for each group of options"):
        SGD(groups)


REFUSED: dict[str, list[Any]] = {
    "lr": [-0.1], "momentum": [-0.1], "weight_decay": [-0.1, float("nan")], "eps": [-1e-8, float("nan")],
    "betas": [(1.0, 0.9), (-0.1, 0.9), (0.9, 1.0), (0.9, -0.1), (0.9, float("nan"))], "rho": [-0.1, 1.1],
    "alpha": [-0.1], "lr_decay": [-0.1], "initial_accumulator_value": [-0.1], "nesterov": [True],
    "momentum_decay": [-0.1],
}  # fmt: skip


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "Adamax", "NAdam", "RAdam"])
def test_what_torch_refuses_is_refused_by_name(name: str) -> None:
    theirs, ours = getattr(torch.optim, name), getattr(nn.optim, name)
    tried = 0
    for option, values in REFUSED.items():
        for value in values if option in inspect.signature(theirs).parameters else ():
            try:
                theirs([torch.ones(1, requires_grad=True)], **{option: value})
            except ValueError:
                tried += 1
                part = {"betas": r"b[12] must be in \[0, 1\)", "lr": "learning rate"}.get(option, option)
                with pytest.raises(ValueError, match=rf"^{name}: (the )?{part}"):
                    ours([Tensor([1.0])], **{option: value})
    assert tried > 2


@pytest.mark.parametrize("name", ["Adam", "LAMB", "Adamax"])
@pytest.mark.parametrize("betas", [(0.9,), (0.9, 0.9, 0.9)])
def test_betas_are_a_pair(name: str, betas: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: betas must be two numbers, got \({betas[0]}"):
        getattr(nn.optim, name)([Tensor([1.0])], betas=betas)


@pytest.mark.parametrize("make", [SGD, Muon, Adam, AdamW, LARS, LAMB])
def test_a_parameter_without_gradient_is_refused_in_the_name_that_was_called(make: Any) -> None:
    with pytest.raises(RuntimeError, match=rf"^{make.__name__}: a parameter of dtype dtypes.int has no gradient"):
        make([Tensor([1])])


def test_momentum_0_of_muon_is_no_error() -> None:
    assert Muon([Tensor([[1.0]])], momentum=0.0).b == []


def test_learning_rate_may_change() -> None:
    pair = Pair()
    ours, theirs = SGD(pair.ours, lr=0.1, momentum=0.9), torch.optim.SGD(pair.theirs, lr=0.1, momentum=0.9)
    for rate in (0.1, 0.05, 0.01):
        ours.lr.assign(Tensor([rate]))
        theirs.param_groups[0]["lr"] = rate
        pair.give_gradients()
        ours.step()
        theirs.step()
        pair.assert_equal()
    assert ours.lr.shape == (1,)
    assert ours.lr.dtype == dtypes.float32


def test_classic_momentum_differs_once_the_rate_changes() -> None:
    results = []
    for classic in (False, True):
        p = Tensor([1.0])
        optimizer = SGD([p], lr=0.1, momentum=0.9, classic=classic)
        for rate in (0.1, 0.2):
            optimizer.lr.assign(Tensor([rate]))
            p.grad = Tensor([1.0])
            optimizer.step()
        results.append(p.item())
    np.testing.assert_allclose(results, [1 - 0.1 - 0.2 * 1.9, 1 - 0.1 - (0.09 + 0.2)], rtol=1e-6)


def test_muon_orthogonalises() -> None:
    p = Tensor(RNG.standard_normal((4, 6)).astype(np.float32)).clone().realize()
    before = p.numpy()
    optimizer = Muon([p], lr=1.0, weight_decay=0.0)
    p.grad = Tensor(RNG.standard_normal((4, 6)).astype(np.float32))
    optimizer.step()
    singular = np.linalg.svd(before - p.numpy(), compute_uv=False)
    assert singular.min() > 0.6
    assert singular.max() < 1.3


def test_muon_decay_comes_after() -> None:
    p = Tensor([[2.0, 0.0], [0.0, 2.0]])
    optimizer = Muon([p], lr=0.1, weight_decay=0.5)
    p.grad = Tensor.zeros(2, 2)
    optimizer.step()
    np.testing.assert_allclose(p.numpy(), np.eye(2) * (2 - 0.1 * 0.5 * 2), rtol=1e-6)


def test_lamb_and_lars_take_each_parameter_for_itself_when_fused() -> None:
    for make in (LAMB, LARS):
        results = []
        for fused in (False, True):
            params = [Tensor([3.0, 4.0]), Tensor([[0.1], [0.2]]), Tensor.zeros(2)]
            optimizer = make(params, lr=0.1, fused=fused, weight_decay=0.01)
            for _ in range(2):
                for index, p in enumerate(params):
                    p.grad = Tensor.full(p.shape, 0.5 + index)
                optimizer.step()
            results.append(np.concatenate([p.numpy().ravel() for p in params]))
        np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


def test_parameters_and_buffers() -> None:
    p, q, buffer = Tensor([1.0]), Tensor([2.0]), Tensor([3.0]).is_param_(False)
    optimizer = SGD([p, buffer, q, p], lr=1.0)
    assert [t is expected for t, expected in zip(optimizer.params, (p, q), strict=True)] == [True, True]
    assert len(optimizer.buffers) == 1
    buffer.assign(buffer + 1)
    p.grad, q.grad = Tensor([1.0]), Tensor([1.0])
    optimizer.step()
    assert (p.item(), q.item(), buffer.item()) == (0.0, 1.0, 4.0)
    optimizer.zero_grad()
    assert p.grad is None


def test_state_of_half_parameters_is_float() -> None:
    p = Tensor([1.0, 2.0], dtype=dtypes.half)
    optimizer = Adam([p], lr=0.5)
    p.grad = Tensor([300.0, 300.0], dtype=dtypes.half)  # its square overflows half
    optimizer.step()
    assert p.dtype == dtypes.half
    assert optimizer.v[0].dtype == optimizer.param_dtype == dtypes.float32
    np.testing.assert_array_equal(p.numpy(), np.array([0.5, 1.5], dtype=np.float16))


def test_errors() -> None:
    p = Tensor([1.0])
    with pytest.raises(ValueError, match="learning rate must not be negative, got -1"):
        SGD([p], lr=-1.0)
    with pytest.raises(ValueError, match="momentum must not be negative"):
        SGD([p], momentum=-0.1)
    with pytest.raises(ValueError, match="weight_decay must not be negative"):
        AdamW([p], weight_decay=-0.1)
    with pytest.raises(AssertionError, match="none of the 1 tensors has is_param set"):
        SGD([Tensor([1.0]).is_param_(False)])
    with pytest.raises(AssertionError, match="cannot be fused"):
        Muon([p], fused=True)
    with pytest.raises(AssertionError, match=r"parameter 0 of shape \(1,\) has no gradient"):
        SGD([p]).step()
    with Context(TRAINING=0), pytest.raises(RuntimeError, match="TRAINING must be enabled"):
        SGD([p]).step()


def test_schedule_step_runs_nothing() -> None:
    pair = Pair()
    optimizer = Adam(pair.ours)
    pair.give_gradients()
    before = GlobalCounters.kernel_count
    tensors = optimizer.schedule_step()
    assert GlobalCounters.kernel_count == before
    Tensor.realize(*tensors)
    theirs = torch.optim.Adam(pair.theirs)
    theirs.step()
    pair.assert_equal()


def test_one_kernel_writes_state_and_parameter() -> None:
    pair = Pair([(3, 4), (5,)])
    optimizer = Adam(pair.ours)
    for _ in range(2):
        pair.give_gradients()
        for p in pair.ours:
            p.grad = p.grad.clone().realize()
        before = GlobalCounters.kernel_count
        optimizer.step()
    # One for each parameter, and at most two for the powers of the decay rates.
    assert GlobalCounters.kernel_count - before <= 4


def test_group() -> None:
    p, q = Tensor([1.0]), Tensor([1.0])
    group = OptimizerGroup(SGD([p], lr=1.0), SGD([q], lr=2.0))
    assert isinstance(group, Optimizer)
    assert len(group.params) == 2
    assert group[1].lr.item() == 2.0
    p.grad, q.grad = Tensor([0.25]), Tensor([0.25])
    group.step()
    assert (p.item(), q.item()) == (0.75, 0.5)
    group.zero_grad()
    assert p.grad is None
    assert q.grad is None


def test_a_subclass_defines_the_step() -> None:
    class SignDescent(Optimizer):
        def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            return [self.lr * g.sign() for g in grads], []

    p = Tensor([1.0, 1.0])
    optimizer = SignDescent([p], lr=0.5)
    p.grad = Tensor([-7.0, 3.0])
    optimizer.step()
    assert p.tolist() == [1.5, 0.5]


def test_jitted_training_is_the_same() -> None:
    x, y = RNG.standard_normal((6, 8, 3)).astype(np.float32), RNG.integers(0, 4, (6, 8)).astype(np.int32)
    losses = []
    for jitted in (False, True):
        Tensor.manual_seed(3)
        layer = nn.Linear(3, 4)
        optimizer = Adam(nn.state.get_parameters(layer), lr=0.1)

        def step(x: Tensor, y: Tensor, layer: nn.Linear = layer, optimizer: Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = layer(x).sparse_categorical_crossentropy(y).backward()
            return loss.realize(*optimizer.schedule_step())

        run = TinyJit(step) if jitted else step
        losses.append([
            run(Tensor(a).clone().realize(), Tensor(b).clone().realize()).item() for a, b in zip(x, y, strict=True)
        ])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    assert losses[0][-1] != losses[0][0]


def test_two_micro_batches_per_step() -> None:
    p = Tensor([1.0, 2.0])
    optimizer = SGD([p], lr=1.0)
    for factor in (0.25, 0.5):
        (p * factor).sum().backward()
    optimizer.step()
    assert p.tolist() == [0.25, 1.25]


@pytest.mark.parametrize("value", [1.0, 2.0, 0.0])
@pytest.mark.parametrize("make", [nn.optim.SGD, nn.optim.Adam, nn.optim.Muon])
def test_a_constant_can_be_a_parameter(make: Any, value: float) -> None:
    """Its gradient is its own: not that of literals of the same value."""
    scale = Tensor(value)
    optimizer = make([scale], lr=0.5)
    x = Tensor([1.0, 2.0, 3.0])
    with Context(TRAINING=1):
        optimizer.zero_grad()
        (x * scale * value + scale + value).sum().backward()
        assert scale.grad is not None
        assert scale.grad.item() == 6 * value + 3
        optimizer.step()
    assert scale.item() < value
