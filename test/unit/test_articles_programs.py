"""Programs and command lines of the public articles about tinygrad, as a reader types them (articles on using it)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
LINEAR_CLASSIFIER = """
from tinygrad import Tensor, nn, Context
class LinearNet:
  def __init__(self):
    self.l1 = Tensor.kaiming_uniform(784, 128)
    self.l2 = Tensor.kaiming_uniform(128, 10)
  def __call__(self, x):
    return x.flatten(1).dot(self.l1).relu().dot(self.l2)

model = LinearNet()
optim = nn.optim.Adam([model.l1, model.l2], lr=0.001)
x, y = Tensor.rand(4, 1, 28, 28), Tensor([2, 4, 3, 7])  # 实际项目换成真实数据加载

with Context(TRAINING=1):
  for i in range(10):
    optim.zero_grad()
    loss = model(x).sparse_categorical_crossentropy(y).backward()
    optim.step()
    print(i, loss.item())
"""
TINY_NET = """
from tinygrad import Tensor, nn

class TinyNet:
    def __init__(self):
        # 使用Kaiming初始化权重
        self.l1 = Tensor.kaiming_uniform(784, 128)
        self.l2 = Tensor.kaiming_uniform(128, 10)

    def __call__(self, x: Tensor) -> Tensor:
        # 前向传播:展平 -> 线性层 -> ReLU -> 线性层
        # 注意,此处仍未触发实际计算
        return x.flatten(1).dot(self.l1).relu().dot(self.l2)

# 初始化模型和优化器
model = TinyNet()
optim = nn.optim.Adam([model.l1, model.l2], lr=0.001)

# 生成模拟数据 (Batch Size=32, 图像尺寸28x28)
x = Tensor.rand(32, 1, 28, 28)
y = Tensor.randint(32, high=10)

# 开启训练模式
Tensor.training = True

# 简易训练循环
for i in range(10):
    optim.zero_grad()  # 梯度清零

    # 前向计算并计算损失
    loss = model(x).sparse_categorical_crossentropy(y).backward()

    optim.step()  # 更新权重

    # .item() 会触发计算并返回Python标量数值
    print(f"Step {i}, Loss: {loss.item()}")
"""
RUN_LAZY = """
from tinygrad import Tensor

# 定义两个1024x1024的惰性张量,此时并无实际计算发生
N = 1024
a = Tensor.rand(N, N)
b = Tensor.rand(N, N)

# .realize() 是触发实际计算的关键
# DEBUG=3 环境变量将打印出生成的内核代码
c = (a.dot(b)).realize()

print(c.numpy())  # 将结果转为numpy数组输出,验证计算
"""
MATMUL_IN_STEPS = (
    "from tinygrad import Tensor; N = 1024; a, b = Tensor.empty(N, N), Tensor.empty(N, N); "
    "(a.reshape(N, 1, N) * b.T.reshape(1, N, N)).sum(axis=2).realize()"
)


def python(*arguments: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Return what ``python3 ARGUMENTS`` prints with these environment variables, without terminal colours."""
    clean = {k: v for k, v in os.environ.items() if k not in {"DEBUG", "DEV", "JIT", "VIZ", "TRAINING"}}
    command = [sys.executable, *map(str, arguments)]
    env = {**clean, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


def kernels(output: str) -> list[str]:
    """Return the names of the kernels whose lines an output holds, copies left out."""
    names = re.findall(r"^\*\*\* +\S+ +\d+ +(\S+)", output, re.MULTILINE)
    return [name for name in names if name != "copy"]


# ---- training loops --------------------------------------------------------------------------------------------------


def test_linear_classifier() -> None:
    lines = python("-c", LINEAR_CLASSIFIER).splitlines()
    assert [line.split()[0] for line in lines] == [str(i) for i in range(10)]
    losses = [float(line.split()[1]) for line in lines]
    # The program draws other numbers each time. Of 300 runs the largest ratio was 0.021, their mean 0.002.
    assert losses[-1] < 0.5 * losses[0]


def test_tiny_net_with_the_training_flag_of_the_class() -> None:
    losses = [float(v) for v in re.findall(r"^Step \d, Loss: (\S+)$", python("-c", TINY_NET), re.MULTILINE)]
    assert len(losses) == 10
    # The logarithm of this ratio has mean -1.81 and standard deviation 0.25 over 40 runs: 0.75 is six of these away.
    assert losses[-1] < 0.75 * losses[0]


def test_training_context_restores_itself() -> None:
    from tinygrad import Context, Tensor

    assert not Tensor.training
    with Context(TRAINING=1):
        assert Tensor.training
    assert not Tensor.training


# ---- looking into the pipeline ---------------------------------------------------------------------------------------


def test_run_lazy(tmp_path: Path) -> None:
    (tmp_path / "run_lazy.py").write_text(RUN_LAZY, encoding="utf-8")
    output = python("run_lazy.py", cwd=tmp_path, DEBUG="3")
    names = kernels(output)
    # The product is one kernel, named r for its reduction; the random numbers are element-wise.
    (product,) = [name for name in names if name.startswith("r_")]
    assert re.search(rf"^{product}: .*Opt\(", output, re.MULTILINE), "DEBUG=3 shows the steps of the optimiser"
    values = [float(v) for v in re.findall(r"\d+\.\d+", output[output.index("[[") :])]
    # Sums of 1024 products of two uniform numbers: mean 256, standard deviation 7. The 36 of them share six rows and
    # six columns, so their mean has the standard deviation sqrt(1024 / 12 / 6 / 4 * 2) = 2.7, not 7 / 6: 27 is ten.
    assert len(values) == 36
    assert abs(np.mean(values) - 256) < 27


def test_debug_3_shows_that_reshape_multiply_and_sum_are_one_kernel() -> None:
    output = python("-c", MATMUL_IN_STEPS, DEBUG="3")
    assert len(kernels(output)) == 1
    assert "define" not in output


def test_debug_4_shows_the_generated_code() -> None:
    output = python("-c", MATMUL_IN_STEPS, DEBUG="4")
    (name,) = kernels(output)
    assert re.search(rf"^(define )?void @?{name}\(", output, re.MULTILINE)


def test_debug_1_and_2_show_times() -> None:
    program = "from tinygrad import Tensor; (Tensor.rand(64, 64) @ Tensor.rand(64, 64)).realize()"
    assert re.search(r"^scheduled \d+ kernels and copies in \d+\.\d+ ms", python("-c", program, DEBUG="1"), re.M)
    assert re.search(r"^\*\*\* CPU .* tm +\d+\.\d+[um]?s/", python("-c", program, DEBUG="2"), re.M)


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5, 6, 7])
def test_every_debug_level_works(level: int) -> None:
    output = python("-c", "from tinygrad import Tensor; print((Tensor.arange(5) * 2).tolist())", DEBUG=str(level))
    assert output.splitlines()[-1] == "[0, 2, 4, 6, 8]"
    assert output.count("\n") > 1, "it says at least which device was opened"


def test_levels_show_more_and_more() -> None:
    program = "from tinygrad import Tensor; (Tensor.rand(64, 64).realize() @ Tensor.rand(64, 64)).realize()"
    lengths = [len(python("-c", program, DEBUG=str(level))) for level in (0, 1, 3, 4, 5)]
    assert lengths[0] == 0
    assert lengths == sorted(set(lengths))


def test_printing_a_tensor_does_not_compute_it() -> None:
    from tinygrad import GlobalCounters, Tensor

    t = Tensor([[1.0, 1.0], [1.0, 1.0]]).realize() + 1
    GlobalCounters.reset()
    assert "2.0" not in str(t)
    assert GlobalCounters.kernel_count == 0
    t.realize()
    assert GlobalCounters.kernel_count == 1
    assert t.numpy().tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_operations_are_lazy_until_realize_or_numpy() -> None:
    from tinygrad import GlobalCounters, Tensor

    x, y, w = Tensor.rand(4, 4).realize(), Tensor.rand(4, 4).realize(), Tensor.rand(4, 4).realize()
    GlobalCounters.reset()
    z = (y + x).matmul(w).sum()
    assert GlobalCounters.kernel_count == 0
    assert not z.uop.is_realized
    z.realize()
    assert z.uop.is_realized
    assert GlobalCounters.kernel_count > 0
    np.testing.assert_allclose(z.numpy(), ((y.numpy() + x.numpy()) @ w.numpy()).sum(), rtol=1e-5)


# ---- devices ---------------------------------------------------------------------------------------------------------


def test_default_device() -> None:
    assert python("-c", "from tinygrad import Device; print(Device.DEFAULT)").strip() == "CPU"


@pytest.mark.parametrize("device", ["CPU", "PYTHON", "NULL"])
def test_dev_chooses_the_device(device: str) -> None:
    program = "from tinygrad import Device, Tensor; print(Device.DEFAULT, Tensor([1.0]).device)"
    assert python("-c", program, DEV=device).split() == [device, device]


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_the_same_code_gives_the_same_result_on_another_device(device: str) -> None:
    program = (
        "from tinygrad import Tensor; print((Tensor([[1, 2], [3, 4]]).matmul(Tensor([[5], [6]])).relu() + 1).tolist())"
    )
    assert python("-c", program, DEV=device).strip() == "[[18], [40]]"


def test_from_blob_shares_memory_with_numpy() -> None:
    from tinygrad import Tensor, dtypes

    array = np.arange(6, dtype=np.float32)
    t = Tensor.from_blob(array.ctypes.data, (2, 3), dtype=dtypes.float32)
    assert (t * 2).tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    array[0] = 100
    assert t.tolist()[0] == [100.0, 1.0, 2.0]
    t.assign(t + 1).realize()
    assert array.tolist() == [101.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_from_blob_shares_memory_with_torch() -> None:
    import torch

    from tinygrad import Tensor, dtypes

    theirs = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    ours = Tensor.from_blob(theirs.data_ptr(), tuple(theirs.shape), dtype=dtypes.int32)
    theirs[1, 1] = 40
    assert ours.tolist() == [[1, 2], [3, 40]]
    assert (ours + Tensor(1)).tolist() == [[2, 3], [4, 41]]


# ---- TinyJit and timing ----------------------------------------------------------------------------------------------


def test_tinyjit_of_a_forward_pass() -> None:
    from tinygrad import Tensor, TinyJit, nn

    net = nn.Linear(8, 3)
    runs = 0

    @TinyJit
    def jit(x: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        return net(x).realize()

    for _ in range(5):
        batch = Tensor.rand(4, 8).realize()
        out = jit(batch)
        np.testing.assert_allclose(out.numpy(), net(batch).numpy(), rtol=1e-5, atol=1e-6)
    assert runs == 2, "from the third call on nothing of the function's Python runs"


def test_another_batch_size_is_refused() -> None:
    from tinygrad import Tensor, TinyJit
    from tinygrad.engine.jit import JitError

    jit = TinyJit(lambda x: (x * 2).realize())
    for _ in range(3):
        jit(Tensor.ones(4).contiguous().realize())
    with pytest.raises(JitError, match="args mismatch in JIT"):
        jit(Tensor.ones(5).contiguous().realize())


def test_timing(capsys: pytest.CaptureFixture[str]) -> None:
    from tinygrad import Tensor
    from tinygrad.helpers import Timing

    with Timing("before the JIT: ") as timing:
        Tensor.rand(8, 8).realize()
    assert re.fullmatch(r"before the JIT: +\d+\.\d+ ms\s*", capsys.readouterr().out)
    assert timing.et > 0


@pytest.mark.parametrize(
    "variables", [{"BEAM": "2"}, {"JITBEAM": "2"}, {"VIZ": "-1"}, {"JIT": "0"}, {"JIT": "2"}], ids=str
)
def test_switches_do_not_change_results(variables: dict[str, str], tmp_path: Path) -> None:
    program = (
        "from tinygrad import Tensor, TinyJit\n"
        "f = TinyJit(lambda x: (x @ x).relu().realize())\n"
        "for i in range(4): print(f(Tensor([[1., i], [0., 1.]]).realize()).tolist())"
    )
    output = python("-c", program, TMPDIR=str(tmp_path), **variables)
    lines = [line for line in output.splitlines() if line.startswith("[[")]
    assert lines == [f"[[1.0, {2.0 * i}], [0.0, 1.0]]" for i in range(4)]


# ---- the command lines -----------------------------------------------------------------------------------------------


def test_op_tests_run_as_a_program() -> None:
    output = python("test/backend/test_ops.py", "--collect-only", "-q")
    assert int(re.search(r"(\d+) tests collected", output).group(1)) > 100
