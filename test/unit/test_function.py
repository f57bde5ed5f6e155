"""``@function``: one call node, its inputs, its gradient, its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, Tensor, TinyJit, function, nn
from tinygrad.function import _function, pm_ctx
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp


@function
def layer(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).relu()


def operands() -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    x, w = (Tensor(rng.standard_normal(s).astype(np.float32)).realize() for s in ((3, 4), (4, 5)))
    return x, w


def test_the_call_is_one_node() -> None:
    x, w = operands()
    node = layer(x, w).uop
    assert node.op is Ops.GETTUPLE
    call = node.src[0]
    assert call.op is Ops.FUNCTION
    assert call.src[1:] == (x.uop, w.uop)
    assert call.arg.name == "layer"
    body = call.src[0]
    slots = {u.arg.slot: u.shape for u in body.toposort() if u.op is Ops.PARAM}
    assert slots == {0: (3, 4), 1: (4, 5)}
    assert not any(u.op is Ops.BUFFER for u in body.toposort())
    assert isinstance(layer, _function)
    assert isinstance(pm_ctx, PatternMatcher)


def test_value_and_gradient_are_those_of_the_body() -> None:
    x, w = operands()
    result = layer(x, w)
    expected = np.maximum(x.numpy() @ w.numpy(), 0)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)
    layer(x, w).sum().backward()
    by_call = x.grad.numpy(), w.grad.numpy()
    x.grad = w.grad = None
    layer.fxn(x, w).sum().backward()
    np.testing.assert_allclose(by_call[0], x.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(by_call[1], w.grad.numpy(), rtol=1e-6)


def test_gradient_is_a_call_with_a_name_of_its_own() -> None:
    x, w = operands()
    (gradient,) = layer(x, w).sum().gradient(x)
    names = {u.arg.name for u in gradient.uop.toposort() if u.op is Ops.FUNCTION}
    assert "layer_backward" in names


def test_second_derivative() -> None:
    @function
    def cube(x: Tensor) -> Tensor:
        return x * x * x

    x = Tensor([2.0])
    (first,) = cube(x).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    assert (first.item(), second.item()) == (12.0, 12.0)


def test_several_results_and_nested_arguments() -> None:
    @function
    def split(data: dict[str, Any], scale: float) -> tuple[Tensor, Tensor]:
        a, b = data["pair"]
        return a + b, (a * scale).sum()

    a, b = Tensor([1.0, 2.0]), Tensor([10.0, 20.0])
    total, scaled = split({"pair": [a, b]}, scale=3.0)
    assert (total.tolist(), scaled.item()) == ([11.0, 22.0], 9.0)
    total, scaled = split({"pair": [a, b]}, scale=3.0)
    (total.sum() + scaled).backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([4.0, 4.0], [1.0, 1.0])


def test_equal_inputs_are_one_input() -> None:
    x, _ = operands()

    @function
    def twice(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    call = twice(x, x).uop.src[0]
    assert len(call.src) == 2


def test_method_with_layers() -> None:
    class Model:
        def __init__(self) -> None:
            self.l1, self.norm = nn.Linear(4, 3), nn.BatchNorm(3)

        @function
        def __call__(self, x: Tensor) -> Tensor:
            return self.norm(self.l1(x)).relu().dropout(0.5)

    model, x = Model(), operands()[0]
    expected = Model.__call__.fxn(model, x).numpy()
    np.testing.assert_allclose(model(x).numpy(), expected, rtol=1e-6)
    with Tensor.train():
        model(x).sum().backward()
        assert model.l1.weight.grad.shape == (3, 4)
        assert np.isfinite(model.l1.weight.grad.numpy()).all()
    assert model.norm.num_batches_tracked.item() == 1
    assert model(x).uop.src[0].arg.name.endswith("Model.__call__")


def test_implicit_inputs() -> None:
    x, w = operands()

    def closure(a: Tensor) -> Tensor:
        return a @ w

    with pytest.raises(RuntimeError, match=r"1 implicit buffer\(s\)"):
        function(closure)(x)
    allowed = function(closure, allow_implicit=True)
    np.testing.assert_allclose(allowed(x).numpy(), x.numpy() @ w.numpy(), rtol=1e-6)
    allowed(x).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), np.repeat(x.numpy().sum(0)[:, None], 5, 1), rtol=1e-5)


def test_reading_inside_is_refused() -> None:
    for read in (lambda t: Tensor(t.sum().item()), lambda t: (t + 1).realize(), lambda t: Tensor(t.numpy())):
        with pytest.raises(AssertionError, match=r"usage of device .* disallowed"):
            function(read)(operands()[0])
    assert operands()[0].sum().item() != 0  # devices are usable again


@pytest.mark.parametrize("result", [3, None, [1], ()], ids=str)
def test_return_types(result: Any) -> None:
    with pytest.raises(RuntimeError, match="function return type"):
        function(lambda t: result)(operands()[0])


def test_given_gradient() -> None:
    def hundredfold(grad: UOp, call: UOp) -> tuple[UOp]:
        assert call.op is Ops.FUNCTION
        return (grad * 100,)

    @function(grad_fxn=hundredfold)
    def triple(x: Tensor) -> Tensor:
        return x * 3

    x = Tensor([1.0, 2.0])
    triple(x).sum().backward()
    assert x.grad.tolist() == [100.0, 100.0]


def test_random_numbers_inside() -> None:
    @function
    def noisy(x: Tensor) -> Tensor:
        return x + Tensor.rand(4)

    x = Tensor.zeros(4)
    Tensor.manual_seed(4)
    results = [noisy(x).numpy() for _ in range(2)]
    Tensor.manual_seed(4)
    np.testing.assert_array_equal(results, [Tensor.rand(4).numpy() for _ in range(2)])


def test_inside_of_a_jit() -> None:
    x, w = operands()
    step = TinyJit(lambda a, b: layer(a, b).sum().realize())
    expected = np.maximum(x.numpy() @ w.numpy(), 0).sum()
    for _ in range(4):
        np.testing.assert_allclose(step(x, w).item(), expected, rtol=1e-5)


def test_a_function_in_a_function() -> None:
    @function
    def outer(x: Tensor, w: Tensor) -> Tensor:
        return layer(x, w) * 2 + layer(x, w)

    x, w = operands()
    np.testing.assert_allclose(outer(x, w).numpy(), 3 * np.maximum(x.numpy() @ w.numpy(), 0), rtol=1e-6)
    outer(x, w).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 3 * (x.numpy().T @ (x.numpy() @ w.numpy() > 0)), rtol=1e-5)


# ---- writes inside of the body -------------------------------------------------------------------------------------


def _adds(t: Tensor, u: Tensor) -> Tensor:
    t.assign(t + 1)
    return t * u


def _reads_between_two_writes(t: Tensor, u: Tensor) -> Tensor:
    before = t * 10
    t.assign(t + 1)
    between = t * u
    t.assign(t * 3)
    return before + between


def _writes_a_part(t: Tensor, u: Tensor) -> Tensor:
    t[0] = 5.0
    return t + u


def _returns_what_it_wrote(t: Tensor, u: Tensor) -> Tensor:
    t.assign(t + u)
    return t


def _does_not_use_what_it_wrote(t: Tensor, u: Tensor) -> Tensor:
    t.assign(t + u)
    return u * 1


WRITES = {
    _adds: ([4.0, 6.0], [2.0, 3.0]),
    _reads_between_two_writes: ([14.0, 26.0], [6.0, 9.0]),
    _writes_a_part: ([7.0, 4.0], [5.0, 2.0]),
    _returns_what_it_wrote: ([3.0, 4.0], [3.0, 4.0]),
    _does_not_use_what_it_wrote: ([2.0, 2.0], [3.0, 4.0]),
}


@pytest.mark.parametrize("body", WRITES, ids=lambda body: body.__name__.strip("_"))
@pytest.mark.parametrize("precompile", [False, True])
@pytest.mark.parametrize("result_first", [False, True])
def test_writes_in_the_body_happen_once(body: Any, precompile: bool, result_first: bool) -> None:
    t, u = Tensor([1.0, 2.0]).clone().realize(), Tensor([2.0, 2.0]).clone().realize()
    result = function(body, precompile=precompile)(t, u)
    order = [result, t] if result_first else [t, result]
    for tensor in order:
        tensor.realize()
    assert (result.tolist(), t.tolist()) == WRITES[body]


def test_gradient_through_a_write_in_the_body() -> None:
    t, w = Tensor([1.0, 2.0]).clone().realize(), Tensor([3.0, 4.0]).clone().realize()

    @function
    def squares(t: Tensor, w: Tensor) -> Tensor:
        t.assign(w * 2)
        return (t * w).sum()

    squares(t, w).backward()
    assert w.grad is not None
    assert (w.grad.tolist(), t.tolist()) == ([12.0, 16.0], [6.0, 8.0])


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("write", ["assign", "setitem", "positions", "view"])
def test_writes_to_what_is_no_argument_are_implicit(write: str, is_read: bool) -> None:
    hidden, x = Tensor([1.0, 2.0]).clone().realize(), Tensor([1.0, 1.0]).clone().realize()

    def body(x: Tensor) -> Tensor:
        if write == "assign":
            hidden.assign([5.0, 2.0])
        elif write == "view":
            part = hidden[:1]
            part += 4
        else:
            hidden[0 if write == "setitem" else Tensor([0])] = 5.0
        return x + hidden if is_read else x * 2

    with pytest.raises(RuntimeError, match=r"1 implicit buffer\(s\)"):
        function(body)(x)
    assert hidden.tolist() == [1.0, 2.0], "nothing is written by a call that is refused"
    result = function(body, allow_implicit=True)(x)
    assert hidden.tolist() == [5.0, 2.0]
    assert result.tolist() == ([6.0, 3.0] if is_read else [2.0, 2.0])


def test_writes_to_arguments_that_are_not_read() -> None:
    class Counter:
        def __init__(self) -> None:
            self.calls = Tensor([0.0]).clone().realize()

        @function
        def __call__(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * 2

    counter = Counter()
    for _ in range(3):
        assert counter(Tensor([1.0]).realize()).tolist() == [2.0]
    assert counter.calls.tolist() == [3.0]


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "logcumsumexp", "sort", "attention", "qr", "svd"])
def test_operations_with_kernels_of_their_own(name: str) -> None:
    shape = (6, 4) if name in {"qr", "svd"} else (70, 600)
    x = Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32)).realize()

    def run(x: Tensor) -> Tensor:
        if name == "attention":
            return x.scaled_dot_product_attention(x, x)
        result = getattr(x, name)(*([] if name in {"qr", "svd"} else [1]))
        return result[0] if isinstance(result, tuple) else result

    np.testing.assert_allclose(function(run)(x).numpy(), run(x).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["cumsum", "cummax", "logcumsumexp", "sort", "attention"])
@pytest.mark.parametrize("after", ["sin", "sort", "cummax"])
def test_gradient_through_calls_in_the_body(name: str, after: str) -> None:
    x = Tensor(np.random.default_rng(0).standard_normal((300, 70)).astype(np.float32)).realize()

    def apply(name: str, x: Tensor) -> Tensor:
        result = getattr(x, name)(*([] if name == "sin" else [1]))
        return result[0] if isinstance(result, tuple) else result

    def run(x: Tensor) -> Tensor:  # the body reads its argument, then calls, then reads it again
        y = x.tanh()
        y = y.scaled_dot_product_attention(x, y) if name == "attention" else apply(name, y)
        return apply(after, y * 0.1) * x

    expected = (run(x) ** 2).sum().gradient(x)[0].numpy()
    assert np.abs(expected).max() > 0.01
    got = (function(run)(x) ** 2).sum().gradient(x)[0].numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_numbers_written_in_the_body() -> None:
    x = Tensor(np.arange(70, dtype=np.float32)).realize()
    order = [(i * 7 + 3) % 70 for i in range(70)]
    for body in (
        lambda x: x[order] * 2,
        lambda x: x + Tensor(order),
        lambda x: x + Tensor(np.array(order, np.float32)),
        lambda x: x * Tensor([[0.5], [1.5]]),
    ):
        called = function(body)
        np.testing.assert_array_equal(called(x).numpy(), body(x).numpy())
        np.testing.assert_array_equal((called(x) + called(x * 2)).numpy(), (body(x) + body(x * 2)).numpy())
        got = [(f(x) ** 2).sum().gradient(x)[0].numpy() for f in (called, body)]
        np.testing.assert_array_equal(*got)
        replayed = TinyJit(lambda x, called=called: called(x).realize())
        for _ in range(4):
            np.testing.assert_array_equal(replayed(x).numpy(), body(x).numpy())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda g: (g, g), "returned 2 gradients for 1 arguments; return one for each, None where there is none"),
        (lambda g: (), "returned 0 gradients for 1 arguments"),
        (lambda g: (g.reshape(1, 2),), r"returned a gradient of shape \(1, 2\) for argument 0, .* of shape \(2,\)"),
        (lambda g: 3.0, r"returned a gradient of type float for argument 0, expected a tensor of shape \(2,\)"),
    ],
)
def test_answers_of_grad_fxn_that_are_no_gradients(answer, message: str) -> None:
    x = Tensor([3.0, 4.0]).realize()
    result = function(lambda x: x * x, grad_fxn=lambda g, call: answer(g))(x)
    with pytest.raises(RuntimeError, match=f"grad_fxn of .*{message}"):
        result.sum().backward()


def test_a_single_answer_of_grad_fxn() -> None:
    x = Tensor([3.0, 4.0]).realize()
    function(lambda x: x * x, grad_fxn=lambda g, call: g * 10)(x).sum().backward()
    assert x.grad.tolist() == [10.0, 10.0]


@pytest.mark.parametrize("other", [3, "name", [1]], ids=str)
def test_what_cannot_be_called(other: object) -> None:
    with pytest.raises(TypeError, match=r"function: .* is not callable"):
        function(other)
    with pytest.raises(TypeError, match=r"function: .* is not callable"):
        function(lambda x: x, grad_fxn=other)


def test_a_function_that_returns_nothing_in_a_tuple() -> None:
    with pytest.raises(RuntimeError, match=r"must be a Tensor or a tuple of Tensors, got tuple of \(\)"):
        function(lambda x: ())(Tensor([1.0]))
    with pytest.raises(RuntimeError, match=r"got tuple of \(Tensor, int\)"):
        function(lambda x: (x, 3))(Tensor([1.0]))


def test_tensors_in_slots_are_inputs() -> None:
    class Layer:
        __slots__ = ("absent", "weight")

        def __init__(self, weight: Tensor) -> None:
            self.weight = weight

    layer = Layer(Tensor([3.0]).realize())
    scaled = function(lambda layer, x: layer.weight * x)
    scaled(layer, Tensor([2.0]).realize()).sum().backward()
    assert layer.weight.grad.tolist() == [2.0]


# ---- random numbers --------------------------------------------------------------------------------------------------

RANDOM_BODIES: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: x.dropout(0.5),
    "rand": lambda x: x * Tensor.rand(*x.shape),
    "several draws": lambda x: x * Tensor.rand(*x.shape) * Tensor.randn(*x.shape),
    "nested": lambda x: function(lambda t: t.dropout(0.5))(x) * Tensor.rand(*x.shape),
}


@pytest.mark.parametrize("first", ["result", "gradient", "together"])
@pytest.mark.parametrize("precompile", [False, True])
@pytest.mark.parametrize("body", RANDOM_BODIES.values(), ids=RANDOM_BODIES.keys())
def test_a_call_and_its_gradient_see_the_same_random_numbers(
    body: Callable[[Tensor], Tensor], precompile: bool, first: str
) -> None:
    called = function(body, precompile=precompile, precompile_backward=precompile)
    with Context(TRAINING=1):
        x = Tensor.ones(100).contiguous().realize()
        y = called(x)
        gradient = y.sum().gradient(x)[0]
        parts = {"result": [[y], [gradient]], "gradient": [[gradient], [y]], "together": [[y, gradient]]}
        for part in parts[first]:
            Tensor.realize(*part)
    np.testing.assert_array_equal(gradient.numpy(), y.numpy())


def test_results_of_a_call_that_are_computed_one_by_one_see_the_same_random_numbers() -> None:
    @function
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        noise = Tensor.rand(3)
        return x + noise, noise * 2

    shifted, doubled = both(Tensor.zeros(3))
    np.testing.assert_array_equal(shifted.numpy() * 2, doubled.numpy())


def test_random_numbers_of_a_closure() -> None:
    noise = Tensor.rand(3)
    first, second = (function(lambda x: x * noise)(Tensor.ones(3)) for _ in range(2))
    assert first.tolist() == second.tolist() == noise.tolist()


def test_a_given_gradient_has_none_for_random_numbers() -> None:
    rounded = function(lambda x, y: (x + y + Tensor.rand(3)).floor(), grad_fxn=lambda grad, call: (grad, grad * 2))
    x, y = Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0])
    gradients = [g.tolist() for g in rounded(x, y).sum().gradient(x, y)]
    assert gradients == [[1, 1, 1], [2, 2, 2]]


def test_a_function_draws_from_a_state_that_a_new_seed_has_started_again() -> None:
    # The memory of a state that a capture uses is written anew for a new seed, by the next call that draws from it.
    jitted = TinyJit(lambda x: x + Tensor.rand(3))
    for _ in range(3):
        jitted(Tensor.zeros(3).contiguous().realize())
    noisy = function(lambda x: (x + Tensor.rand(3), Tensor.rand(2)), precompile=True)
    Tensor.manual_seed(5)
    first, second = (t.tolist() for t in noisy(Tensor.zeros(3)))
    Tensor.manual_seed(5)
    assert [first, second] == [Tensor.rand(3).tolist(), Tensor.rand(2).tolist()]


# ---- what asks the device, or looks at values ------------------------------------------------------------------------

# Nothing of this needs a value to build its graph, though some look at values, and some ask what the device can do.
ASKING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "std": lambda x, labels: x.std(0),
    "var": lambda x, labels: x.var(1),
    "var_mean": lambda x, labels: x.var_mean(1)[0],
    "normalize": lambda x, labels: x.normalize(2, 1),
    "layernorm": lambda x, labels: x.layernorm(),
    "sparse_categorical_crossentropy": lambda x, labels: x.sparse_categorical_crossentropy(labels),
    "cross_entropy": lambda x, labels: x.cross_entropy(labels),
    "nll_loss": lambda x, labels: x.log_softmax(1).nll_loss(labels),
    "multi_margin_loss": lambda x, labels: x.multi_margin_loss(labels),
    "quantile": lambda x, labels: x.quantile(labels / 4.0, 1),
    "attention": lambda x, labels: x[None, None].scaled_dot_product_attention(x[None, None], x[None, None]),
}


@pytest.mark.parametrize("body", ASKING.values(), ids=ASKING.keys())
def test_bodies_that_ask_the_device_or_look_at_values(body: Callable[[Tensor, Tensor], Tensor]) -> None:
    x = Tensor(np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)).realize()
    labels = Tensor([2, 0, 1]).contiguous().realize()
    found, expected = function(body)(x, labels), body(x, labels)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    gradients = [y.square().sum().gradient(x)[0].numpy() for y in (found, expected)]
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-5)


def test_multinomial_in_a_body() -> None:
    weights = Tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 3.0]]).contiguous().realize()
    assert function(lambda w: w.multinomial(1))(weights).tolist() == [[1], [2]]
