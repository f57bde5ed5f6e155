"""Sizes that users tripped over: right results, in time and memory that grow with the work."""

from __future__ import annotations

import numpy as np

from tinygrad import Tensor, nn
from tinygrad.helpers import GlobalCounters


def test_masked_select_of_half_a_million() -> None:
    x = Tensor.arange(500_000)
    picked = x.masked_select(x % 3 == 0).numpy()
    assert picked.shape == (166_667,)
    np.testing.assert_array_equal(picked, np.arange(0, 500_000, 3))


def test_assigning_72_000_rows_by_index() -> None:
    t = Tensor.zeros(100_000).contiguous()
    t[Tensor.arange(72_000)] = Tensor.ones(72_000)
    np.testing.assert_array_equal(t.numpy(), (np.arange(100_000) < 72_000).astype(np.float32))


def test_assigning_by_index_tensors_casts_to_the_target() -> None:
    t = Tensor.zeros(2, 3, 4).contiguous()
    t[Tensor([0, 1]), :, Tensor([1, 2])] = Tensor.arange(6).reshape(2, 3)
    assert t[0, :, 1].tolist() == [0, 1, 2]
    assert t[1, :, 2].tolist() == [3, 4, 5]


def test_embedding_reads_only_the_rows_it_needs() -> None:
    layer = nn.Embedding(50_000, 64)
    layer.weight.realize()
    tokens = np.random.default_rng(0).integers(0, 50_000, 512)
    wanted = Tensor(tokens.astype(np.int32)).realize()
    GlobalCounters.reset()
    rows = layer(wanted).realize()
    assert GlobalCounters.global_ops < 50_000 * 64, "a lookup must not touch the whole table"
    np.testing.assert_array_equal(rows.numpy(), layer.weight.numpy()[tokens])


def test_causal_mask_never_exists_in_memory() -> None:
    size = 16_384
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    rows = Tensor.ones(size, size, buffer=False).tril().sum(axis=1).cast("int32").clone().realize()
    assert GlobalCounters.mem_used - before < 16 * 1024 * 1024
    assert rows[::4096].tolist() == [1, 4097, 8193, 12289]


def test_stack_of_thousands_of_tensors() -> None:
    count = 6_131
    parts = [Tensor(np.full((28, 28), i, np.float32)) for i in range(count)]
    stacked = Tensor.stack(*parts).numpy()
    assert stacked.shape == (count, 28, 28)
    np.testing.assert_array_equal(stacked[:, 3, 5], np.arange(count, dtype=np.float32))


def test_scans_and_sorts_of_long_rows() -> None:
    x = np.random.default_rng(1).standard_normal(20_000).astype(np.float32)
    np.testing.assert_allclose(Tensor(x).cumsum().numpy(), np.cumsum(x.astype(np.float64)), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(Tensor(x).sort()[0].numpy(), np.sort(x))


def test_two_micro_batches_add_their_gradients() -> None:
    w = Tensor([1.0, 2.0]).contiguous().realize()
    for x in (Tensor([3.0, 4.0]), Tensor([5.0, 6.0])):
        (w * x).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [8.0, 10.0]
