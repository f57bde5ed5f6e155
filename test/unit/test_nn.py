"""Layers against torch: same parameters, same input, values and gradients."""

import numpy as np
import pytest
import torch

from tinygrad import Context, Tensor, dtypes, nn

RNG = np.random.default_rng(7)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def take_parameters(ours: object, theirs: torch.nn.Module) -> None:
    """Give the torch module the parameters of ours, which have the same names."""
    state = {name: torch.from_numpy(t.numpy()) for name, t in nn.state.get_state_dict(ours).items()}
    theirs.load_state_dict(state)


def assert_layers_agree(ours: object, theirs: torch.nn.Module, x: np.ndarray, atol: float = 1e-5) -> None:
    """Compare the output for x, and the gradients of the input and of every parameter for a random output gradient."""
    take_parameters(ours, theirs)
    xt, xo = torch.from_numpy(x).requires_grad_(), Tensor(x).clone()
    yt, yo = theirs(xt), ours(xo)
    weights = random(*yt.shape)
    (yt * torch.from_numpy(weights)).sum().backward()
    (yo * Tensor(weights)).sum().backward()  # before yo is read: from then on it is its value, without a graph
    np.testing.assert_allclose(yo.numpy(), yt.detach().numpy(), rtol=1e-4, atol=atol)
    np.testing.assert_allclose(xo.grad.numpy(), xt.grad.numpy(), rtol=1e-3, atol=10 * atol)
    parameters = nn.state.get_state_dict(ours)
    for name, theirs_p in theirs.named_parameters():
        np.testing.assert_allclose(parameters[name].grad.numpy(), theirs_p.grad.numpy(), rtol=1e-3, atol=10 * atol)


def test_linear() -> None:
    assert_layers_agree(nn.Linear(5, 7), torch.nn.Linear(5, 7), random(3, 5))
    assert_layers_agree(nn.Linear(5, 7, bias=False), torch.nn.Linear(5, 7, bias=False), random(2, 3, 5))


def test_linear_initial_bounds() -> None:
    layer = nn.Linear(100, 50)
    values = np.abs(np.concatenate([layer.weight.numpy().ravel(), layer.bias.numpy()]))
    assert values.max() <= 0.1
    assert values.max() > 0.095
    assert layer.weight.shape == (50, 100)
    assert layer.bias.shape == (50,)


def test_linear_without_inputs_is_zero() -> None:
    assert nn.Linear(0, 3).bias.tolist() == [0.0, 0.0, 0.0]


def test_linear_wrong_size() -> None:
    with pytest.raises(RuntimeError, match="4"):
        nn.Linear(5, 7)(Tensor.ones(3, 4))


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        ({"kernel_size": 3}, (9, 8)),
        ({"kernel_size": (3, 5), "stride": 2, "padding": (1, 2)}, (9, 8)),
        ({"kernel_size": 3, "dilation": 2, "groups": 2, "bias": False}, (9, 8)),
        ({"kernel_size": 3, "padding": "same"}, (5, 6)),
        ({"kernel_size": (4, 3), "dilation": (2, 3), "padding": "same"}, (9, 11)),
    ],
    ids=str,
)
def test_conv2d(arguments: dict, size: tuple[int, int]) -> None:
    ours, theirs = nn.Conv2d(4, 6, **arguments), torch.nn.Conv2d(4, 6, **arguments)
    assert_layers_agree(ours, theirs, random(2, 4, *size), atol=2e-5)


def test_conv2d_when_channels_and_sizes_are_equal() -> None:
    assert_layers_agree(nn.Conv2d(5, 5, 3), torch.nn.Conv2d(5, 5, 3), random(1, 5, 5, 5))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_conv1d_and_conv3d() -> None:
    assert_layers_agree(nn.Conv1d(3, 4, 5, padding=2), torch.nn.Conv1d(3, 4, 5, padding=2), random(2, 3, 10))
    assert_layers_agree(nn.Conv1d(3, 4, 4, padding="SAME"), torch.nn.Conv1d(3, 4, 4, padding="same"), random(2, 3, 7))
    assert_layers_agree(nn.Conv2d(2, 3, (2, 2, 2)), torch.nn.Conv3d(2, 3, 2), random(1, 2, 4, 4, 3))


def test_conv2d_initial_bounds() -> None:
    layer = nn.Conv2d(4, 64, 5, groups=2)
    assert layer.weight.shape == (64, 2, 5, 5)
    assert 0.095 < np.abs(layer.weight.numpy()).max() <= 0.1  # 1 / sqrt(4 * 5 * 5)


def test_conv2d_errors() -> None:
    with pytest.raises(ValueError, match='"same" or "valid", not \'full\''):
        nn.Conv2d(1, 1, 3, padding="full")
    with pytest.raises(ValueError, match="stride"):
        nn.Conv2d(1, 1, 3, stride=2, padding="same")
    with pytest.raises(AssertionError):
        nn.Conv2d(3, 4, 3)(Tensor.ones(1, 2, 8, 8))


@pytest.mark.parametrize(
    "arguments",
    [{"kernel_size": 3}, {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1, "groups": 2}],
    ids=str,
)
def test_conv_transpose2d(arguments: dict) -> None:
    ours, theirs = nn.ConvTranspose2d(4, 6, **arguments), torch.nn.ConvTranspose2d(4, 6, **arguments)
    assert isinstance(ours, nn.Conv2d)
    assert_layers_agree(ours, theirs, random(2, 4, 5, 4), atol=2e-5)


def test_conv_transpose1d() -> None:
    arguments = {"stride": 2, "dilation": 2, "padding": 1}
    ours, theirs = nn.ConvTranspose1d(3, 2, 4, **arguments), torch.nn.ConvTranspose1d(3, 2, 4, **arguments)
    assert_layers_agree(ours, theirs, random(2, 3, 6))


@pytest.mark.parametrize("shape", [(8, 5), (4, 5, 3), (4, 5, 3, 2)], ids=str)
def test_batchnorm_in_training(shape: tuple[int, ...]) -> None:
    kinds = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d}
    ours, theirs = nn.BatchNorm(5, momentum=0.3), kinds[len(shape)](5, momentum=0.3)
    with Context(TRAINING=1):
        assert_layers_agree(ours, theirs, random(*shape), atol=2e-5)
        ours(Tensor(x := random(*shape)))
        theirs(torch.from_numpy(x))
    np.testing.assert_allclose(ours.running_mean.numpy(), theirs.running_mean.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.running_var.numpy(), theirs.running_var.numpy(), rtol=1e-4, atol=1e-6)
    assert ours.num_batches_tracked.item() == theirs.num_batches_tracked.item() == 2
    assert ours.num_batches_tracked.dtype == dtypes.int64


def test_batchnorm_in_evaluation() -> None:
    ours, theirs = nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3).eval()
    ours.running_mean.assign(Tensor(random(3)))
    ours.running_var.assign(Tensor(random(3) ** 2 + 0.5))
    assert_layers_agree(ours, theirs, random(2, 3, 4, 4))
    assert ours.num_batches_tracked.item() == 0


def test_batchnorm_options() -> None:
    plain, x = nn.BatchNorm(3, affine=False, track_running_stats=False), random(4, 3, 5)
    assert plain.weight is None
    assert plain.bias is None
    assert list(nn.state.get_state_dict(plain)) == ["num_batches_tracked"]
    theirs = torch.nn.BatchNorm1d(3, affine=False, track_running_stats=False)
    np.testing.assert_allclose(plain(Tensor(x)).numpy(), theirs(torch.from_numpy(x)).numpy(), rtol=1e-4, atol=1e-5)
    mean, var = plain.calc_stats(Tensor(x))
    np.testing.assert_allclose(mean.numpy(), x.mean(axis=(0, 2)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(var.numpy(), x.var(axis=(0, 2)), rtol=1e-4, atol=1e-6)


def test_batchnorm_flags() -> None:
    norm = nn.BatchNorm(3)
    flags = {name: tensor.is_param for name, tensor in nn.state.get_state_dict(norm).items()}
    trained = {name for name, flag in flags.items() if flag}
    assert trained == {"weight", "bias"}
    assert len(flags) == 5


def test_batchnorm_of_one_sample() -> None:
    with Context(TRAINING=1), pytest.raises(ZeroDivisionError, match="one element per channel"):
        nn.BatchNorm(3)(Tensor.ones(1, 3))


def test_groupnorm() -> None:
    assert_layers_agree(nn.GroupNorm(2, 6), torch.nn.GroupNorm(2, 6), random(3, 6, 4, 5), atol=2e-5)
    assert_layers_agree(nn.GroupNorm(3, 6, affine=False), torch.nn.GroupNorm(3, 6, affine=False), random(2, 6, 5))
    with pytest.raises(ValueError, match="6 channels cannot be cut into 4 groups"):
        nn.GroupNorm(4, 6)
    with pytest.raises(ValueError, match="6 channels"):
        nn.GroupNorm(2, 6)(Tensor.ones(2, 4, 3))


def test_instancenorm() -> None:
    ours, theirs = nn.InstanceNorm(3), torch.nn.InstanceNorm2d(3, affine=True)
    assert_layers_agree(ours, theirs, random(2, 3, 5, 4), atol=2e-5)
    with pytest.raises(ValueError, match="InstanceNorm: expected an input with 3 channels"):
        ours(Tensor.ones(2, 4, 3, 3))


def test_layernorm() -> None:
    assert_layers_agree(nn.LayerNorm(6), torch.nn.LayerNorm(6), random(3, 6), atol=2e-5)
    assert_layers_agree(nn.LayerNorm((4, 5)), torch.nn.LayerNorm((4, 5)), random(3, 4, 5), atol=2e-5)
    without = torch.nn.LayerNorm(6, elementwise_affine=False)
    assert_layers_agree(nn.LayerNorm(6, elementwise_affine=False), without, random(3, 6), atol=2e-5)


@pytest.mark.parametrize("kind", [AssertionError, ValueError, IndexError])
def test_layernorm_wrong_shape(kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"trailing axes have shape \(4, 5\), got shape \(3, 5, 4\)"):
        nn.LayerNorm((4, 5))(Tensor.ones(3, 5, 4))


def test_layernorm2d() -> None:
    x, ours, theirs = random(2, 5, 3, 4), nn.LayerNorm2d(5), torch.nn.LayerNorm(5)
    take_parameters(ours, theirs)
    expected = theirs(torch.from_numpy(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    np.testing.assert_allclose(ours(Tensor(x)).numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_rmsnorm() -> None:
    assert_layers_agree(nn.RMSNorm(6), torch.nn.RMSNorm(6, eps=1e-6), random(3, 6))
    without = nn.RMSNorm(6, elementwise_affine=False)
    assert without.weight is None
    assert_layers_agree(without, torch.nn.RMSNorm(6, eps=1e-6, elementwise_affine=False), random(3, 6))


def test_rmsnorm_of_half_is_computed_in_float() -> None:
    x = np.full((2, 8), 300.0, dtype=np.float16)  # 300 * 300 overflows float16
    y = nn.RMSNorm(8, elementwise_affine=False)(Tensor(x))
    assert y.dtype == dtypes.half
    np.testing.assert_array_equal(y.numpy(), np.ones((2, 8), dtype=np.float16))


def test_embedding() -> None:
    ours, theirs = nn.Embedding(11, 4), torch.nn.Embedding(11, 4)
    take_parameters(ours, theirs)
    idx = np.array([[1, 0, 10], [3, 3, 1]], dtype=np.int32)
    expected = theirs(torch.from_numpy(idx))
    found = ours(Tensor(idx))
    weights = random(2, 3, 4)
    (expected * torch.from_numpy(weights)).sum().backward()
    (found * Tensor(weights)).sum().backward()
    np.testing.assert_array_equal(found.numpy(), expected.detach().numpy())
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_embedding_outside_the_table_is_zero(dtype: str) -> None:
    layer = nn.Embedding(100, 2)
    idx = [0, 99, 100, 120] + ([] if dtype == "uint8" else [-1, -100])
    found = layer(Tensor(idx, dtype=dtype)).numpy()
    np.testing.assert_array_equal(found[:2], layer.weight.numpy()[[0, 99]])
    np.testing.assert_array_equal(found[2:], np.zeros((len(idx) - 2, 2)))


def test_embedding_of_floats() -> None:
    with pytest.raises(TypeError, match="indices must be integers"):
        nn.Embedding(3, 2)(Tensor([0.0]))


def test_lstmcell() -> None:
    ours, theirs = nn.LSTMCell(3, 5), torch.nn.LSTMCell(3, 5)
    ours.bias_ih.assign(Tensor(random(20)))
    take_parameters(ours, theirs)
    state_o, state_t = None, None
    for _ in range(3):
        x = random(2, 3)
        state_o, state_t = ours(Tensor(x), state_o), theirs(torch.from_numpy(x), state_t)
    (state_o[0].sum() + state_o[1].sum()).backward()
    (state_t[0].sum() + state_t[1].sum()).backward()
    for o, t in zip(state_o, state_t, strict=True):
        np.testing.assert_allclose(o.numpy(), t.detach().numpy(), rtol=1e-4, atol=1e-6)
    for name, parameter in theirs.named_parameters():
        found = getattr(ours, name).grad.numpy()
        np.testing.assert_allclose(found, parameter.grad.numpy(), rtol=1e-3, atol=1e-5)


def test_lstmcell_without_bias() -> None:
    cell = nn.LSTMCell(3, 5, bias=False)
    assert cell.bias_ih is None
    hidden, state = cell(Tensor(random(2, 3)))
    assert hidden.shape == state.shape == (2, 5)


def test_lstmcell_refuses_states_of_another_shape() -> None:
    cell, x, state = nn.LSTMCell(3, 5), Tensor(random(2, 3)), Tensor(random(2, 5))
    row, fewer = Tensor(random(5)), Tensor(random(1, 5))
    for wrong in (state, (state,), (state, state, state), (row, row), (fewer, state), (state, Tensor(random(2, 4)))):
        with pytest.raises(ValueError, match=r"hc is \(hidden, cell\), each \(2, 5\)"):
            cell(x, wrong)
    assert cell(x, [state, state])[0].shape == (2, 5)


def test_default_float_is_used() -> None:
    with Context(DEFAULT_FLOAT="float16"):
        layer = nn.Linear(2, 2)
    assert layer.weight.dtype == dtypes.half
