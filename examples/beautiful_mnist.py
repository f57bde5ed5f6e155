"""Train a small convolutional network on MNIST and measure it on the 10,000 test images.

In:   the data set, shipped with the package; STEPS (70), SEED (a new one each run) and TARGET_EVAL_ACC_PCT (unset: any
      accuracy will do) from the environment.
Out:  the accuracy on standard output; an error if it is below the target.
Why:  one short program that uses every part of the stack, from the data to the trained network.
"""

import os
import sys
from collections.abc import Callable

from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.helpers import getenv, trange

BATCH, EVAL_BATCH = 512, 1000
LEARNING_RATE = 0.003  # for the first third of the steps; then it falls to 0, so that few steps end close to a minimum


class Model:
    """Two blocks of two convolutions, then one linear layer."""

    def __init__(self) -> None:
        self.layers: list[Callable[[Tensor], Tensor]] = [
            nn.Conv2d(1, 32, 5), Tensor.relu,
            nn.Conv2d(32, 32, 5), Tensor.relu,
            nn.BatchNorm(32), Tensor.max_pool2d,
            nn.Conv2d(32, 64, 3), Tensor.relu,
            nn.Conv2d(64, 64, 3), Tensor.relu,
            nn.BatchNorm(64), Tensor.max_pool2d,
            lambda x: x.flatten(1), nn.Linear(576, 10),
        ]  # fmt: skip

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of images (N, 1, 28, 28): shape (N, 10)."""
        return x.sequential(self.layers)


if "SEED" in os.environ:
    Tensor.manual_seed(getenv("SEED", 0))
X_train, Y_train, X_test, Y_test = nn.datasets.mnist()
model = Model()
optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=LEARNING_RATE)
# A JIT takes tensors with storage of their own, so the batches are copied out of the test set, once.
eval_batches = [
    [t[start : start + EVAL_BATCH].clone().realize() for t in (X_test, Y_test)]
    for start in range(0, X_test.shape[0], EVAL_BATCH)
]


@TinyJit
@Context(TRAINING=1)
def train_step() -> Tensor:
    """Make one step on a random batch and return its loss."""
    optimizer.zero_grad()
    samples = Tensor.randint(BATCH, high=X_train.shape[0])
    loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples]).backward()
    return loss.realize(*optimizer.schedule_step())


@TinyJit
def count_correct(images: Tensor, labels: Tensor) -> Tensor:
    """Return how many images get the right label."""
    return (model(images).argmax(axis=1) == labels).sum().realize()


def accuracy(batches: list[list[Tensor]]) -> float:
    """Return how many images of some test batches get the right label, in percent."""
    correct: int = sum(count_correct(*batch).item() for batch in batches)
    return 100 * correct / (EVAL_BATCH * len(batches))


shown = 0.0
steps = getenv("STEPS", 70)
for step in (progress := trange(steps)):
    optimizer.lr.assign(LEARNING_RATE * min(1.0, 1.5 * (1 - step / steps))).realize()
    loss = train_step()
    if step % 10 == 0:
        shown = accuracy(eval_batches[:1])  # a tenth of the test images, to follow the training
    progress.set_description(f"loss {loss.item():6.3f}  accuracy {shown:5.1f}%")

final = accuracy(eval_batches)
print(f"test accuracy {final:.2f}%")
target = getenv("TARGET_EVAL_ACC_PCT", 0.0)
if final < target:
    sys.exit(f"the test accuracy of {final:.2f}% is below the target of {target:g}%")
