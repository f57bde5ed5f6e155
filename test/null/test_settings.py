"""Environment variables and context variables: conversion, scope, threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tinygrad.helpers import (
    BEAM,
    DEBUG,
    EMULATED_DTYPES,
    PARALLEL,
    TRAINING,
    USE_TC,
    Context,
    ContextVar,
    getenv,
    in_current_context,
)

ROOT = Path(__file__).parents[2]


class TestGetenv:
    @pytest.mark.parametrize(
        ("text", "default", "expected"),
        [("3", 0, 3), ("3", "", "3"), ("0.5", 1.0, 0.5), ("0", True, False), ("1", False, True), ("", 7, 7)],
    )
    def test_type_of_the_default(
        self, monkeypatch: pytest.MonkeyPatch, text: str, default: object, expected: object
    ) -> None:
        name = f"TEST_GETENV_{text}_{type(default).__name__}"
        monkeypatch.setenv(name, text)
        assert getenv(name, default) == expected
        assert type(getenv(name, default)) is type(default)

    def test_absent_and_cached(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert getenv("TEST_GETENV_ABSENT", 5) == 5
        monkeypatch.setenv("TEST_GETENV_ABSENT", "6")
        assert getenv("TEST_GETENV_ABSENT", 5) == 5

    def test_bad_text_names_the_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TEST_GETENV_BAD", "many")
        with pytest.raises(ValueError, match="TEST_GETENV_BAD='many' is not a value of type int"):
            getenv("TEST_GETENV_BAD", 0)


class TestContextVar:
    def test_comparisons(self) -> None:
        with Context(DEBUG=2):
            assert DEBUG
            assert DEBUG == 2
            assert DEBUG >= 2
            assert DEBUG > 1
            assert DEBUG < 3
            assert DEBUG <= 2
            assert DEBUG != 1
            assert int(DEBUG) == DEBUG.value == DEBUG.get() == 2
        with Context(DEBUG=0):
            assert not DEBUG

    def test_names(self) -> None:
        assert USE_TC.key == "TC"
        assert ContextVar.registry["BEAM"] is BEAM
        with pytest.raises(RuntimeError, match="DEBUG exists already"):
            ContextVar("DEBUG", 0)

    def test_tolist(self) -> None:
        class Types:
            half, float = 16, 32

        with Context(EMULATED_DTYPES="half, float"):
            assert EMULATED_DTYPES.tolist() == ["half", "float"]
            assert EMULATED_DTYPES.tolist(Types) == [16, 32]
        with Context(EMULATED_DTYPES=""):
            assert EMULATED_DTYPES.tolist() == []

    def test_environment_and_derived_defaults(self) -> None:
        code = (
            "from tinygrad.helpers import DEBUG, PROFILE, PARALLEL, TRACK_MATCH_STATS, DEFAULT_FLOAT, DEV\n"
            "print(*(var.value for var in (DEBUG, PROFILE, PARALLEL, TRACK_MATCH_STATS, DEFAULT_FLOAT)), DEV.renderer)"
        )
        environment = {**os.environ, "DEBUG": "3", "VIZ": "-1", "DEFAULT_FLOAT": "half", "DEV": "cpu:llvm"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["3", "1", "0", "2", "half", "LLVM"]
        if "PARALLEL" not in os.environ and "VIZ" not in os.environ:
            assert PARALLEL.value >= 1


class TestContext:
    def test_restores_after_an_exception(self) -> None:
        before = (DEBUG.value, BEAM.value)

        def fail() -> None:
            with Context(DEBUG=5, BEAM=7):
                assert (DEBUG.value, BEAM.value) == (5, 7)
                raise KeyError("inside")

        with pytest.raises(KeyError, match="inside"):
            fail()
        assert (DEBUG.value, BEAM.value) == before

    def test_nested_and_reused(self) -> None:
        context = Context(DEBUG=4)
        with context, Context(DEBUG=1), context:
            assert DEBUG.value == 4
        assert DEBUG.value == DEBUG.default

    def test_unknown_name_changes_nothing(self) -> None:
        before = BEAM.value
        with pytest.raises(KeyError, match="BEEM is not a context variable; did you mean BEAM"):
            Context(BEAM=9, BEEM=1)
        assert BEAM.value == before

    def test_decorator_in_several_threads(self) -> None:
        barrier = threading.Barrier(4)

        @Context(DEBUG=6)
        def probe() -> int:
            barrier.wait(5)
            return DEBUG.value

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: probe(), range(4))) == [6] * 4
        assert DEBUG.value == DEBUG.default


class TestKinds:
    @pytest.mark.parametrize("value", ["x", 1.5, None, [1]], ids=str)
    def test_what_is_no_integer_changes_nothing(self, value: object) -> None:
        with pytest.raises(TypeError, match=r"BEAM is .* of type .*, expected int"), Context(DEBUG=3, BEAM=value):
            pass
        with pytest.raises(TypeError, match=r"BEAM is .*, expected int"):
            BEAM.value = value  # type: ignore[assignment]
        assert (DEBUG.value, BEAM.value) == (0, 0)

    def test_truth_values_are_integers(self) -> None:
        with Context(BEAM=True):
            assert BEAM.value == 1


class TestThreads:
    def test_other_threads_do_not_see_a_change(self) -> None:
        with Context(TRAINING=1), ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: TRAINING.value).result() == TRAINING.default
            pool.submit(lambda: setattr(TRAINING, "value", 7)).result()
            assert pool.submit(lambda: TRAINING.value).result() == 7
            assert TRAINING.value == 1

    def test_in_current_context(self) -> None:
        with Context(DEBUG=2, TRAINING=1), ThreadPoolExecutor(2) as pool:
            probe = in_current_context(lambda: (DEBUG.value, TRAINING.value))
            assert [pool.submit(probe).result() for _ in range(4)] == [(2, 1)] * 4


def test_import_takes_no_heavy_modules() -> None:
    code = "import sys, tinygrad.dtype, tinygrad.helpers; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "tinygrad.settings" in loaded
    # Only what these files import counts: the package's own __init__ has a budget of its own.
    if "tinygrad.tensor" not in loaded:
        assert not loaded & {"numpy", "torch", "sqlite3", "urllib.request", "hashlib", "tqdm", "ctypes", "llvmlite"}
