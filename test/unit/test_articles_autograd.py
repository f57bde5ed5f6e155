"""What the article on tensors and symbolic gradients says, name by name: graph, gradient table, @function."""

import itertools
import weakref
from pathlib import Path

import numpy as np
import pytest

from tinygrad import Context, GlobalCounters, Tensor, dtypes, function, nn
from tinygrad.function import _function, pm_ctx
from tinygrad.mixin.creation import CreationMixin
from tinygrad.mixin.elementwise import ElementwiseMixin
from tinygrad.mixin.gradient import _deepwalk, call_gradient, compute_gradient, pm_gradient, reduce_gradient
from tinygrad.mixin.movement import MovementMixin
from tinygrad.mixin.op import OpMixin
from tinygrad.mixin.rand import RandMixin
from tinygrad.mixin.reduce import ReduceMixin
from tinygrad.tensor import _apply_map_to_tensors, _fromnp, all_tensors
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import PatternMatcher, UOp


def stored(*values: float) -> Tensor:
    return Tensor(list(values)).realize()


# ---- a thin shell around a node --------------------------------------------------------------------------------------


def test_a_tensor_has_three_slots() -> None:
    assert sorted(Tensor.__slots__) == ["grad", "is_param", "uop"]
    t = Tensor([1.0, 2.0])
    assert t.grad is None
    assert isinstance(t.uop, UOp)


def test_optimizers_update_only_parameters() -> None:
    weight, statistics = Tensor([1.0]), Tensor([2.0]).is_param_(False)
    optimizer = nn.optim.SGD([weight, statistics], lr=0.1)
    assert [id(t) for t in optimizer.params] == [id(weight)]
    assert [id(t) for t in optimizer.buffers] == [id(statistics)]


def test_shape_dtype_and_device_are_those_of_the_node() -> None:
    t = Tensor([[1, 2, 3]])
    assert (t.shape, t.dtype, t.device) == (t.uop.shape, t.uop.dtype, t.uop.device) == ((1, 3), dtypes.int32, "CPU")
    for name in ("shape", "dtype", "device"):
        assert isinstance(getattr(Tensor, name), property)


@pytest.mark.parametrize(("data", "dtype"), [(None, dtypes.weakfloat), (3, dtypes.weakint), (2.5, dtypes.weakfloat)])
def test_scalars_become_constants(data: object, dtype: object) -> None:
    t = Tensor(data)
    assert t.uop is UOp.const(0.0 if data is None else data)
    assert t.uop.op is Ops.CONST
    assert t.dtype is dtype
    assert t.device is None


def test_lists_go_through_a_python_buffer() -> None:
    for data in ([1, 2], (1.0, 2.0), b"ab"):
        source = next(u for u in Tensor(data).uop.toposort() if u.op is Ops.BUFFER)
        assert source.device == "PYTHON"
    assert any(u.op is Ops.BUFFER and u.device == "PYTHON" for u in UOp._frompy([1, 2], dtypes.int32).toposort())


def test_numpy_arrays_count_as_realized() -> None:
    array = np.array([1, 2, 3], dtype=np.int32)
    node = _fromnp(array)
    assert node.device == "NPY"
    assert node.is_realized
    GlobalCounters.reset()
    t = Tensor(array, device="NPY")
    array[0] = 7
    assert t.tolist() == [7, 2, 3]
    assert GlobalCounters.kernel_count == 0


def test_files_are_tensors(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    np.arange(4, dtype=np.float32).tofile(path)
    t = Tensor(path, dtype=dtypes.float32)
    assert t.device == f"DISK:{path}"
    assert t[1:3].to("CPU").tolist() == [1.0, 2.0]


def test_nodes_are_taken_as_they_are() -> None:
    node = Tensor([1.0, 2.0]).uop
    assert Tensor(node).uop is node
    assert Tensor(node, dtype=dtypes.int32).uop is node.cast(dtypes.int32)
    assert Tensor(node, device="PYTHON").device == "PYTHON"


def test_every_tensor_is_registered_weakly() -> None:
    def registered(tensor: Tensor) -> bool:
        return any(ref() is tensor for ref in list(all_tensors))

    t = Tensor([1.0])
    u = t + 1
    assert registered(t)
    assert registered(u)
    assert all(isinstance(ref, weakref.ref) for ref in list(all_tensors))
    count, watch = len(all_tensors), weakref.ref(u)
    del u
    assert watch() is None
    assert len(all_tensors) < count


def test_realize_points_all_live_tensors_at_the_storage() -> None:
    x = stored(1.0, 2.0)
    y = x + 1
    z = y * 3  # holds y's node in its graph
    y.realize()
    assert y.uop.is_realized
    assert y.uop in z.uop.toposort()
    other = stored(5.0, 5.0)
    _apply_map_to_tensors({y.uop: other.uop}, "a test")
    assert z.tolist() == [15.0, 15.0]


# ---- operators build graph -------------------------------------------------------------------------------------------


def test_the_chain_of_mixins() -> None:
    chain = [MovementMixin, CreationMixin, ElementwiseMixin, OpMixin, RandMixin]
    for earlier, later in itertools.pairwise(chain):
        assert issubclass(later, earlier)
    assert issubclass(OpMixin, ReduceMixin)
    for cls in (Tensor, UOp):
        assert issubclass(cls, RandMixin)


@pytest.mark.parametrize(
    ("mixin", "names"),
    [
        (ElementwiseMixin, "alu _binop add mul sub div __lt__ eq where exp log relu"),
        (MovementMixin, "reshape permute expand pad shrink flip _mop"),
        (CreationMixin, "empty full zeros ones"),
        (ReduceMixin, "sum max prod _rop"),
        (OpMixin, "matmul dot conv2d einsum gradient"),
        (RandMixin, "rand randn"),
    ],
)
def test_who_has_which_methods(mixin: type, names: str) -> None:
    assert [name for name in names.split() if not hasattr(mixin, name)] == []


def test_rules_are_written_in_the_language_of_tensors() -> None:
    x = stored(1.0, 2.0, 3.0)
    built = (x.uop.reshape(3, 1) * 2).sum(0).exp()
    assert isinstance(built, UOp)
    np.testing.assert_allclose(Tensor(built).numpy(), (x.reshape(3, 1) * 2).sum(0).exp().numpy())


def test_an_operator_only_makes_a_node() -> None:
    a, b = stored(1.0, 2.0), stored(3.0, 4.0)
    GlobalCounters.reset()
    c = a + b
    assert c.uop is UOp(Ops.ADD, src=(a.uop, b.uop))
    assert GlobalCounters.kernel_count == 0
    assert c.tolist() == [4.0, 6.0]


def test_apply_uop() -> None:
    a, b = stored(1.0, 2.0), stored(3.0, 4.0)
    c = a._apply_uop(lambda x, y: x + y, b)
    assert isinstance(c, Tensor)
    assert c.uop is (a + b).uop
    assert c.grad is None
    assert c.is_param is True
    assert any(ref() is c for ref in list(all_tensors))


def test_binop_broadcasts_and_promotes() -> None:
    total = Tensor([[1], [2]]) + Tensor([0.5, 1.5])
    assert (total.shape, total.dtype) == ((2, 2), dtypes.float32)


def test_two_kinds_of_operations() -> None:
    assert set(GroupOp.Movement) == {Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP}
    assert {Ops.ADD, Ops.MUL} <= set(GroupOp.ALU)
    assert not set(GroupOp.Movement) & set(GroupOp.ALU)
    for name in ("REDUCE", "WMMA", "LOAD", "STORE"):
        assert getattr(Ops, name) not in GroupOp.Movement


def test_movement_alone_never_runs_a_kernel() -> None:
    x = Tensor.arange(6).reshape(2, 3).contiguous().realize()
    GlobalCounters.reset()
    x.reshape(3, 2).permute(1, 0).flip(0).realize()
    y = (x.permute(1, 0).flip(0) + 1).realize()
    assert GlobalCounters.kernel_count <= 2  # the view that was asked for, if at all, and the sum
    assert y.tolist() == [[3, 6], [2, 5], [1, 4]]


def test_matmul_is_composed() -> None:
    a, b = Tensor.rand(4, 5).realize(), Tensor.rand(5, 6).realize()
    inside = {u.op for u in a.dot(b).uop.toposort()}
    assert {Ops.RESHAPE, Ops.MUL, Ops.REDUCE} <= inside
    assert inside <= GroupOp.Movement | {Ops.MUL, Ops.REDUCE, Ops.BUFFER, Ops.CONST, Ops.STACK}
    np.testing.assert_allclose(a.dot(b).numpy(), a.numpy() @ b.numpy(), rtol=1e-5)


# ---- gradients -------------------------------------------------------------------------------------------------------


def rule(node: UOp, incoming: UOp) -> tuple[UOp | None, ...]:
    gradients = pm_gradient.rewrite(node, ctx=incoming)
    assert gradients is not None, f"no rule for {node.op}"
    return gradients


def test_the_gradient_table() -> None:
    assert isinstance(pm_gradient, PatternMatcher)
    a, b, g = stored(1.0, 2.0).uop, stored(3.0, 4.0).uop, stored(1.0, 1.0).uop
    assert rule(a + b, g) == (g, g)
    assert rule(a * b, g) == (b * g, a * g)
    assert rule(a.reshape(2, 1), g.reshape(2, 1))[0].shape == (2,)
    assert rule(a.cast(dtypes.half), g.cast(dtypes.half))[0].dtype is dtypes.float32
    assert not any(rule(a < b, g))
    assert not any(rule(a != b, g))
    total = a._rop(Ops.ADD, (0,))
    assert rule(total, g[0:1])[0] is reduce_gradient(g[0:1], total, Ops.ADD)[0]


def test_every_differentiable_operation_has_a_rule() -> None:
    x = stored(0.5, 2.0).uop
    nodes = [x.exp2(), x.log2(), x.sin(), x.sqrt(), x.reciprocal(), x.maximum(1.0), (x < 1).where(x, 0.0)]
    nodes += [x.pad(((1, 1),)), x.shrink(((0, 1),)), x.flip(0), x.permute(0)]
    nodes += [x.contiguous(), x.contiguous_backward(), x.detach()]
    for node in nodes:
        assert pm_gradient.rewrite(node, ctx=node.const_like(1.0)) is not None, node.op


def test_backward_writes_lazy_gradients() -> None:
    x, w = stored(1.0, 2.0, 3.0), stored(4.0, 5.0, 6.0)
    z = (x * w).sum()
    GlobalCounters.reset()
    z.backward()
    assert GlobalCounters.kernel_count == 0, "the gradients are graph too, realized with what comes next"
    assert x.grad.tolist() == [4.0, 5.0, 6.0]
    assert w.grad.tolist() == [1.0, 2.0, 3.0]


def test_branches_add_up() -> None:
    x = stored(3.0)
    (x * x + x.sin() + x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * 3 + np.cos(3.0) + 1, rtol=1e-6)


def test_gradients_of_broadcast_sources_are_summed() -> None:
    row, column = Tensor.ones(1, 4).contiguous().realize(), Tensor.ones(3, 1).contiguous().realize()
    (row + column * 2).sum().backward()
    assert row.grad.tolist() == [[3.0] * 4]
    assert column.grad.tolist() == [[8.0]] * 3


def test_compute_gradient_and_deepwalk() -> None:
    x, y = stored(2.0), stored(5.0)
    root = (x.uop * 3 + y.uop.detach() * x.uop).sum()
    path = _deepwalk([root], [x.uop])
    assert x.uop in path
    assert y.uop not in path, "DETACH cuts, and only the way to the target is walked"
    found = compute_gradient(root, root.const_like(1.0), [x.uop, y.uop])
    assert set(found) == {x.uop}
    assert Tensor(found[x.uop]).tolist() == [8.0]


def test_gradient_method() -> None:
    x, w = stored(1.0, 2.0), stored(3.0, 4.0)
    dx, dw = (x * w).sum().gradient(x, w)
    assert (dx.tolist(), dw.tolist()) == ([3.0, 4.0], [1.0, 2.0])
    assert x.grad is None
    assert (x * w).gradient(x, gradient=Tensor([1.0, 10.0]))[0].tolist() == [3.0, 40.0]


def test_gradients_exist_only_for_floats() -> None:
    integers = Tensor([1, 2]).realize()
    with pytest.raises(RuntimeError, match="only float"):
        integers.sum().gradient(integers)
    with pytest.raises(RuntimeError, match="only float"):
        integers.float().sum().gradient(integers)


def test_a_second_backward_adds() -> None:
    x = stored(2.0)
    (x * 3).sum().backward()
    (x * 4).sum().backward()
    assert x.grad.tolist() == [7.0]


def test_backward_fuses_like_forward() -> None:
    x = Tensor.rand(32).realize()
    (x.exp() * x).sum().backward()
    GlobalCounters.reset()
    x.grad.realize()
    assert GlobalCounters.kernel_count == 1
    np.testing.assert_allclose(x.grad.numpy(), np.exp(x.numpy()) * (1 + x.numpy()), rtol=1e-5)


# ---- @function -------------------------------------------------------------------------------------------------------


def test_function_makes_one_node() -> None:
    @function
    def double(x: Tensor) -> Tensor:
        return x * 2

    assert isinstance(double, _function)
    y = double(stored(1.0, 2.0))
    assert y.uop.op is Ops.GETTUPLE
    call = y.uop.src[0]
    assert call.op is Ops.FUNCTION
    assert any(u.op is Ops.PARAM for u in call.src[0].toposort()), "inputs are slots in the body"
    assert not any(u.op is Ops.BUFFER for u in call.src[0].toposort())
    assert y.tolist() == [2.0, 4.0]


def test_the_same_input_twice_is_one_argument() -> None:
    x = stored(1.0, 2.0)
    y = function(lambda a, b: a + b)(x, x)
    assert y.uop.src[0].src[1:] == (x.uop,)
    assert y.tolist() == [2.0, 4.0]


def test_implicit_inputs() -> None:
    weight = stored(10.0)
    assert isinstance(pm_ctx, PatternMatcher)
    with pytest.raises(RuntimeError, match="implicit buffer"):
        function(lambda x: x * weight)(stored(2.0))
    y = function(lambda x: x * weight, allow_implicit=True)(stored(2.0))
    assert len(y.uop.src[0].src) == 3
    assert y.tolist() == [20.0]


def test_devices_are_off_inside_a_function() -> None:
    def reads(x: Tensor) -> Tensor:
        x.numpy()
        return x

    with pytest.raises(AssertionError, match="disallowed"):
        function(reads)(stored(1.0) + 1)
    with Context(ALLOW_DEVICE_USAGE=0), pytest.raises(AssertionError, match="disallowed"):
        (stored(1.0) + 1).realize()


@pytest.mark.parametrize(
    "options", [{}, {"precompile": True}, {"precompile": True, "precompile_backward": True}], ids=str
)
def test_gradient_through_a_function(options: dict[str, bool]) -> None:
    @function(**options)
    def cubes(x: Tensor) -> Tensor:
        return x * x * x

    x = stored(1.0, 2.0)
    (dx,) = cubes(x).sum().gradient(x)
    backward = [u for u in dx.uop.toposort() if u.op is Ops.FUNCTION and u.arg.name.endswith("_backward")]
    assert len(backward) == 1
    assert backward[0].arg.precompile is bool(options.get("precompile_backward"))
    assert dx.tolist() == [3.0, 12.0]


def test_call_gradient_uses_grad_fxn() -> None:
    @function(grad_fxn=lambda grad, call: (grad * 100,))
    def same(x: Tensor) -> Tensor:
        return x * 1.5

    x = stored(1.0, 2.0)
    y = same(x)
    gradients = call_gradient({0: stored(1.0, 3.0).uop}, y.uop.src[0])
    assert [g if g is None else Tensor(g).tolist() for g in gradients] == [None, [100.0, 300.0]]
    assert y.sum().gradient(x)[0].tolist() == [100.0, 100.0]


def test_function_around_the_call_of_a_model() -> None:
    class Model:
        def __init__(self) -> None:
            self.layer = nn.Linear(4, 2)

        @function
        def __call__(self, x: Tensor) -> Tensor:
            return self.layer(x).relu()

    model, x = Model(), Tensor.rand(3, 4).realize()
    wanted = model.layer(x).relu().sum().gradient(model.layer.weight)[0]
    np.testing.assert_allclose(model(x).numpy(), model.layer(x).relu().numpy(), rtol=1e-6)
    model(x).sum().backward()
    np.testing.assert_allclose(model.layer.weight.grad.numpy(), wanted.numpy(), rtol=1e-6)


# ---- pitfalls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [3, 2.5])
def test_weak_dtypes_have_no_storage(data: float) -> None:
    t = Tensor(data)
    assert t.dtype in dtypes.weaks
    with pytest.raises(RuntimeError, match="cannot realize a weak dtype"):
        t.schedule_linear()
    with pytest.raises(RuntimeError, match="weak dtype"):
        t[...] = 1
    assert (stored(1.0) * t).dtype is dtypes.float32, "it takes the dtype of what it meets"


def test_assign_is_a_side_effect_in_the_graph() -> None:
    x = stored(1.0, 2.0)
    before = x.uop
    old = x + 0
    x.assign(Tensor([5.0, 6.0]))
    after = next(u for u in x.uop.toposort() if u.op is Ops.AFTER)
    assert any(s.op is Ops.STORE for s in after.src[1:])
    assert before.base in after.toposort()
    assert old.tolist() == [1.0, 2.0], "reads that were made before the write see the old value"
    assert x.tolist() == [5.0, 6.0]


def test_setitem_of_a_view_writes_in_place() -> None:
    x = Tensor.zeros(2, 3).contiguous().realize()
    x[:, 1] = 7
    x[Tensor([1]), 0] = 5
    assert x.tolist() == [[0.0, 7.0, 0.0], [5.0, 7.0, 0.0]]


def test_setitem_on_a_tensor_with_other_uses() -> None:
    x = stored(1.0, 2.0)
    other = x * 2
    with pytest.raises(RuntimeError, match="can't setitem on a tensor with other uses"):
        x[0] = 9.0
    assert other.tolist() == [2.0, 4.0]
    x[0] = 9.0  # now that the other one is computed nothing reads x any more
    assert (x.tolist(), other.tolist()) == ([9.0, 2.0], [2.0, 4.0])


def test_tensors_have_no_truth_value() -> None:
    with pytest.raises(TypeError, match="__bool__"):
        bool(Tensor([1.0]))


def test_schedule_step_and_the_fused_optimizer() -> None:
    for fused in (False, True):
        a, b = stored(1.0, 2.0), stored(3.0)
        optimizer = nn.optim.SGD([a, b], lr=0.5, fused=fused)
        (a.sum() * 2 + b.sum()).backward()
        with Context(TRAINING=1):
            GlobalCounters.reset()
            todo = optimizer.schedule_step()
            assert GlobalCounters.kernel_count == 0
        Tensor.realize(*todo)
        assert (a.tolist(), b.tolist()) == ([0.0, 1.0], [2.5])
