"""A network of two convolutions learns MNIST, jitted or not, and the example runs as a program."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from tinygrad import Context, Tensor, TinyJit, nn

ROOT = Path(__file__).parents[2]
STEPS, BATCH = 30, 64


class SmallNet:
    def __init__(self) -> None:
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 3)
        self.norm = nn.BatchNorm(16)
        self.out = nn.Linear(16 * 5 * 5, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.conv1(x).relu().max_pool2d()
        x = self.norm(self.conv2(x).relu()).max_pool2d()
        return self.out(x.flatten(1))


def train(jitted: bool, steps: int) -> tuple[SmallNet, list[float]]:
    """Return the net and the loss of every step; the batches come from the device's own random numbers."""
    Tensor.manual_seed(1)
    x_train, y_train, _, _ = nn.datasets.mnist()
    net = SmallNet()
    optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=0.005)

    @Context(TRAINING=1)
    def step() -> Tensor:
        optimizer.zero_grad()
        samples = Tensor.randint(BATCH, high=x_train.shape[0])
        loss = net(x_train[samples]).sparse_categorical_crossentropy(y_train[samples]).backward()
        return loss.realize(*optimizer.schedule_step())

    run = TinyJit(step) if jitted else step
    return net, [run().item() for _ in range(steps)]


def test_learns() -> None:
    net, losses = train(jitted=True, steps=STEPS)
    assert np.mean(losses[-5:]) < 0.4 * losses[0]
    _, _, x_test, y_test = nn.datasets.mnist()
    right = (net(x_test[:2000]).argmax(axis=1) == y_test[:2000]).mean().item()
    assert right > 0.85
    assert net.norm.num_batches_tracked.item() == STEPS


def test_the_jit_changes_nothing() -> None:
    _, with_jit = train(jitted=True, steps=5)
    _, without = train(jitted=False, steps=5)
    np.testing.assert_allclose(with_jit, without, rtol=1e-4)


def test_example_misses_a_target_out_of_reach() -> None:
    settings = {"STEPS": "2", "SEED": "0", "TARGET_EVAL_ACC_PCT": "100.5"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    command = [sys.executable, "examples/beautiful_mnist.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    accuracy = re.fullmatch(r"test accuracy (\d+\.\d\d)%\n", done.stdout)
    assert accuracy, done.stderr
    assert f"the test accuracy of {accuracy[1]}% is below the target of 100.5%" in done.stderr
    assert done.returncode == 1
