"""What users read when something is wrong: the type that handlers rely on, the operation, the numbers, their own line.

Every case is a program of one line. Its error must have one of the listed types, name the operation in its first line,
hold the listed parts, and show the line of the program, which is in this file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygrad import Context, Device, Tensor, TinyJit, Variable, dtypes, function, nn
from tinygrad.engine.jit import JitError
from tinygrad.errors import ShapeError
from tinygrad.nn.state import load_state_dict, safe_load, safe_save, tar_extract, torch_load, zip_extract
from tinygrad.target import Target
from tinygrad.uop.ops import Ops, UOp

ROOT = Path(__file__).parents[2]


def f32(*shape: int, device: str | None = None) -> Tensor:
    return Tensor(np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape), device=device)


def i32(*shape: int) -> Tensor:
    return Tensor(np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape))


M = f32(2, 3)  # a matrix
I = i32(2, 3)  # noqa: E741  a matrix of integers
P = f32(2, 3, device="PYTHON")  # on another device
IMAGE, WEIGHT = f32(1, 2, 5, 5), f32(4, 2, 3, 3)
HALF = f32(2, 3).half()

Kinds = type[Exception] | tuple[type[Exception], ...]
Case = tuple[Callable[[], Any], Kinds, list[str]]

# The first part is looked for in the first line of the message.
CONSTRUCTION: list[Case] = [
    (lambda: Tensor([[1, 2], [3]]), ValueError, ["Tensor", "ragged"]),
    (lambda: Tensor("abc"), RuntimeError, ["Tensor", "nfer dtype", "'abc'"]),
    (lambda: Tensor([1, "a"]), RuntimeError, ["Tensor", "nfer dtype", "'a'"]),
    (lambda: Tensor([Tensor([1])]), RuntimeError, ["Tensor", "Tensor.stack"]),
    (lambda: Tensor({"a": 1}), RuntimeError, ["Tensor", "dict"]),
    (lambda: Tensor(M), RuntimeError, ["Tensor"]),
    (lambda: Tensor([1], dtype="float99"), AttributeError, ["Tensor", "float99"]),
    (lambda: Tensor([1], dtype=dtypes.weakint), RuntimeError, ["Tensor", "weak", "concrete"]),
    (lambda: Tensor([1], device="NOSUCH"), ModuleNotFoundError, ["Tensor", "NOSUCH", "CPU"]),
    (lambda: Tensor([1], device="CPUS"), ModuleNotFoundError, ["Tensor", "did you mean CPU?"]),
    (lambda: Tensor([1], device=3), TypeError, ["Tensor", "device", "3"]),
    (lambda: Tensor([2**70]), OverflowError, ["Tensor", "int64"]),
    (lambda: Tensor(np.array(["a"])), KeyError, ["Tensor", "str32 has no counterpart", ".astype"]),
    (lambda: Tensor(np.array([1j])), KeyError, ["Tensor", "complex128 has no counterpart"]),
    (lambda: Tensor(b"abcde", dtype="int32"), ValueError, ["Tensor", "5 bytes", "4 bytes"]),
    (lambda: Tensor.manual_seed("x"), TypeError, ["manual_seed", "seed is 'x'", "expected int"]),
    (lambda: Tensor.from_blob(0, (3,)), ValueError, ["from_blob", "no memory of 12 bytes at address 0"]),
    (lambda: Tensor.stack(1), TypeError, ["stack", "self is 1 of type int, expected Tensor"]),
    (lambda: Tensor.relu(None), TypeError, ["relu", "self is None, expected Tensor"]),
    (lambda: Tensor(Path("/nonexistent/file")), FileNotFoundError, ["", "/nonexistent/file"]),
    (lambda: Tensor([1], unknown=3), TypeError, ["Tensor", "unknown"]),
    (lambda: Tensor.zeros(2, -1), ValueError, ["zeros", "(2, -1)", "sizes >= 0", "full"]),
    (lambda: Tensor.zeros(2, 1.5), RuntimeError, ["zeros", "shape must be int", "1.5"]),
    (lambda: Tensor.zeros((2, 3), 4), ValueError, ["zeros", "tuple", "1 more"]),
    (lambda: Tensor.empty(2, "a"), RuntimeError, ["empty", "shape must be int", "'a'"]),
    (lambda: Tensor.full((2, 3), "x"), (TypeError, RuntimeError), ["full", "'x'", "number"]),
    (lambda: Tensor.full((2, 3), 1.0, buffers=False), TypeError, ["full", "buffers"]),
    (lambda: Tensor.ones(2).full_like(1, dtype="no"), AttributeError, ["full_like", "no"]),
    (lambda: Tensor.arange(0, 5, 0), ZeroDivisionError, ["arange", "step"]),
    (lambda: Tensor.arange(0, 300, dtype=dtypes.uint8), OverflowError, ["arange", "299", "255"]),
    (lambda: Tensor.arange("a"), TypeError, ["arange", "stop", "'a'"]),
    (lambda: Tensor.linspace(0, 1, -3), ValueError, ["linspace", "-3"]),
    (lambda: Tensor.linspace(0, 1, 3, dtype=dtypes.bool), ValueError, ["linspace", "bool"]),
    (lambda: Tensor.eye(-1), ValueError, ["eye", "-1"]),
    (lambda: Tensor.zeros(2, foo=1), TypeError, ["zeros: got an unexpected keyword argument 'foo'"]),
    (lambda: Tensor.ones(2, foo=1), TypeError, ["ones: got an unexpected keyword argument 'foo'"]),
    (lambda: M.zeros_like(foo=1), TypeError, ["zeros_like: got an unexpected keyword argument 'foo'"]),
    (lambda: M.ones_like(foo=1), TypeError, ["ones_like: got an unexpected keyword argument 'foo'"]),
    (lambda: Tensor.stack([]), ValueError, ["stack: the list of tensors is empty", "at least one tensor"]),
    (lambda: Tensor.stack(), TypeError, ["stack: got no tensor"]),
    (lambda: Tensor.cat(), TypeError, ["cat: got no tensor"]),
]
MOVEMENT: list[Case] = [
    (lambda: M.reshape(4, 2), ValueError, ["reshape", "(2, 3)", "(4, 2)", "6", "8"]),
    (lambda: M.reshape(-1, -1), RuntimeError, ["reshape", "-1"]),
    (lambda: M.reshape(-1, 4), ValueError, ["reshape", "6 elements", "multiple of 4"]),
    (lambda: M.reshape(2.0, 3), TypeError, ["reshape", "2.0", "float"]),
    (lambda: M.reshape(M), TypeError, ["reshape", "Tensor"]),
    (lambda: M.view(7), ValueError, ["view", "(2, 3)", "7"]),
    (lambda: M.expand(2, 4), ValueError, ["expand", "(2, 3)", "(2, 4)", "equal or 1"]),
    (lambda: M.expand(3), ValueError, ["expand", "at least as many dims"]),
    (lambda: M.permute(0, 0), RuntimeError, ["permute", "(0, 0)", "permutation"]),
    (lambda: M.permute(0, 1, 2), IndexError, ["permute", "2", "out of range"]),
    (lambda: M.transpose(0, 2), IndexError, ["transpose", "out of range"]),
    (lambda: M.flip(0, 0), RuntimeError, ["flip", "multiple times"]),
    (lambda: M.flip(True), AssertionError, ["flip", "True"]),
    (lambda: M.shrink(((0, 3), None)), ValueError, ["shrink", "((0, 3), (0, 3))", "(2, 3)"]),
    (lambda: M.shrink((None,)), ValueError, ["shrink", "1 pairs for 2 dims"]),
    (lambda: M.pad((1, 2, 3)), ValueError, ["pad", "3 numbers", "even"]),
    (lambda: M.pad((1, 1), mode="mirror"), NotImplementedError, ["pad", "mirror", "reflect"]),
    (lambda: M.pad((3, 0), mode="reflect"), ValueError, ["pad", "reflect", "at most 2"]),
    (lambda: M.pad_to(1, 3), ValueError, ["pad_to", "(2, 3)", "(1, 3)"]),
    (lambda: M.pad_to(4), ValueError, ["pad_to", "1 sizes for 2 dims"]),
    (lambda: M.squeeze(5), IndexError, ["squeeze", "5", "out of range"]),
    (lambda: M.unsqueeze(5), IndexError, ["unsqueeze", "5", "out of range"]),
    (lambda: M.flatten(0, 4), IndexError, ["flatten", "4", "out of range"]),
    (lambda: M.flatten(1, 0), ShapeError, ["flatten", "dim 0 comes before dim 1"]),
    (lambda: M.unflatten(1, (2, 2)), (ValueError, IndexError), ["unflatten", "(2, 3)"]),
    (lambda: M.rearrange("a b -> a c"), AssertionError, ["rearrange", "c"]),
    (lambda: M.split([1, 2]), AssertionError, ["split", "sum to 3", "2"]),
    (lambda: M.chunk(0), AssertionError, ["chunk", "positive"]),
    (lambda: M.cat(f32(2, 4)), AssertionError, ["cat", "(2, 3)", "(2, 4)", "dim 0"]),
    (lambda: M.cat(f32(2)), AssertionError, ["cat", "(2, 3)", "(2,)"]),
    (lambda: M.cat(M, dim=2), IndexError, ["cat", "2", "out of range"]),
    (lambda: Tensor.cat([M, M]), AttributeError, ["cat", "list", "Tensor.cat(*tensors)"]),
    (lambda: M.cat(P), RuntimeError, ["cat", "CPU", "PYTHON", "same device"]),
    (lambda: M.stack(f32(3, 2)), AssertionError, ["stack", "(2, 3)", "(3, 2)"]),
    (lambda: M.meshgrid(indexing="zz"), RuntimeError, ["meshgrid", "zz", "ij"]),
    (lambda: M.repeat(2), ValueError, ["repeat", "1 repeats for 2 dims"]),
    *[
        (lambda counts=counts: M.repeat(*counts), ValueError, ["repeat: repeats", str(counts), "negative"])
        for counts in ((-1, 2), (2, -1), (-1, -1))
    ],
    *[
        (lambda sizes=sizes: M.unflatten(1, sizes), ValueError, ["unflatten: dim 1", str(sizes), "one of which may"])
        for sizes in ((-1, -1), (-3, -1), (-2, 2), (-3,))
    ],
    (lambda: M.repeat_interleave(2, 3), IndexError, ["repeat_interleave", "out of range"]),
    (lambda: M.roll((1, 2), 0), RuntimeError, ["roll", "2 shifts for 1 dims"]),
    (lambda: M.diag(), ValueError, ["diag", "2 dims", "diagonal()"]),
    (lambda: M.diagonal(0, 1, 1), RuntimeError, ["diagonal", "both 1"]),
    (lambda: M.unfold(1, 4, 1), RuntimeError, ["unfold", "4", "size 3"]),
    (lambda: f32(3).triu(), IndexError, ["triu", "at least 2 dims"]),
    (lambda: f32(3).T, IndexError, ["transpose", "out of range"]),
]
ELEMENTWISE: list[Case] = [
    (lambda: M + f32(2), IndexError, ["add", "(2, 3)", "(2,)", "float32", "broadcast"]),
    (lambda: M * f32(4, 3), ValueError, ["mul", "(2, 3)", "(4, 3)", "broadcast"]),
    (lambda: M - "a", RuntimeError, ["sub", "nfer dtype", "'a'"]),
    (lambda: M + None, RuntimeError, ["add", "nfer dtype", "None"]),
    (lambda: M + [1, 2, 3], TypeError, ["add", "list", "Tensor([1, 2, 3])"]),  # noqa: RUF005
    (lambda: M + P, RuntimeError, ["add", "same device", "CPU", "PYTHON", ".to('CPU')"]),
    (lambda: M.maximum(P), RuntimeError, ["maximum", "same device"]),
    (lambda: M.div(2, rounding_mode="up"), RuntimeError, ["div", "'up'", "floor"]),
    (lambda: I**-1, RuntimeError, ["pow", "float"]),
    (lambda: M & 1, RuntimeError, ["and", "float"]),
    (lambda: M.alu("ADD", M), TypeError, ["alu: op is 'ADD'", "Ops"]),
    (lambda: M.threefry(M), RuntimeError, ["threefry: blocks are", "float", "both are uint64"]),
    (lambda: M.cast("uint64").threefry(I), RuntimeError, ["threefry", "the key dtypes.int", "both are uint64"]),
    (lambda: M.newton_schulz(1, ()), ValueError, ["newton_schulz", "params=()", "at least one coefficient"]),
    (lambda: M.newton_schulz(-1, (1.0,)), ValueError, ["newton_schulz", "steps=-1"]),
    (lambda: ~M, RuntimeError, ["invert", "float"]),
    (lambda: M << 1, RuntimeError, ["lshift", "shift operands must be int", "float"]),
    (lambda: I >> 1.5, RuntimeError, ["rshift", "shift operands must be int"]),
    (lambda: M.where(1, 0), RuntimeError, ["where", "bool", "float"]),
    (lambda: (M > 0).where(f32(4, 3), 0), IndexError, ["where", "(2, 3)", "(4, 3)"]),
    (lambda: M.clamp(), RuntimeError, ["clamp", "min_", "max_"]),
    (lambda: M.gelu("exact"), RuntimeError, ["gelu", "'exact'", "tanh"]),
    (lambda: M.masked_fill(M, 0), RuntimeError, ["masked_fill", "bool"]),
    (lambda: M.eq(f32(7)), IndexError, ["eq", "(2, 3)", "(7,)"]),
    (lambda: bool(M), TypeError, ["", "item()"]),
    (lambda: 3 in M, TypeError, ["", "any()"]),
]
REDUCE: list[Case] = [
    (lambda: M.sum(2), IndexError, ["sum", "2", "out of range", "2 dims"]),
    (lambda: M.sum((0, 0)), RuntimeError, ["sum", "multiple times"]),
    (lambda: M.sum("a"), TypeError, ["sum", "'a'", "int"]),
    (lambda: M.sum(1.5), TypeError, ["sum", "1.5"]),
    (lambda: M.sum(dtype="no"), AttributeError, ["sum", "no"]),
    (lambda: M.max(-3), IndexError, ["max", "-3", "out of range"]),
    (lambda: M.mean(5), IndexError, ["mean", "5", "out of range"]),
    (lambda: M.std(5), IndexError, ["std", "5", "out of range"]),
    (lambda: M.argmax(3), IndexError, ["argmax", "3", "out of range"]),
    (lambda: M.cumsum(4), IndexError, ["cumsum", "4", "out of range"]),
    (lambda: M.cumprod(), TypeError, ["cumprod", "axis"]),
    (lambda: M.softmax(2), IndexError, ["softmax", "2", "out of range"]),
    (lambda: M.log_softmax("a"), TypeError, ["log_softmax", "'a'"]),
    (lambda: M.logsumexp(9), IndexError, ["logsumexp", "9"]),
    (lambda: M.normalize(dim=4), IndexError, ["normalize", "4"]),
    (lambda: M.sort(3), IndexError, ["sort", "3"]),
    (lambda: M.topk(4), ValueError, ["topk", "k=4", "size 3"]),
    (lambda: M.topk(1, sorted_=False), NotImplementedError, ["topk", "sorted"]),
    (lambda: f32(2, 3).sum(axes=1), TypeError, ["sum", "axes"]),
]
MATMUL: list[Case] = [
    (lambda: M @ f32(2, 3), RuntimeError, ["matmul", "3", "2", "cannot dot", "left.shape[-1] == right.shape[-2]"]),
    (lambda: M.dot(Tensor(3.0)), RuntimeError, ["dot", "0-d"]),
    (lambda: f32(3, 2, 3) @ f32(2, 3, 4), IndexError, ["matmul", "leading", "(3,)", "(2,)"]),
    (lambda: M @ P.T, RuntimeError, ["matmul", "same device"]),
    (lambda: M @ "a", (RuntimeError, TypeError), ["matmul", "'a'"]),
    (lambda: M.linear(f32(2, 3)), RuntimeError, ["linear", "cannot dot"]),
    (lambda: M.matmul(f32(3, 2), dtype="no"), AttributeError, ["matmul", "no"]),
    (lambda: Tensor.einsum("ij,jk->ik", M), ValueError, ["einsum", "2 subscripts for 1 operands"]),
    (lambda: Tensor.einsum("ij,ij->i", M, f32(2, 4)), RuntimeError, ["einsum", "'j'", "3 and 4"]),
    (lambda: Tensor.einsum("ijk->i", M), RuntimeError, ["einsum", "ijk"]),
    (lambda: Tensor.einsum("ij->z", M), IndexError, ["einsum", "z"]),
    (lambda: Tensor.einsum("ij->i", None), TypeError, ["einsum", "None"]),
    (lambda: f32(3).qr(), AssertionError, ["qr", "2"]),
    (lambda: f32(3).svd(), AssertionError, ["svd", "2"]),
    (lambda: f32(3).newton_schulz(1, (1.0,)), AssertionError, ["newton_schulz", "2"]),
]
CONV_AND_POOL: list[Case] = [
    *[
        (lambda k=k, p=p: IMAGE.max_pool2d(k, padding=p), ValueError, ["max_pool2d", f"padding {p}", "half"])
        for k, p in ((2, 2), (3, 2), ((3, 1), (1, 1)), (1, 1))
    ],
    *[
        (
            lambda n=n, s=s, d=d: IMAGE.conv_transpose2d(WEIGHT[:2], stride=s, dilation=d, output_padding=n),
            ValueError,
            ["conv_transpose2d", f"output_padding {(n, n)}", "smaller than the stride or the dilation"],
        )
        for n, s, d in ((1, 1, 1), (2, 2, 1), (2, 1, 2), (2, 2, 2))
    ],
    *[
        (lambda f=f: IMAGE.interpolate(scale_factor=f), TypeError, ["interpolate: scale_factor is", str(f), "number"])
        for f in ("a", (2.0, "a"), (None,))
    ],
    (lambda: IMAGE.conv2d(f32(4, 3, 3, 3)), AssertionError, ["conv2d", "2 channels", "expects 3"]),
    (lambda: IMAGE.conv2d(f32(4, 2, 3)), AssertionError, ["conv2d", "4 dims", "3"]),
    (lambda: IMAGE[0].conv2d(WEIGHT), AssertionError, ["conv2d", "3 dims", ".unsqueeze(0)"]),
    (lambda: IMAGE.conv2d(f32(4, 2, 7, 7)), AssertionError, ["conv2d", "spans 7", "5"]),
    (lambda: IMAGE.conv2d(WEIGHT, groups=3), AssertionError, ["conv2d", "groups=3"]),
    (lambda: IMAGE.conv2d(WEIGHT, stride=(1, 2, 3)), AssertionError, ["conv2d", "stride (1, 2, 3)"]),
    (lambda: IMAGE.conv2d(WEIGHT, stride=0), AssertionError, ["conv2d", "stride", "at least 1"]),
    (lambda: IMAGE.conv2d(WEIGHT, dilation="a"), TypeError, ["conv2d", "dilation", "'a'"]),
    (lambda: IMAGE.conv2d(WEIGHT, padding=(1, 2, 3)), ValueError, ["conv2d", "padding (1, 2, 3)"]),
    (lambda: IMAGE.conv2d(WEIGHT.to("PYTHON")), RuntimeError, ["conv2d", "same device"]),
    (lambda: IMAGE.max_unpool2d((IMAGE * 0).int().to("PYTHON"), 1), RuntimeError, ["max_unpool2d", "same device"]),
    (lambda: IMAGE.conv2d(WEIGHT, f32(3)), (IndexError, ValueError), ["conv2d", "(1, 3, 1, 1)"]),
    (lambda: IMAGE.conv2d(None), (TypeError, AttributeError), ["conv2d", "weight", "None"]),
    (lambda: IMAGE.conv_transpose2d(WEIGHT), AssertionError, ["conv_transpose2d", "2 channels", "expects 4"]),
    (lambda: IMAGE.avg_pool2d((6, 6)), AssertionError, ["avg_pool2d", "spans 6", "5"]),
    (lambda: IMAGE.max_pool2d((6, 6)), AssertionError, ["max_pool2d", "spans 6", "5"]),
    (lambda: IMAGE.max_pool2d(2, padding=(1, 1, 1)), ValueError, ["max_pool2d", "padding (1, 1, 1)"]),
    (lambda: IMAGE.max_pool2d("a"), TypeError, ["max_pool2d", "'a'"]),
    (lambda: IMAGE.avg_pool2d(2, stride=0), AssertionError, ["avg_pool2d", "stride", "at least 1"]),
    (lambda: IMAGE.max_unpool2d(i32(1, 2, 3, 3)), IndexError, ["max_unpool2d", "(1, 2, 5, 5)", "(1, 2, 3, 3)"]),
    (lambda: IMAGE.interpolate((3, 3), mode="cubic"), AssertionError, ["interpolate", "cubic", "linear"]),
    (
        lambda: IMAGE.interpolate((3, 3), mode="nearest", align_corners=True),
        AssertionError,
        ["interpolate", "align_corners"],
    ),
    (lambda: IMAGE.interpolate(3), (TypeError, AssertionError), ["interpolate", "3"]),
    (lambda: M.dropout(1.5), ValueError, ["dropout", "1.5"]),
    (
        lambda: M.scaled_dot_product_attention(M, M, attn_mask=f32(2, 2), is_causal=True),
        RuntimeError,
        ["scaled_dot_product_attention", "attn_mask", "is_causal"],
    ),
    (
        lambda: f32(1, 2, 4).scaled_dot_product_attention(f32(1, 2, 5), f32(1, 2, 5)),
        IndexError,
        ["scaled_dot_product_attention", "4", "5"],
    ),
]
INDEXING: list[Case] = [
    *[
        (lambda call=call, size=size: call(size), kind, [op, str(size)])
        for op, call in (
            ("masked_select", lambda size: M.masked_select(M > 2, size=size)),
            ("nonzero", lambda size: M.nonzero(size=size)),
            ("one_hot", lambda size: I.one_hot(size)),
        )
        for size, kind in ((-1, ValueError), (-3, ValueError), (2.5, TypeError), ("a", TypeError))
    ],
    *[
        (
            lambda offsets=offsets: i32(3).embedding_bag(M, Tensor(offsets)),
            ValueError,
            ["embedding_bag", f"offsets are {offsets}", "begin with 0"],
        )
        for offsets in ([1, 2], [0, 9], [0, 2, 1], [0, -1])
    ],
    (lambda: M[0, 0, 0], IndexError, ["getitem", "too many", "3", "2 dims"]),
    (lambda: M[2], IndexError, ["getitem", "2 is out of bounds", "size 2"]),
    (lambda: M[..., 0, ...], IndexError, ["getitem", "single ellipsis"]),
    (lambda: M[1.5], IndexError, ["getitem", "1.5", "float"]),
    (lambda: M["a"], IndexError, ["getitem", "'a'", "str"]),
    (lambda: M[True], RuntimeError, ["getitem", "bool"]),
    (lambda: M[0:"a"], TypeError, ["getitem"]),
    (lambda: M[::0], ValueError, ["getitem", "step"]),
    (lambda: M[f32(2)], IndexError, ["getitem", "float", "integer"]),
    (lambda: M[[0, 5]], IndexError, ["getitem", "5", "size 2"]),
    (lambda: M[[0, 1], [0, 1, 2]], IndexError, ["getitem", "broadcast", "(2,)", "(3,)"]),
    (lambda: M[Tensor([0], device="PYTHON")], RuntimeError, ["getitem", "CPU", "PYTHON"]),
    (lambda: M[f32(2, 4) > 0], IndexError, ["getitem", "mask", "(2, 4)", "(2, 3)"]),
    (lambda: M.masked_select(M), RuntimeError, ["masked_select", "bool"]),
    (lambda: M.masked_select(f32(4) > 0), ValueError, ["masked_select", "(4,)", "(2, 3)"]),
    (lambda: M.one_hot(3), RuntimeError, ["one_hot", "int"]),
    (lambda: I.one_hot(-2), ValueError, ["one_hot", "-2"]),
    (lambda: len(Tensor(3.0)), TypeError, ["", "0-d"]),
]
WRITES: list[Case] = [
    (lambda: f32(2, 3).assign(f32(4)), ValueError, ["assign", "(4,)", "(2, 3)"]),
    (lambda: f32(2, 3).assign(I), RuntimeError, ["assign", "assign dtype mismatch", "float", "int", ".cast("]),
    (lambda: f32(2, 3).assign(P), RuntimeError, ["assign", "assign device mismatch", "CPU", "PYTHON", ".to("]),
    (lambda: f32(2, 3).assign("a"), RuntimeError, ["assign", "'a'"]),
    (lambda: f32(2, 3).assign(None), TypeError, ["assign", "x is None", "Tensor, number, list or array"]),
    (lambda: f32(2, 3).realize().assign(None), TypeError, ["assign", "x is None"]),
    (lambda: f32(2, 3)[0].assign(None), TypeError, ["assign", "x is None"]),
    (lambda: f32(2, 3).replace(f32(3)), AssertionError, ["replace", "(2, 3)", "(3,)"]),
    (lambda: f32(2, 3).realize().__setitem__(0, f32(4)), ValueError, ["setitem", "(4,)", "(3,)"]),
    (
        lambda: i32(2, 3).realize().__setitem__(0, f32(3)),
        RuntimeError,
        ["setitem", "setitem dtype mismatch", "float", "int"],
    ),
    (lambda: f32(2, 3).realize().__setitem__(5, 1.0), IndexError, ["setitem", "5", "size 2"]),
    (lambda: f32(2, 3).realize().__setitem__("a", 1.0), IndexError, ["setitem", "'a'"]),
    (lambda: f32(2, 3).realize().__setitem__(0, P[0]), RuntimeError, ["setitem", "CPU", "PYTHON"]),
    (lambda: i32(3).__iadd__(1.5), RuntimeError, ["assign", "dtype mismatch", "int", "float"]),
    (lambda: f32(2).__delitem__(0), TypeError, ["", "deleting"]),
]
SCATTER_GATHER: list[Case] = [
    (lambda: M.gather(0, i32(2)), RuntimeError, ["gather", "1 dims", "2"]),
    (lambda: M.gather(0, M), RuntimeError, ["gather", "float", "integer"]),
    (lambda: M.gather(0, i32(2, 4)), AssertionError, ["gather", "(2, 4)", "(2, 3)"]),
    (lambda: M.gather(3, I), IndexError, ["gather", "3", "out of range"]),
    (lambda: M.gather(0, I.to("PYTHON")), RuntimeError, ["gather", "CPU", "PYTHON"]),
    (lambda: M.gather(0, None), (TypeError, AttributeError), ["gather", "index", "None"]),
    (lambda: M.scatter(0, I, M, reduce="add"), TypeError, ["scatter", "reduce", "scatter_reduce"]),
    (lambda: M.scatter(0, I, 1.0, reduce="max"), TypeError, ["scatter", "'max'", "multiply"]),
    (lambda: M.scatter(0, I, HALF), RuntimeError, ["scatter", "half", "float"]),
    (lambda: M.scatter(0, I, f32(1, 2)), AssertionError, ["scatter", "(2, 3)", "(1, 2)"]),
    (lambda: M.scatter(0, I, P), RuntimeError, ["scatter", "CPU", "PYTHON"]),
    (lambda: M.scatter_reduce(0, I, M, "median"), RuntimeError, ["scatter_reduce", "'median'", "amax"]),
    (lambda: M.scatter_reduce(0, i32(2), M, "sum"), (AssertionError, RuntimeError), ["scatter_reduce", "1 dims"]),
]
LOSSES: list[Case] = [
    (lambda: M.cross_entropy(i32(3)), RuntimeError, ["cross_entropy", "(3,)"]),
    (lambda: M.cross_entropy(f32(2)), RuntimeError, ["cross_entropy", "float"]),
    (lambda: M.cross_entropy(i32(2), reduction="avg"), ValueError, ["cross_entropy", "'avg'", "mean"]),
    (lambda: M.cross_entropy(i32(2), label_smoothing=2.0), AssertionError, ["cross_entropy", "2.0"]),
    (lambda: M.cross_entropy(i32(2).to("PYTHON")), RuntimeError, ["cross_entropy", "CPU", "PYTHON"]),
    (lambda: M.cross_entropy(None), (TypeError, AttributeError), ["cross_entropy", "Y", "None"]),
    (lambda: M.sparse_categorical_crossentropy(f32(2)), RuntimeError, ["sparse_categorical_crossentropy", "float"]),
    (
        lambda: M.sparse_categorical_crossentropy(i32(2).to("PYTHON")),
        RuntimeError,
        ["sparse_categorical_crossentropy", "PYTHON"],
    ),
    (lambda: M.nll_loss(i32(2), reduction="x"), ValueError, ["nll_loss", "'x'"]),
    (lambda: M.binary_crossentropy(M, reduction="x"), ValueError, ["binary_crossentropy", "'x'"]),
    (lambda: M.binary_crossentropy(f32(4)), (ValueError, IndexError), ["binary_crossentropy", "(2, 3)", "(4,)"]),
    (
        lambda: M.binary_crossentropy_logits(f32(4)),
        (ValueError, IndexError),
        ["binary_crossentropy_logits", "(2, 3)", "(4,)"],
    ),
]
RANDOM: list[Case] = [
    (lambda: Tensor.rand(2, -1), ValueError, ["rand", "(2, -1)"]),
    (lambda: Tensor.rand(2, dtype=dtypes.int32), ValueError, ["rand", "int", "randint"]),
    (lambda: Tensor.rand(2, device=("CPU", "CPU:1")), ValueError, ["rand", "one device"]),
    (lambda: Tensor.rand(2**70), MemoryError, ["rand", "numbers"]),
    (lambda: Tensor.rand("a"), TypeError, ["rand", "'a'"]),
    (lambda: Tensor.randn(2, -3), ValueError, ["randn", "(2, -3)"]),
    (lambda: I.rand_like(), ValueError, ["rand_like", "int"]),
    (lambda: Tensor.randint(3, low=5, high=5), ValueError, ["randint", "low=5", "high=5"]),
    (lambda: Tensor.randint(3, low=0.5, high=2), TypeError, ["randint", "0.5"]),
    (lambda: Tensor.randint(3, dtype=dtypes.float32), TypeError, ["randint", "float"]),
    (lambda: Tensor.uniform(3, low=2.0, high=1.0), ValueError, ["uniform", "2.0", "1.0"]),
    (lambda: Tensor.normal(3, std=-1.0), ValueError, ["normal", "-1.0"]),
    (lambda: f32(2, 2, 2).multinomial(2), AssertionError, ["multinomial", "3"]),
    (lambda: f32(3).multinomial(0), AssertionError, ["multinomial", "0"]),
    (lambda: f32(3).multinomial(4), AssertionError, ["multinomial", "4", "3"]),
]
CASTS: list[Case] = [
    (lambda: M.cast("floaty"), AttributeError, ["cast", "floaty"]),
    (lambda: M.cast(3), AttributeError, ["cast", "3"]),
    (lambda: M.bitcast(dtypes.float64), RuntimeError, ["bitcast", "(2, 3)", "8"]),
    (lambda: M.bitcast("x"), AttributeError, ["bitcast", "x"]),
    (lambda: Tensor(3).bitcast(dtypes.int32), RuntimeError, ["bitcast", "weak"]),
    (lambda: Tensor(3).element_size(), RuntimeError, ["element_size", "weak"]),
    (lambda: Tensor(3).nbytes(), RuntimeError, ["nbytes", "weak"]),
    (lambda: M.bfloat16().data(), AssertionError, ["data", "bfloat16", ".float()"]),
    (lambda: M.item(), AssertionError, ["item", "one element", "6"]),
    (lambda: int(M), TypeError, ["", "int"]),
]
DEVICES: list[Case] = [
    (lambda: M.to("NOSUCH"), ModuleNotFoundError, ["to", "NOSUCH", "CPU"]),
    (lambda: M.to(5), TypeError, ["to", "5"]),
    (lambda: M.to(()), TypeError, ["to", "()"]),
    (lambda: M.shard(("CPU", "PYTHON"), 1), RuntimeError, ["shard", "2 devices", "axis 1", "(2, 3)", "pad"]),
    (lambda: M.shard(("CPU", "CPU:0"), 0), RuntimeError, ["shard", "twice"]),
    (lambda: M + M.shard(("CPU", "PYTHON")), RuntimeError, ["add", "same device", "PYTHON"]),
    (lambda: M.shard("CPU", 7), IndexError, ["shard", "7", "out of range"]),
    (lambda: Tensor(3).linear_with_vars(), RuntimeError, ["linear_with_vars", "weak"]),
    (lambda: Device["NOSUCH"], ModuleNotFoundError, ["Device", "NOSUCH"]),
    (lambda: setattr(Device, "DEFAULT", "CPU"), AttributeError, ["", "Device.DEFAULT", "DEV"]),
    (lambda: Context(NOSUCH=1).__enter__(), KeyError, ["Context", "NOSUCH"]),
]
AUTOGRAD: list[Case] = [
    (lambda: M.backward(), AssertionError, ["backward", "scalar", "(2, 3)"]),
    (lambda: I.sum().backward(), RuntimeError, ["backward", "float", "int"]),
    (lambda: M.backward(f32(5)), (AssertionError, IndexError), ["backward", "(5,)", "(2, 3)"]),
    (lambda: M.sum().gradient(I), RuntimeError, ["gradient", "float", "int"]),
    (lambda: M.gradient(M), AssertionError, ["gradient", "scalar"]),
    (lambda: M.sum().gradient(None), (TypeError, AttributeError), ["gradient", "targets", "None"]),
]


def _jitted(f: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> Any:
    jit = TinyJit(f, **options)
    result = None
    for args in calls:
        result = jit(*args)
    return result


def _real(*shape: int) -> Tensor:
    return f32(*shape).realize()


def _held(box: list[Tensor]) -> Tensor:
    return box[0]


JIT: list[Case] = [
    (
        lambda: _jitted(lambda x: (x + 1).sum().item(), (_real(2),), (_real(2),)),
        JitError,
        ["", "cannot access tensor data during JIT capture"],
    ),
    (lambda: _jitted(lambda x: 5, (_real(2),), (_real(2),)), JitError, ["TinyJit", "non-Tensor value", "int"]),
    (lambda: _jitted(lambda x: None, (_real(2),), (_real(2),)), JitError, ["TinyJit", "didn't JIT anything!"]),
    (
        lambda: _jitted(lambda x: (x + 1).realize(), (_real(2),), (_real(2),), (_real(3),)),
        JitError,
        ["TinyJit", "args mismatch in JIT", "(2,)", "(3,)"],
    ),
    (
        lambda: _jitted(lambda x: (x + 1).realize(), (_real(2),), (_real(2),), (i32(2).realize(),)),
        JitError,
        ["TinyJit", "args mismatch in JIT", "int"],
    ),
    (
        lambda: _jitted(lambda x, y: (x + y).realize(), *[(t := _real(2), t)] * 2),
        JitError,
        ["TinyJit", "duplicate inputs to JIT"],
    ),
    (
        lambda: _jitted(lambda x: (x + 1).realize(), (Tensor(1.0),), (Tensor(1.0),)),
        JitError,
        ["TinyJit", "JIT inputs must be real buffers", ".clone()"],
    ),
    (
        lambda: _jitted(lambda x: _jitted(lambda y: (y + 1).realize(), (x,)), (_real(2),), (_real(2),)),
        RuntimeError,
        ["", "having TinyJit inside another TinyJit is not supported"],
    ),
]
FUNCTIONS: list[Case] = [
    (lambda: function(lambda x: (x + 1).realize())(M), AssertionError, ["", "usage of device", "disallowed"]),
    (lambda: function(lambda x: 3)(M), RuntimeError, ["function", "function return type", "int"]),
    (lambda: function(lambda x: x + _held([HELD]))(M), RuntimeError, ["function", "implicit buffer"]),
]
HELD = _real(2, 3)
PARAMETER = _real(2)


def _step(make: Callable[[list[Tensor]], Any], training: int = 1) -> None:
    with Context(TRAINING=training):
        make([f32(2).realize()]).step()


OPTIMIZERS: list[Case] = [
    (lambda: nn.optim.Adam([]), AssertionError, ["Adam", "none"]),
    (lambda: nn.optim.Adam([PARAMETER], lr=-1.0), ValueError, ["Adam", "learning rate", "-1.0"]),
    *[
        (lambda f=f, k=k, v=v: f([PARAMETER], **{k: v}), ValueError, [f.__name__, k, str(v)])
        for f in (nn.optim.Adam, nn.optim.AdamW, nn.optim.LAMB)
        for k, v in (("b1", 2), ("b1", 1.0), ("b2", -0.1), ("b2", 2), ("eps", -1e-3))
    ],
    (lambda: nn.optim.Adam([PARAMETER], lr="a"), TypeError, ["Adam", "lr", "'a'"]),
    (lambda: nn.optim.Adam(["a"]), TypeError, ["Adam", "'a'"]),
    (lambda: nn.optim.Adam(None), TypeError, ["Adam", "params", "None"]),
    (lambda: nn.optim.AdamW([PARAMETER], weight_decay=-1.0), ValueError, ["AdamW", "weight_decay", "-1.0"]),
    (lambda: nn.optim.SGD([PARAMETER], momentum=-1.0), ValueError, ["SGD", "momentum", "-1.0"]),
    (lambda: nn.optim.SGD(f32(2)), TypeError, ["SGD", "params is one Tensor, expected a list"]),
    (lambda: nn.optim.Muon([PARAMETER], fused=True), AssertionError, ["Muon", "fused"]),
    (lambda: nn.optim.SGD([PARAMETER], learning_rate=1.0), TypeError, ["SGD", "learning_rate"]),
    (
        lambda: _step(nn.optim.Adam),
        AssertionError,
        ["Adam.step:", "parameter 0 of shape (2,) has no gradient", "is_param_"],
    ),
    (lambda: _step(nn.optim.AdamW), AssertionError, ["AdamW.step:", "has no gradient"]),
    (lambda: _step(nn.optim.SGD), AssertionError, ["SGD.step:", "has no gradient"]),
    (lambda: _step(nn.optim.LAMB), AssertionError, ["LAMB.step:", "has no gradient"]),
    (lambda: _step(nn.optim.Muon), AssertionError, ["Muon.step:", "has no gradient"]),
    (lambda: _step(nn.optim.Adam, training=0), RuntimeError, ["Adam.step:", "TRAINING must be enabled"]),
]
LAYERS: list[Case] = [
    (lambda: nn.Linear(3, 4)(f32(2, 5)), RuntimeError, ["Linear", "5", "3", "cannot dot"]),
    (lambda: nn.Linear("a", 4), TypeError, ["Linear", "in_features", "'a'"]),
    (lambda: nn.Linear(-1, 4), ValueError, ["Linear", "in_features=-1", "at least 0"]),
    (lambda: nn.Linear(4, -1), ValueError, ["Linear", "out_features=-1"]),
    (lambda: nn.Conv2d(-3, 4, 3), ValueError, ["Conv2d", "in_channels=-3"]),
    *[
        (lambda f=f, a=a, g=g: f(*a, 3, groups=g), ValueError, [f.__name__, f"groups={g}", "divides both"])
        for f in (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)
        for a, g in (((2, 2), 0), ((2, 2), -1), ((3, 4), 2), ((4, 3), 2))
    ],
    (lambda: nn.Linear(3, 4)(None), (TypeError, AttributeError), ["Linear", "x", "None"]),
    (lambda: nn.Linear(3, 4)(P), RuntimeError, ["Linear", "same device"]),
    (lambda: nn.Conv2d(3, 4, 3)(IMAGE), AssertionError, ["Conv2d", "2 channels", "expects 3"]),
    (lambda: nn.Conv2d(3, 4, 3, padding="full"), ValueError, ["Conv2d", "'full'", "same"]),
    (lambda: nn.Conv2d(3, 4, 3, stride=2, padding="same"), ValueError, ["Conv2d", "same", "stride"]),
    (lambda: nn.GroupNorm(3, 4), ValueError, ["GroupNorm", "3", "4"]),
    (lambda: nn.LayerNorm(4)(M), AssertionError, ["LayerNorm", "(4,)", "(2, 3)"]),
    (lambda: nn.Embedding(5, 2)(M), TypeError, ["Embedding", "float"]),
    *[
        (
            lambda sz=sz, shape=shape, options=options: nn.BatchNorm(sz, **options)(f32(*shape)),
            (ValueError, IndexError),
            ["BatchNorm", f"{sz} channels in axis 1", str(shape)],
        )
        for sz, shape in ((3, (2, 4, 5)), (3, (2, 1, 5)), (1, (2, 3)), (3, (3,)), (4, (2, 3, 4, 4)))
        for options in ({}, {"affine": False}, {"track_running_stats": False})
    ],
    *[
        (lambda x=x: nn.LSTMCell(3, 4)(x), ValueError, ["LSTMCell", f"{x.ndim} dims", "(N, input_size)"])
        for x in (f32(3), f32(1, 2, 3))
    ],
    (lambda: nn.LSTMCell(3, 4)(f32(2, 5)), RuntimeError, ["LSTMCell", "5"]),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "junk").write_bytes(b"not a checkpoint at all, but long enough to hold a header")
    (folder / "short").write_bytes(b"\x01")
    return folder


FILES: list[tuple[Callable[[Path], Any], Kinds, list[str]]] = [
    (lambda d: safe_load(d / "none"), FileNotFoundError, ["none"]),
    (lambda d: safe_load(d / "junk"), ValueError, ["safe_load", "junk"]),
    (lambda d: safe_load(d / "short"), ValueError, ["safe_load", "short"]),
    (lambda d: safe_load(5), TypeError, ["safe_load", "5"]),
    (lambda d: safe_save({"a": Tensor(3)}, d / "out"), ValueError, ["safe_save", "weak"]),
    (lambda d: safe_save(None, d / "out"), (TypeError, AttributeError), ["safe_save", "tensors", "None"]),
    (lambda d: safe_save({"a": 3}, d / "out"), (TypeError, AttributeError), ["safe_save", "3"]),
    (lambda d: torch_load(d / "none"), FileNotFoundError, ["none"]),
    (lambda d: torch_load(d / "junk"), Exception, ["torch_load", "junk is no file that torch.save wrote"]),
    (lambda d: torch_load(d / "short"), Exception, ["torch_load", "short is no file that torch.save wrote"]),
    (lambda d: tar_extract(d / "junk"), Exception, ["tar_extract", "junk"]),
    (lambda d: zip_extract(d / "junk"), Exception, ["zip_extract", "junk"]),
    (lambda d: load_state_dict({"a": f32(2)}, {}, verbose=False), KeyError, ["load_state_dict", "a", "strict=False"]),
    (
        lambda d: load_state_dict({"a": f32(2)}, {"a": f32(3)}, verbose=False),
        ValueError,
        ["load_state_dict", "Shape mismatch in layer", "(2,)", "(3,)"],
    ),
    (
        lambda d: load_state_dict({"a": f32(2)}, None, verbose=False),
        (TypeError, AttributeError),
        ["load_state_dict", "state_dict", "None"],
    ),
    (lambda d: nn.state.TensorIO(M), ValueError, ["", "uint8", "(2, 3)"]),
]


def _wrong_rank(out: UOp, x: UOp) -> UOp:
    i = UOp.range(2, 0)
    return out[i, i, i].store(x[i, i]).end(i).sink()


KERNELS: list[Case] = [
    (
        lambda: M.custom_kernel(M, fxn=lambda *a: 5),
        (RuntimeError, TypeError, AssertionError),
        ["custom_kernel", "int", "SINK"],
    ),
    (lambda: M.custom_kernel(M, fxn=_wrong_rank), IndexError, ["getitem", "3 for 2 dims"]),
    (
        lambda: M[: Variable("n", 1, 2).bind(1)].custom_kernel(fxn=lambda a: a.sink()),
        AssertionError,
        ["custom_kernel", "symbolic"],
    ),
    (lambda: UOp(Ops.CONST, None, (), "a"), RuntimeError, ["", "nfer dtype", "'a'"]),
    (lambda: UOp.variable("n", 0, 4) + M, RuntimeError, ["", "node on the left of a Tensor"]),
]

FAMILIES: dict[str, list[Case]] = {
    "construction": CONSTRUCTION, "movement": MOVEMENT, "elementwise": ELEMENTWISE, "reduce": REDUCE, "matmul": MATMUL,
    "conv and pool": CONV_AND_POOL, "indexing": INDEXING, "writes": WRITES, "scatter and gather": SCATTER_GATHER,
    "losses": LOSSES, "random": RANDOM, "casts": CASTS, "devices": DEVICES, "autograd": AUTOGRAD, "jit": JIT,
    "functions": FUNCTIONS, "optimizers": OPTIMIZERS, "layers": LAYERS, "kernels": KERNELS,
}  # fmt: skip


def assert_says(error: BaseException, parts: list[str], with_line: bool = True) -> None:
    """Fail unless the message names the operation first, holds the parts, and shows the line of this file."""
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    rows = text.splitlines()
    lines = [row for row in rows if row.strip().startswith("line ")]
    rest = "\n".join(row for row in rows if row not in lines)
    assert parts[0] in rows[0], f"the first line does not name {parts[0]!r}:\n{text}"
    for part in parts[1:]:
        assert part in rest, f"{part!r} is not in\n{text}"
    if with_line:
        assert any("test_errors.py" in row for row in lines), f"the user's line is not in\n{text}"


LED_TO: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: f32(3).__setitem__(5, 1), "setitem: index 5 is out of bounds", "getitem"),
    (lambda: f32(3).__setitem__([5], 1), "setitem: index 5 is out of bounds", "getitem"),
    (lambda: nn.Linear(3, 5)(f32(2, 4)), "Linear: cannot dot: inner sizes differ", "matmul"),
    (lambda: f32(3).dot(Tensor(1.0)), "dot: cannot dot a 0-d operand", "matmul"),
    (lambda: M.layernorm(1.5), "layernorm: dim 1.5 is a float", "mean"),
    (lambda: Tensor.randint(3, low=5, high=2), "randint: low=5 must be below high=2", "uniform"),
    (lambda: Tensor.uniform(1.5), "uniform: shape must be ints", "rand"),
    (lambda: Tensor([[1, 2], [3]]), "Tensor: nested lists are ragged", ""),
    (lambda: nn.optim.SGD([I]), "SGD: a parameter of dtype dtypes.int has no gradient", ""),
    (lambda: nn.optim.SGD([M], foo=1), "SGD: got an unexpected keyword argument 'foo'", ""),
    (lambda: nn.optim.SGD([f32(2).realize()]).step(), "SGD.step: ", ""),
    (lambda: M.relu(1, 2), "relu: takes 1 positional argument but 3 were given", ""),
]


@pytest.mark.parametrize(("program", "begins", "inner"), LED_TO)
def test_a_message_has_one_name_before_it_and_the_inner_call_in_a_row(
    program: Callable[[], Any], begins: str, inner: str
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  many types; the text is what is tested
        program()
    first, *rows = str(caught.value).splitlines()
    assert first.startswith(begins)
    named = [row.split()[1:] for row in rows if row.split()[0] == "in"]
    assert named == ([[inner]] if inner else [])
    starts = {len(row) - len(row[2:].lstrip("abcdefghijklmnopqrstuvwxyz_").lstrip()) for row in rows}
    assert len(starts) == 1, f"the rows are not aligned:\n{caught.value}"


@pytest.mark.parametrize(
    ("program", "kinds", "parts"),
    [pytest.param(*case, id=f"{family} {i}") for family, cases in FAMILIES.items() for i, case in enumerate(cases)],
)
def test_message(program: Callable[[], Any], kinds: Kinds, parts: list[str]) -> None:
    with pytest.raises(kinds) as caught:
        program()
    assert_says(caught.value, parts, with_line=parts[0] != "")


@pytest.mark.parametrize(("program", "kinds", "parts"), FILES)
def test_message_about_a_file(files: Path, program: Callable[[Path], Any], kinds: Kinds, parts: list[str]) -> None:
    with pytest.raises(kinds) as caught:
        program(files)
    assert_says(caught.value, ["", *parts], with_line=False)


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [("A+B+CPU", RuntimeError, "too many '+'"), ("CPU:LLVM:x86:y", RuntimeError, "too many ':'")],
)
def test_message_about_the_variable_dev(text: str, kind: type[Exception], part: str) -> None:
    with pytest.raises(kind) as caught:
        Target.parse(text)
    assert "DEV" in str(caught.value)
    assert text in str(caught.value)
    assert part in str(caught.value)
    assert "[INTERFACE[:INDICES]+]DEVICE[:RENDERER[:ARCH]]" in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "parts"),
    [
        ({"DEV": "NOSUCH"}, ["ModuleNotFoundError", "there is no device 'NOSUCH'"]),
        ({"DEV": "CPU:NOSUCH"}, ["RuntimeError", "has no renderer", "NOSUCH", "LLVM"]),
        ({"CPU_LLVM": "1"}, ["CPU_LLVM", "deprecated", "DEV=CPU:LLVM"]),
        ({"DEBUG": "high"}, ["ValueError", "DEBUG", "high"]),
    ],
)
def test_message_about_the_environment(environment: dict[str, str], parts: list[str]) -> None:
    program = "from tinygrad import Tensor; (Tensor([1, 2]) + 1).realize()"
    clean = {k: v for k, v in os.environ.items() if k not in {"DEV", "CPU_LLVM", "DEBUG"}}
    env = {**clean, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    for part in parts:
        assert part in done.stderr


def test_a_data_set_for_an_unknown_device() -> None:
    with pytest.raises(ModuleNotFoundError, match="there is no device 'NOSUCH'"):
        nn.datasets.mnist(device="NOSUCH")


# ---- what an error leaves behind ------------------------------------------------------------------------------------


def test_errors_of_the_users_own_functions_come_through_as_they_are() -> None:
    def fails(x: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        M.sequential([fails])
    assert caught.value.args == ("mine",)


def test_the_line_is_that_of_the_innermost_user_function() -> None:
    def model(x: Tensor) -> Tensor:
        return x.reshape(5)  # here

    with pytest.raises(ShapeError) as caught:
        M.sequential([model])
    assert "# here" in str(caught.value)


def test_tracebacks_show_the_wrappers_of_methods_once() -> None:
    with pytest.raises(ShapeError) as caught:
        nn.Linear(3, 4)(f32(2, 5))
    files = [Path(str(entry.path)).name for entry in caught.traceback]
    assert files.count("boundary.py") == 1
    assert files[0] == "test_errors.py"
    assert files[-1] == "op.py"


def test_shape_errors_serve_handlers_of_either_kind() -> None:
    for kind in (ShapeError, ValueError, IndexError):
        with pytest.raises(kind):
            M.reshape(5)
