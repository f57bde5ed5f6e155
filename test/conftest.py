"""Settings of every test run: each graph is verified at each border, and every test draws the same numbers each time.

A test's random numbers follow from its name alone, not from the clock or from the tests that ran before it in the
same process, so that a failure repeats. ``--seed 1`` draws other numbers in all of them: a test that passes with one
seed and fails with another asserts too much.
"""

import gc
import os
import random
import sys
import tempfile
import zlib
from collections.abc import Iterator

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


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests, examples of the documentation and processes that they start leave behind in one place.

    The folder goes with those of ``tmp_path``: pytest removes them, after a run that was killed too.
    """
    folder = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        if sys.dont_write_bytecode:  # else each of hundreds of processes would compile the package for 0.6 s
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
            patch.setenv("PYTHONPYCACHEPREFIX", folder)
        yield


def pytest_collection_finish() -> None:
    _freeze()


@pytest.fixture(scope="module", autouse=True)
def _frozen_between_modules() -> None:
    _freeze()


def _freeze() -> None:
    """Take what is there now out of the garbage collector's sight.

    Twelve thousand collected tests are half a million objects. Each full collection of a test that asks for one, or
    of a write that is refused, would walk through them and through what the caches hold of the modules before.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # Python collects what is left before it empties the modules; what is frozen would die after that


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
