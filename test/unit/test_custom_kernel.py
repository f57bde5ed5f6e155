"""Kernels written by hand: placeholders, loops, registers, order, grids, gradients, on CPU and PYTHON."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tinygrad import Context, Device, Tensor, TinyJit, Variable, dtypes
from tinygrad.codegen import to_program
from tinygrad.dtype import AddrSpace
from tinygrad.uop.ops import AxisType, KernelInfo, Ops, UOp

RNG = np.random.default_rng(0)


@pytest.fixture(params=["CPU", "PYTHON"], autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with Context(DEV=request.param):
        yield request.param


def info(name: str, **options: object) -> KernelInfo:
    return KernelInfo(name=name, **options)  # type: ignore[arg-type]


def floats(*shape: int) -> np.ndarray:
    return RNG.uniform(-2, 2, size=shape).astype(np.float32)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def add(out: UOp, a: UOp, b: UOp) -> UOp:
    out, a, b = out.flatten(), a.flatten(), b.flatten()
    i = UOp.range(out.shape[0], 0)
    return out[i].store(a[i] + b[i]).end(i).sink(arg=info("add"))


def matmul_reduce(out: UOp, a: UOp, b: UOp) -> UOp:
    i, j, k = UOp.range(a.shape[0], 0), UOp.range(b.shape[1], 1), UOp.range(a.shape[1], 2, AxisType.REDUCE)
    return out[i, j].store((a[i, k] * b[k, j]).reduce(k, arg=Ops.ADD)).end(i, j).sink(arg=info("matmul"))


def matmul_in_memory(out: UOp, a: UOp, b: UOp) -> UOp:
    i, j, k = UOp.range(a.shape[0], 0), UOp.range(b.shape[1], 1), UOp.range(a.shape[1], 2, AxisType.REDUCE)
    out = out[i, j].set(0.0)
    out = out[i, j].set(out.after(k)[i, j] + a[i, k] * b[k, j], end=k)
    return out.end(i, j).sink(arg=info("matmul_in_memory", opts_to_apply=()))


def matmul_in_register(out: UOp, a: UOp, b: UOp) -> UOp:
    i, j, k = UOp.range(a.shape[0], 0), UOp.range(b.shape[1], 1), UOp.range(a.shape[1], 2, AxisType.REDUCE)
    total = UOp.placeholder((1,), dtypes.float, 0, addrspace=AddrSpace.REG)
    total = total.after(i, j)[0].set(0.0)
    total = total[0].set(total.after(k)[0] + a[i, k] * b[k, j], end=k)
    return out[i, j].store(total[0]).end(i, j).sink(arg=info("matmul_in_register", opts_to_apply=()))


@pytest.mark.parametrize("kernel", [matmul_reduce, matmul_in_memory, matmul_in_register], ids=lambda k: k.__name__)
def test_matmul(kernel: object) -> None:
    a, b = floats(4, 5), floats(5, 6)
    out = Tensor.empty(4, 6).custom_kernel(Tensor(a), Tensor(b), fxn=kernel)[0]
    np.testing.assert_allclose(out.numpy(), a @ b, atol=1e-5)


def test_add_of_computed_and_of_constant_inputs() -> None:
    a = floats(3, 4)
    x = Tensor(a) * 2
    out, _, _ = Tensor.empty(3, 4).custom_kernel(x, Tensor.arange(12).reshape(3, 4).float(), fxn=add)
    np.testing.assert_allclose((out + 1).numpy(), a * 2 + np.arange(12).reshape(3, 4) + 1, rtol=1e-6)


def test_arguments_that_are_views() -> None:
    a = floats(4, 6)
    base = Tensor(a).clone().realize()
    for view, expected in ((base[1:3], a[1:3]), (base.T[:2, :4], a.T[:2, :4]), (base[:, ::3], a[:, ::3])):
        out = Tensor.empty(*view.shape).custom_kernel(view, view, fxn=add)[0]
        np.testing.assert_allclose(out.numpy(), expected * 2, rtol=1e-6)


def test_permuted_and_partly_indexed_placeholders() -> None:
    a = floats(3, 4)

    def turn(out: UOp, x: UOp) -> UOp:
        i, j = UOp.range(4, 0), UOp.range(3, 1)
        return out[i][j].store(x.T[i, j] + x.flip(1)[2 - j, 3 - i]).end(i, j).sink(arg=info("turn"))

    out = Tensor.empty(4, 3).custom_kernel(Tensor(a), fxn=turn)[0]
    np.testing.assert_allclose(out.numpy(), a.T + a[::-1].T, rtol=1e-6)


def test_index_arity_is_checked() -> None:
    with pytest.raises(IndexError, match="3 indices for kernel storage of shape"):
        UOp.placeholder((4, 4), dtypes.float, 0).index(*[UOp.range(2, i) for i in range(3)])


# ---- order -----------------------------------------------------------------------------------------------------------


def test_running_sum_needs_the_order_of_the_loop() -> None:
    a = floats(33)

    def scan(out: UOp, x: UOp) -> UOp:
        i = UOp.range(x.shape[0] - 1, 0)
        first = out[0].set(x[0])
        return first[i + 1].set(first.after(i)[i] + x[i + 1], end=i).sink(arg=info("scan", opts_to_apply=()))

    out = Tensor.empty(33).custom_kernel(Tensor(a), fxn=scan)[0]
    np.testing.assert_allclose(out.numpy(), np.cumsum(a), rtol=1e-5, atol=1e-5)


def test_exchange_in_place() -> None:
    a = floats(2, 8)

    def exchange(x: UOp) -> UOp:
        i = UOp.range(8, 0)
        first, second = x[0, i], x[1, i]
        return UOp.group(first.store(second), second.store(first)).end(i).sink(arg=info("exchange"))

    out = Tensor(a).clone().custom_kernel(fxn=exchange)[0]
    np.testing.assert_allclose(out.numpy(), a[::-1])


def test_insertion_of_the_smallest_in_nested_loops() -> None:
    # A selection sort by exchanges: loops in loops, reads after writes of the same memory.
    a = RNG.permutation(9).astype(np.int32)

    def sort(x: UOp) -> UOp:
        i, j = UOp.range(9, 0), UOp.range(9, 1)
        now = x.after(i, j)
        left, right = now[i], now[j]
        swap = (i < j) & (right < left)
        wrote = UOp.group(
            now[i].store(swap.where(right, left)), now[j].store((i < j).where(swap.where(left, right), right))
        )
        return wrote.end(i, j).sink(arg=info("sort", opts_to_apply=()))

    out = Tensor(a).clone().custom_kernel(fxn=sort)[0]
    np.testing.assert_array_equal(out.numpy(), np.sort(a))


def test_one_kernel_after_another() -> None:
    a = floats(4)
    x = Tensor(a).clone()
    for _ in range(3):
        x = Tensor.empty(4).custom_kernel(x, x, fxn=add)[0]
    np.testing.assert_allclose(x.numpy(), a * 8, rtol=1e-6)


def test_same_buffer_in_two_slots_and_in_place() -> None:
    a = floats(5)
    x = Tensor(a).clone()
    out = x.custom_kernel(x, x, fxn=add)[0]
    np.testing.assert_allclose(out.numpy(), a * 2, rtol=1e-6)
    np.testing.assert_allclose(x.numpy(), a * 2, rtol=1e-6)


def test_two_outputs() -> None:
    a = floats(7)

    def both(low: UOp, high: UOp, x: UOp) -> UOp:
        i = UOp.range(7, 0)
        return UOp.group(low[i].store(x[i] - 1), high[i].store(x[i] + 1)).end(i).sink(arg=info("both"))

    low, high, _ = Tensor.empty(7).custom_kernel(Tensor.empty(7), Tensor(a), fxn=both)
    np.testing.assert_allclose((high - low).numpy(), np.full(7, 2), rtol=1e-6)
    np.testing.assert_allclose(low.numpy(), a - 1, rtol=1e-6)


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("addrspace", [AddrSpace.REG, AddrSpace.LOCAL])
def test_several_elements_of_scratch_memory(addrspace: AddrSpace) -> None:
    a = floats(6, 5)

    def reverse_rows(out: UOp, x: UOp) -> UOp:
        r, i, j = UOp.range(6, 0), UOp.range(5, 1), UOp.range(5, 2)
        row = UOp.placeholder((5,), dtypes.float, 0, addrspace=addrspace)
        row = row.after(r)[i].set(x[r, i] * 2, end=i)
        return out[r, j].store(row[4 - j]).end(j).end(r).sink(arg=info("reverse_rows", opts_to_apply=()))

    out = Tensor.empty(6, 5).custom_kernel(Tensor(a), fxn=reverse_rows)[0]
    np.testing.assert_allclose(out.numpy(), a[:, ::-1] * 2, rtol=1e-6)


def test_gated_store_and_valid_load() -> None:
    a = floats(8)

    def odd_neighbours(out: UOp, x: UOp) -> UOp:
        i = UOp.range(8, 0)
        left = x[(i - 1).valid(i > 0)]
        return out.index(i, gate=(i % 2).eq(1)).store(left).end(i).sink(arg=info("odd_neighbours"))

    out = Tensor.zeros(8).custom_kernel(Tensor(a), fxn=odd_neighbours)[0]
    np.testing.assert_allclose(out.numpy(), np.where(np.arange(8) % 2, np.roll(a, 1), 0))


def test_index_read_from_memory() -> None:
    a, at = floats(6), np.array([3, 3, 0, 5], dtype=np.int32)

    def take(out: UOp, x: UOp, where: UOp) -> UOp:
        i = UOp.range(4, 0)
        return out[i].store(x[where[i]]).end(i).sink(arg=info("take"))

    out = Tensor.empty(4).custom_kernel(Tensor(a), Tensor(at), fxn=take)[0]
    np.testing.assert_array_equal(out.numpy(), a[at])


# ---- grids -----------------------------------------------------------------------------------------------------------


def test_global_and_local_ranges() -> None:
    a = floats(4, 8)

    def scale(out: UOp, x: UOp) -> UOp:
        g, i = UOp.range(4, 0, AxisType.GLOBAL), UOp.range(8, 1, AxisType.LOCAL)
        return out[g, i].store(x[g, i] * 3).end(g, i).sink(arg=info("scale", opts_to_apply=()))

    out = Tensor.empty(4, 8).custom_kernel(Tensor(a), fxn=scale)[0]
    np.testing.assert_allclose(out.numpy(), a * 3, rtol=1e-6)


def test_outermost_global_range_runs_on_threads(device: str) -> None:
    def scale(out: UOp, x: UOp) -> UOp:
        g, i = UOp.range(4, 0, AxisType.GLOBAL), UOp.range(8, 1)
        return out[g, i].store(x[g, i] * 3).end(i).end(g).sink(arg=info("scale", opts_to_apply=()))

    renderer = Device[device].renderer
    program = to_program(scale(*[UOp.placeholder((4, 8), dtypes.float, slot) for slot in range(2)]), renderer)
    assert program.arg.global_size[0] == (4 if renderer.has_threads else 1)


def test_hardware_indices() -> None:
    a = floats(4, 8)

    def scale(out: UOp, x: UOp) -> UOp:
        g, i = UOp.special(4, "gidx0"), UOp.special(8, "lidx0")
        return out[g, i].store(x[g, i] * 3).sink(arg=info("scale"))

    out = Tensor.empty(4, 8).custom_kernel(Tensor(a), fxn=scale)[0]
    np.testing.assert_allclose(out.numpy(), a * 3, rtol=1e-6)


# ---- programs --------------------------------------------------------------------------------------------------------


def double(out: UOp, x: UOp) -> UOp:
    i = UOp.range(4, 0)
    return out[i].store(x[i] + x[i]).end(i).sink(arg=info("double"))


def test_program_with_its_own_source(device: str) -> None:
    renderer = Device[device].renderer
    placeholders = [UOp.placeholder((4,), dtypes.float, slot) for slot in range(2)]
    made = to_program(double(*placeholders), renderer)
    for kept in ({Ops.SINK}, {Ops.SINK, Ops.LINEAR, Ops.SOURCE}, {Ops.SINK, Ops.LINEAR, Ops.SOURCE, Ops.BINARY}):
        program = made.replace(src=tuple(u for u in made.src if u.op in kept))
        out = Tensor.empty(4).custom_kernel(Tensor([1.0, 2, 3, 4]), fxn=lambda *_, program=program: program)[0]
        assert out.tolist() == [2.0, 4.0, 6.0, 8.0]


def test_source_needs_launch_information(device: str) -> None:
    program = UOp(Ops.PROGRAM, dtypes.void, (UOp(Ops.SOURCE, dtypes.void, (), "nothing"),))
    with pytest.raises(RuntimeError, match="needs a ProgramInfo"):
        to_program(program, Device[device].renderer)


# ---- calls -----------------------------------------------------------------------------------------------------------


def test_inside_a_jit() -> None:
    @TinyJit
    def double(x: Tensor) -> Tensor:
        return Tensor.empty(4).custom_kernel(x, x, fxn=add)[0].realize()

    for step in range(4):
        np.testing.assert_allclose(double(Tensor.full((4,), float(step)).realize()).numpy(), np.full(4, 2 * step))


def test_nodes() -> None:
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    out = Tensor(UOp.custom_kernel(UOp.empty(2), a.uop, b.uop, fxn=add)[0])
    assert out.tolist() == [4.0, 6.0]


def matmul_gradient(grad: UOp, call: UOp) -> tuple[UOp | None, ...]:
    _, a, b = call.src[1:]
    return None, grad @ b.T, (Tensor(a).T @ Tensor(grad)).uop


def test_gradient_function() -> None:
    a, b = Tensor(floats(3, 4)), Tensor(floats(4, 5))
    weight = Tensor(floats(3, 5))
    out = Tensor.empty(3, 5).custom_kernel(a, b, fxn=matmul_reduce, grad_fxn=matmul_gradient)[0]
    (out * weight).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), weight.numpy() @ b.numpy().T, atol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), a.numpy().T @ weight.numpy(), atol=1e-5)


def test_gradient_through_computed_arguments() -> None:
    a = Tensor(floats(6))
    out = Tensor.empty(6).custom_kernel(a * 3, a, fxn=add, grad_fxn=lambda grad, call: (None, grad, grad))[0]
    assert out.sum().gradient(a)[0].tolist() == [4.0] * 6


def test_gradient_without_function() -> None:
    a = Tensor(floats(6))
    out = Tensor.empty(6).custom_kernel(a, a, fxn=add)[0]
    with pytest.raises(AssertionError, match="no grad_fxn"):
        out.sum().backward()


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_open_loops_are_refused() -> None:
    def leaky(out: UOp) -> UOp:
        i = UOp.range(4, 0)
        return out[i].store(0.0).sink(arg=info("leaky"))

    with pytest.raises(AssertionError, match="leaking out of the call"):
        Tensor.empty(4).custom_kernel(fxn=leaky)


def test_symbolic_shapes_are_refused() -> None:
    n = Variable("n", 1, 4).bind(3)
    with pytest.raises(AssertionError, match="symbolic"):
        Tensor.empty(4)[:n].custom_kernel(fxn=add)


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(RuntimeError, match="a SINK"):
        Tensor.empty(4).custom_kernel(fxn=lambda out: out[UOp.range(4, 0)].store(0.0))


def test_a_kernel_may_ask_for_the_number_of_elements() -> None:
    def double(out: UOp, x: UOp) -> UOp:
        i = UOp.range(x.numel(), 0)
        return out[i].store(x[i] * 2).end(i).sink(arg=KernelInfo(name="double"))

    x = Tensor([1.0, 2.0, 3.0, 4.0])
    assert Tensor.empty(4).custom_kernel(x + 1, fxn=double)[0].tolist() == [4.0, 6.0, 8.0, 10.0]
    assert x.reshape(2, 2).uop.numel() == 4


def test_arguments_on_two_devices() -> None:
    with pytest.raises(RuntimeError, match=r"custom_kernel: the arguments are on different devices, CPU and PYTHON"):
        Tensor.empty(4, device="CPU").custom_kernel(Tensor.ones(4, device="PYTHON"), fxn=lambda out, x: out)
