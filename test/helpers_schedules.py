"""Random kernels, and steps of the schedule language that are applied to them: random ones, or those of the policies.

In:   a seed.
Out:  the kernel of a random expression as the scheduler makes it, its arrays, and steps that fit it.
Why:  whatever the steps, the values are the same: small integers, which no order of summation rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad import Context, Device, Tensor, dtypes
from tinygrad.codegen import do_to_program
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.policy import automatic
from tinygrad.codegen.opt.schedule import Schedule
from tinygrad.codegen.simplify import simplify_kernel
from tinygrad.dtype import AddrSpace
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

DTYPES = ("float32", "float32", "float64", "float16", "int32", "int8", "uint8", "int64")
FACTORS = (0, 2, 3, 4, 5, 7, 8, 16)
LARGEST_TILE = 64  # copies and lanes of one loop body: more only takes longer to compile


def contraction(rng: np.random.Generator) -> Tensor:
    """Return a matmul of any layout, a convolution, or another sum of products; with masks, casts and an epilogue."""
    m, n, k, b = (int(x) for x in rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17, 33], 4))
    dtype = str(rng.choice(DTYPES))

    def operand(*shape: int) -> Tensor:
        order = [int(i) for i in rng.permutation(len(shape))]
        stored = Tensor.empty(*(shape[i] for i in order), dtype=dtype)
        return stored.permute([order.index(i) for i in range(len(shape))])

    kind = rng.integers(7)
    if kind == 0:
        out = operand(m, k) @ operand(k, n)
    elif kind == 1:
        out = operand(min(b, 5), m, k) @ operand(min(b, 5), k, n)
    elif kind == 2:  # rows beyond the end of one operand count as zeros
        out = operand(m, k + 2) @ operand(k, n).pad(((1, 1), None))
    elif kind == 3:
        c, o, pad, step = (int(x) for x in rng.integers(1, 4, 4))
        out = operand(2, c, 4 + m % 5, 4 + n % 5).conv2d(operand(o, c, 3, 2), padding=pad - 1, stride=step)
    elif kind == 4:
        out = (operand(m, k, 1, 3) * operand(1, k, n, 3)).sum((1, 3))
    elif kind == 5:
        out = operand(m, k) @ operand(k)
    else:
        out = operand(m, k).cast(dtypes.float32 if dtype[0] != "f" else dtype) @ (operand(k, n) + 1).cast(
            dtypes.float32
        )
    if rng.random() < 0.4:
        out = (out + operand(out.shape[-1]).cast(out.dtype)).relu()
    return out


def rows_and_windows(rng: np.random.Generator) -> Tensor:
    """Return what reads elements several times, sums rows, or has a long expression: what the policy of loops knows."""
    n, c, h, w = (int(x) for x in rng.choice([1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 20, 31, 33], 4))
    k, step = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    dtype = str(rng.choice(DTYPES))

    def image(*shape: int) -> Tensor:
        return Tensor.empty(*shape, dtype=dtype)

    kind = rng.integers(7)
    if kind == 0:  # depthwise
        x, groups = image(2, 3, h + k - 1, w + k - 1), image(3, 1, k, k)
        return x.conv2d(groups, groups=3, padding=int(rng.integers(k)), stride=step)
    if kind == 1:
        return image(2, 2, h + k - 1, w + k - 1).max_pool2d((k, k), stride=step, padding=int(rng.integers(k // 2 + 1)))
    if kind == 2:
        return image(2, 2, h + k - 1, w + k - 1)._pool((k, k), step, 1).sum((-1, -2))
    if kind == 3:  # each element read by several neighbours, beside others
        x = image(2, h, 1, w, 1).expand(2, h, k, w, k).reshape(2, h * k, w * k)
        return x * image(2, h * k, w * k) + image(2, h, w, k, k).permute(0, 1, 3, 2, 4).reshape(2, h * k, w * k)
    if kind == 4:  # sums over rows
        rows = image(n, h * 4, w * c)
        return rows.max(1) if rng.random() < 0.3 else rows.sum(1)
    if kind == 5:  # rows shorter than a vector, times a vector
        return image(h * w * 2 + 1, k + 1) @ image(k + 1)
    x = image(n * h, w).cast(dtypes.float32)  # long: exact all the same
    for _ in range(int(rng.integers(8, 40))):
        x = (x + 1).relu() - (x * 2).minimum(3)
    return x


def kernel_of(out: Tensor) -> UOp | None:
    """Return the one kernel that computes a tensor, None if it takes several."""
    with Context(SCACHE=0, SPLIT_REDUCEOP=0):
        calls = [c for c in out.contiguous().schedule_linear().src if c.src[0].op is Ops.SINK]
    return calls[0].src[0] if len(calls) == 1 else None


def arrays_of(sink: UOp, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """Return small integers for every buffer of a kernel, by slot; the result is full of something else."""
    found: dict[int, np.ndarray] = {}
    for u in sink.toposort():
        if u.op is Ops.PARAM and u.arg.addrspace is AddrSpace.GLOBAL:
            name = next(n for n in (*DTYPES, "uint32", "bool") if getattr(dtypes, n) is u.dtype)
            low = 0 if name[0] == "u" else -2
            numbers = rng.integers(low, 3, u.arg.shape[0]) if u.arg.slot else np.full(u.arg.shape[0], 77)
            found[u.arg.slot] = numbers.astype(name)
    return found


def random_steps(sink: UOp, rng: np.random.Generator, count: int) -> tuple[Opt, ...]:
    """Return steps that fit a kernel, in an order in which they fit."""
    schedule = Schedule(simplify_kernel(sink), Device["CPU"].renderer)
    # Blocks and scratch memory need steps in this order; any other steps fit before, between and behind.
    recipe = [OptOps.SPLIT, OptOps.SPLIT, OptOps.BLOCK, OptOps.CACHE, OptOps.STAGE, OptOps.STAGE]
    wanted = recipe if rng.random() < 0.5 else []
    for n in range(count + len(wanted)):
        outputs = [p for p, a in enumerate(schedule.axes) if not a.reduce]
        reduces = schedule.reduce_axes()
        if not outputs:
            break
        axis, other = (int(x) for x in rng.choice(outputs, 2))
        reduce = int(rng.integers(max(1, len(reduces))))
        factor = int(rng.choice(FACTORS))
        choices: list[Opt] = [
            Opt(OptOps.SPLIT, axis, factor or 2), Opt(OptOps.OVERLAP, axis, factor or 2),
            Opt(OptOps.UPCAST, axis, factor), Opt(OptOps.VECTOR, axis, factor or 8), Opt(OptOps.VECTOR, axis, 16),
            Opt(OptOps.UNROLL, reduce, factor), Opt(OptOps.BLOCK, reduce, factor or 4), Opt(OptOps.CACHE, axis),
            Opt(OptOps.STAGE, axis, (int(rng.integers(2)), bool(rng.integers(2)))), Opt(OptOps.SWAP, axis, other),
            Opt(OptOps.PADTO, axis, factor or 4), Opt(OptOps.THREAD, outputs[0], 0), Opt(OptOps.MERGE, axis, other),
        ]  # fmt: skip
        if reduces:
            choices.append(Opt(OptOps.VECTOR, reduces[reduce], factor or 4))
        step = choices[int(rng.integers(len(choices)))]
        if n < len(wanted):
            step = next(o for o in choices if o.op is wanted[n])
        before = _tile(schedule)
        if step.op in (OptOps.UPCAST, OptOps.UNROLL, OptOps.VECTOR) and before * _size(schedule, step) > LARGEST_TILE:
            continue
        try:
            schedule.apply(step)
        except KernelOptError:
            continue
    return tuple(schedule.applied)


def _size(schedule: Schedule, step: Opt) -> int:
    position = schedule.reduce_axes()[step.axis] if step.op is OptOps.UNROLL and schedule.reduce_axes() else step.axis
    size = schedule.axes[position].size if position is not None else 1
    return int(step.arg) or (size if isinstance(size, int) else 1)


def _tile(schedule: Schedule) -> int:
    total = 1
    for axis in schedule.axes:
        if axis.kind.name in ("UPCAST", "UNROLL", "VECTOR") and isinstance(axis.size, int):
            total *= axis.size
    return total


def run_steps(sink: UOp, steps: tuple[Opt, ...], arrays: dict[int, np.ndarray], device: str, run: Any) -> np.ndarray:
    """Return the result of a kernel with the given steps on a device."""
    forced = sink.replace(arg=type(sink.arg)(opts_to_apply=steps))
    result: np.ndarray = run(do_to_program(forced, Device[device].renderer), device, arrays)[0]
    return result


def compare_policy(seed: int, run: Any) -> str:
    """Run one random kernel with the steps of the policies, on the CPU and by hand; returns what was run.

    Raises:
        AssertionError: The values differ.
    """
    rng = np.random.default_rng(seed)
    sink = kernel_of(rows_and_windows(rng))
    if sink is None:
        return "several kernels"
    arrays = arrays_of(sink, rng)
    policy = automatic(simplify_kernel(sink), Device["CPU"].renderer)
    steps = tuple(o for o in policy.applied if o.op is not OptOps.THREAD)
    want = run_steps(sink, (), arrays, "PYTHON", run)
    for device in ("CPU", "PYTHON"):
        got = run_steps(policy.sink, steps, arrays, device, run)
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed} on {device}: {steps}")
    return repr(steps)


def compare_seed(seed: int, run: Any, on_python: bool) -> str:
    """Run one random contraction; returns what was run.

    Args:
        seed: Of contraction and steps.
        run: ``run_program`` of ``helpers_ast``.
        on_python: Run the steps on the PYTHON device too. It always runs the kernel as it was scheduled.

    Raises:
        AssertionError: The values differ.
    """
    rng = np.random.default_rng(seed)
    sink = kernel_of(contraction(rng))
    if sink is None:
        return "several kernels"
    arrays = arrays_of(sink, rng)
    want = run_steps(sink, (), arrays, "PYTHON", run)
    steps = random_steps(sink, rng, int(rng.integers(1, 14)))
    parallel = any(o.op is OptOps.THREAD for o in steps)
    for device in ("CPU", "PYTHON") if on_python and not parallel else ("CPU",):
        got = run_steps(sink, steps, arrays, device, run)
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed} on {device}: {steps}")
    return repr(steps)
