"""Settings of every test run: each graph is verified at each border, and every test draws the same numbers each time.

A test's random numbers follow from its name alone, not from the clock or from the tests that ran before it in the
same process, so that a failure repeats. ``--seed 1`` draws other numbers in all of them: a test that passes with one
seed and fails with another asserts too much.
"""

import os
import random
import zlib

os.environ.setdefault("SPEC", "2")

import numpy as np
import pytest

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # a machine that runs test/backend alone has no need of it
    pass
else:
    # No deadline, since machines are busy; always the same examples. What `--hypothesis-profile=fuzz` finds is written
    # into the test as an @example.
    settings.register_profile(
        "same", deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    settings.register_profile(
        "fuzz", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=list(HealthCheck)
    )
    settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="draw other random numbers in every test")


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    """Start all generators from the test's name: those of Python and numpy, those of its module, and the Tensor's."""
    from tinygrad import Tensor

    seed = zlib.crc32(f"{request.node.nodeid} {request.config.getoption('--seed')}".encode())
    random.seed(seed)
    np.random.seed(seed)
    for value in vars(request.module).values():
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = np.random.PCG64(seed).state
    Tensor.manual_seed(seed)
