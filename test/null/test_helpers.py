"""Helper functions: sequences, integers, shapes, text, memory views, control flow, counters, targets, errors."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import re
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinygrad import helpers
from tinygrad.dtype import dtypes
from tinygrad.errors import DeviceError, DTypeError, ShapeError, error_text, user_line
from tinygrad.helpers import (
    DEV,
    Context,
    GlobalCounters,
    Metadata,
    ProfileRangeEvent,
    Profiling,
    Target,
    Timing,
    all_int,
    all_same,
    ansilen,
    ansipad,
    ansistrip,
    argfix,
    argsort,
    canonicalize_strides,
    cdiv,
    ceildiv,
    cmod,
    colored,
    colorize_float,
    cpu_events,
    cpu_profile,
    data64,
    data64_le,
    dedup,
    disable_gc,
    flat_mv,
    flat_to_grouped,
    flatten,
    floordiv,
    floormod,
    from_mv,
    fromimport,
    fully_flatten,
    get_child,
    get_shape,
    get_single_element,
    getbits,
    i2u,
    make_tuple,
    merge_dicts,
    mv_address,
    next_power2,
    pad_bytes,
    panic,
    partition,
    perf_counter_us,
    pluralize,
    polyN,
    prod,
    profile_marker,
    resolve_pool_pads,
    round_down,
    round_up,
    select_by_name,
    select_first_inited,
    size_to_str,
    strides_for_shape,
    strip_parens,
    suppress_finalizing,
    system,
    temp,
    time_to_str,
    to_be32,
    to_be64,
    to_char_p_p,
    to_function_name,
    to_mv,
    to_tuple,
    tqdm,
    trange,
    unwrap,
    wait_cond,
    word_wrap,
)
from tinygrad.profiling import chrome_trace
from tinygrad.target import check_deprecated_device_variables

nested = st.recursive(st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=12)


class TestSequences:
    def test_simple_ones(self) -> None:
        assert prod([]) == 1
        assert prod([2, 3, 4]) == 24
        assert flatten([[1, 2], (3,), []]) == [1, 2, 3]
        assert dedup([3, 1, 3, 2, 1]) == [3, 1, 2]
        assert all_same([])
        assert all_same([1, 1.0])
        assert not all_same([1, 2])
        assert all_int([1, 2])
        assert not all_int([1, 2.0])
        assert partition(range(5), lambda x: x % 2) == ([1, 3], [0, 2, 4])
        assert make_tuple(3, 2) == (3, 3)
        assert make_tuple([1, 2], 2) == (1, 2)
        assert to_tuple([1]) == (1,)
        assert to_tuple("ab") == ("ab",)
        assert fromimport("math", "pi") == math.pi
        assert next(helpers.count(5)) == 5

    def test_argsort_keeps_the_container(self) -> None:
        assert argsort([3, 1, 2]) == [1, 2, 0]
        assert argsort((3, 1, 2)) == (1, 2, 0)

    def test_merge_dicts(self) -> None:
        assert merge_dicts([{"a": 1}, {"b": 2, "a": 1}]) == {"a": 1, "b": 2}
        with pytest.raises(RuntimeError, match="'a' has two values, 1 and 2"):
            merge_dicts([{"a": 1}, {"a": 2}])

    def test_argfix(self) -> None:
        assert argfix(1, 2) == argfix((1, 2)) == argfix([1, 2]) == (1, 2)
        assert argfix() == ()
        with pytest.raises(ValueError, match="mixture"):
            argfix((1, 2), 3)

    def test_get_single_element_and_unwrap(self) -> None:
        assert get_single_element({7}) == 7
        for bad in ([], [1, 2]):
            with pytest.raises(AssertionError, match="expected one element"):
                get_single_element(bad)
        assert unwrap(0) == 0
        with pytest.raises(AssertionError, match="None"):
            unwrap(None)

    def test_get_child(self) -> None:
        class Layer:
            weights = ({"w": 3}, {"w": 4})

        assert get_child(Layer, "weights.1.w") == 4

    @given(nested)
    def test_fully_flatten_keeps_order(self, x: object) -> None:
        text = str(x).replace("[", "").replace("]", "").replace(" ", "")
        assert fully_flatten(x) == [int(item) for item in text.split(",") if item]

    def test_fully_flatten_is_not_recursive(self) -> None:
        deep: list[object] = [1]
        for _ in range(50_000):
            deep = [deep, 2]
        assert len(fully_flatten(deep)) == 50_001
        while isinstance(deep[0], list):  # freed level by level: the interpreter's own destructor recurses
            deep = deep[0]

    @given(st.lists(st.integers(0, 3), max_size=4))
    def test_get_shape(self, shape: list[int]) -> None:
        # Below a dim of size 0 a nested list cannot say what follows.
        known = shape[: shape.index(0) + 1] if 0 in shape else shape
        assert get_shape(np.zeros(shape).tolist()) == tuple(known)

    @pytest.mark.parametrize("ragged", [[[1], [2, 3]], [[1], 2], [1, [2]], [[[1]], [[1, 2]]], [[], [1]]])
    def test_get_shape_ragged(self, ragged: list[object]) -> None:
        with pytest.raises(ValueError, match="ragged"):
            get_shape(ragged)


class TestIntegers:
    @given(st.integers(-1000, 1000), st.integers(1, 50))
    def test_rounding(self, x: int, step: int) -> None:
        assert ceildiv(x, step) == math.ceil(x / step)
        assert round_up(x, step) - x in range(step)
        assert x - round_down(x, step) in range(step)

    @given(st.integers(-1000, 1000), st.integers(-50, 50))
    def test_division(self, x: int, y: int) -> None:
        if y == 0:
            assert (cdiv(x, y), cmod(x, y)) == (floordiv(x, y), floormod(x, y)) == (0, x)
        else:
            assert (cdiv(x, y), cmod(x, y)) == (int(x / y), math.fmod(x, y))
            assert (floordiv(x, y), floormod(x, y)) == divmod(x, y)

    def test_next_power2(self) -> None:
        assert [next_power2(x) for x in (0, 1, 2, 3, 4, 5, 1023)] == [1, 1, 2, 4, 4, 8, 1024]

    def test_bits(self) -> None:
        assert data64(0x1_0000_0002) == (1, 2)
        assert data64_le(0x1_0000_0002) == (2, 1)
        assert to_be32(0x01020304) == 0x04030201
        assert to_be64(1) == 1 << 56
        assert getbits(0b110100, 2, 4) == 0b101
        assert i2u(8, -1) == 255
        assert i2u(8, 5) == 5

    def test_poly(self) -> None:
        assert polyN(2.0, [1.0, -3.0, 5.0]) == 2.0**2 - 3 * 2.0 + 5
        assert polyN(2.0, [7.0]) == 7.0


class TestShapes:
    def test_padding(self) -> None:
        assert flat_to_grouped((1, 2, 3, 4)) == ((3, 4), (1, 2))
        assert list(resolve_pool_pads(1, 2)) == [1, 1, 1, 1]
        assert list(resolve_pool_pads((1, 2), 2)) == [2, 2, 1, 1]
        assert list(resolve_pool_pads((1, 2, 3, 4), 2)) == [1, 2, 3, 4]
        with pytest.raises(ValueError, match="has 3 numbers"):
            resolve_pool_pads((1, 2, 3), 2)

    @given(st.lists(st.integers(1, 4), max_size=4))
    def test_strides(self, shape: list[int]) -> None:
        expected = [0 if n == 1 else s for n, s in zip(shape, np.zeros(shape, np.int8).strides, strict=True)]
        assert list(strides_for_shape(shape)) == expected
        assert canonicalize_strides(shape, expected) == tuple(expected)


class TestText:
    def test_colored(self) -> None:
        with Context(NO_COLOR=0):
            assert colored("x", "red") == "\x1b[31mx\x1b[0m"
            assert colored("x", "RED") == "\x1b[91mx\x1b[0m"
            assert colored("x", "green", background=True) == "\x1b[42mx\x1b[0m"
            assert colored("x", None) == "x"
            with pytest.raises(ValueError, match="no color 'pink'"):
                colored("x", "pink")
            assert ansistrip(colored("abc", "blue")) == "abc"
            assert ansilen(colored("abc", "blue")) == 3
            assert ansipad(colored("abc", "blue"), 5) == colored("abc", "blue") + "  "
            assert "\x1b[32m" in colorize_float(0.5)
            assert "\x1b[31m" in colorize_float(2.0)
        with Context(NO_COLOR=1):
            assert colored("x", "red") == "x"

    def test_word_wrap(self) -> None:
        assert word_wrap("abcdef", 4) == "abcd\nef"
        assert word_wrap("abcd\nef", 4) == "abcd\nef"
        with Context(NO_COLOR=0):
            assert ansistrip(word_wrap(colored("abcdef", "red"), 4)) == "abcd\nef"

    def test_numbers(self) -> None:
        assert [time_to_str(t).strip() for t in (12.0, 0.5, 0.002)] == ["12.00s", "500.00ms", "2000.00us"]
        assert {len(time_to_str(t)) for t in (12.0, 0.5, 0.002)} == {10}
        assert [size_to_str(n) for n in (5, 1500, 2_500_000, 3e9)] == ["5 B", "1.50 KB", "2.50 MB", "3.00 GB"]
        assert pluralize("kernel", 1) == "1 kernel"
        assert pluralize("kernel", 0) == "0 kernels"

    def test_identifiers(self) -> None:
        assert strip_parens("(a+b)") == "a+b"
        assert strip_parens("(a)+(b)") == "(a)+(b)"
        assert strip_parens("a") == "a"
        assert to_function_name("r_4-8") == "r_42D8"
        assert to_function_name(colored("E_3", "blue")) == "E_3"
        assert to_function_name("ä").isascii()
        assert pad_bytes(b"abc", 4) == b"abc\0"
        assert pad_bytes(b"abcd", 4) == b"abcd"


class TestMemory:
    def test_views(self) -> None:
        data = bytearray(b"hello world!")
        mv = memoryview(data)
        assert bytes(to_mv(mv_address(mv), len(data))) == bytes(data)
        to_mv(mv_address(mv), 5)[0] = ord("J")
        assert data[:5] == b"Jello"
        assert bytes(from_mv(mv)) == bytes(data)
        assert list(from_mv(mv, ctypes.c_uint16)) == list(mv.cast("H"))
        assert flat_mv(mv.cast("H", (2, 3))).nbytes == 12
        assert flat_mv(memoryview(b"")).nbytes == 0
        assert mv_address(memoryview(b"")) == 0
        assert ctypes.string_at(mv_address(memoryview(b"constant")), 8) == b"constant"
        strings = to_char_p_p([b"ab", b"c"])
        assert [ctypes.string_at(pointer) for pointer in strings] == [b"ab", b"c"]


class TestControl:
    def test_system(self) -> None:
        assert system("echo 'a b' c") == "a b c"
        with pytest.raises(RuntimeError, match="exit status 3"):
            system([sys.executable, "-c", "import sys; print('why'); sys.exit(3)"])
        with pytest.raises(RuntimeError, match="not installed"):
            system("a_command_that_nobody_has")

    def test_temp(self) -> None:
        assert temp("name").endswith("name")
        assert temp("name", append_user=True).startswith(temp("name") + ".")

    def test_selection(self) -> None:
        assert select_by_name(["LLVM", "CLANG"], str, "llvm", "CPU has no renderer") == ["LLVM"]
        assert select_by_name(["LLVM", "CLANG"], str, "", "CPU has no renderer") == ["LLVM", "CLANG"]
        with pytest.raises(RuntimeError, match=r"has no renderer LVM; did you mean LLVM\?"):
            select_by_name(["LLVM", "CLANG"], str, "LVM", "CPU has no renderer LVM")

        def broken() -> int:
            raise OSError("no driver")

        cache: dict[object, object] = {}
        assert select_first_inited([broken, lambda: 7], "none", cache) == 7
        assert len(cache) == 2
        with pytest.raises(RuntimeError, match="no usable interface"):
            select_first_inited([broken], "no usable interface")
        with pytest.raises(ExceptionGroup, match="no usable interface"):
            select_first_inited([broken, broken], "no usable interface")

    def test_disable_gc(self) -> None:
        assert gc.isenabled()
        with disable_gc():
            assert not gc.isenabled()
            with disable_gc():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled()

    def test_disable_gc_of_a_function(self) -> None:
        @disable_gc()
        def depth(n: int) -> int:
            assert not gc.isenabled()
            return 1 + depth(n - 1) if n else 0

        assert depth(3) == 3
        assert gc.isenabled()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_disable_gc_ends_in_a_forked_child(self) -> None:
        with disable_gc():
            child = os.fork()
            if child == 0:
                os._exit(0 if gc.isenabled() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert not gc.isenabled()
        assert gc.isenabled()

    def test_panic_and_wait(self) -> None:
        with pytest.raises(RuntimeError):
            panic()
        with pytest.raises(KeyError, match="x"):
            panic(KeyError, "x")
        values = iter([False, False, True])
        assert wait_cond(lambda: next(values)) is True
        with pytest.raises(TimeoutError, match="the device"):
            wait_cond(lambda: False, timeout_ms=1, msg="the device")

    def test_suppress_finalizing_keeps_errors_before_the_end(self) -> None:
        @suppress_finalizing
        def close() -> None:
            raise OSError("closed")

        with pytest.raises(OSError, match="closed"):
            close()


class TestProgress:
    def test_items_pass(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert list(tqdm([1, 2, 3], desc="load")) == [1, 2, 3]
        assert "load: 100%" in capsys.readouterr().err
        assert list(trange(3, disable=True)) == [0, 1, 2]
        assert capsys.readouterr().err == ""

    def test_by_hand(self, capsys: pytest.CaptureFixture[str]) -> None:
        with tqdm(total=4) as bar:
            bar.set_description("half")
            bar.update(2)
            assert bar.n == 2
        assert "half:  50%" in capsys.readouterr().err
        tqdm.write("a line")
        assert "a line\n" in capsys.readouterr().err

    def test_nothing_to_iterate(self) -> None:
        with pytest.raises(AssertionError, match="nothing to iterate"):
            list(tqdm(total=3, disable=True))


class TestProfiling:
    def test_counters(self) -> None:
        GlobalCounters.kernel_count += 3
        GlobalCounters.global_ops += 5
        used = GlobalCounters.mem_used
        GlobalCounters.reset()
        assert (GlobalCounters.kernel_count, GlobalCounters.global_ops, GlobalCounters.time_sum_s) == (0, 0, 0.0)
        assert GlobalCounters.mem_used == used

    def test_timing(self, capsys: pytest.CaptureFixture[str]) -> None:
        with Timing("block: ", lambda ns: f", {ns > 0}") as timing:
            pass
        assert timing.et > 0
        out = capsys.readouterr().out
        assert out.startswith("block: ")
        assert out.endswith("ms, True\n")

        @Timing("call: ", enabled=False)
        def call() -> int:
            return 3

        assert call() == 3
        assert capsys.readouterr().out == ""

    def test_profiling(self, capsys: pytest.CaptureFixture[str]) -> None:
        with Profiling(frac=1.0):
            sorted(range(10), key=lambda x: -x)
        out = capsys.readouterr().out
        assert "function calls" in out
        assert "importlib" not in out  # nothing of its own
        seconds = re.search(r"calls.* in (\d+\.\d+) seconds", out)
        assert seconds is not None
        assert float(seconds[1]) < 1

    def test_events(self) -> None:
        del cpu_events[:]
        with Context(PROFILE=0), cpu_profile("unseen"):
            profile_marker("unseen")
        assert cpu_events == []
        try:
            with Context(PROFILE=1):
                before = perf_counter_us()
                with cpu_profile("compile", "CPU") as event:
                    profile_marker("here")
                assert event.en is not None
                assert before <= event.st <= event.en <= perf_counter_us()
            marker, seen = cpu_events
            assert isinstance(seen, ProfileRangeEvent)
            assert seen is event
            rows = chrome_trace([marker, seen])["traceEvents"]
            assert [row["ph"] for row in rows] == ["M", "M", "i", "X"]
            assert rows[-1]["name"] == "compile"
        finally:
            del cpu_events[:]

    def test_metadata(self) -> None:
        assert str(Metadata("relu")) == "relu"
        assert str(Metadata("relu", backward=True)) == "relu bw"


class TestTarget:
    @pytest.mark.parametrize(
        ("text", "fields"),
        [
            ("", ("", "", "", "", "")),
            ("cpu", ("CPU", "", "", "", "")),
            ("CPU:llvm", ("CPU", "LLVM", "", "", "")),
            ("CPU::x86_64,native", ("CPU", "", "x86_64,native", "", "")),
            ("CPU:LLVM:x86_64,znver2,avx2,-avx512f", ("CPU", "LLVM", "x86_64,znver2,avx2,-avx512f", "", "")),
            ("CPU:LLVM:x86_64,znver2,+avx2", ("CPU", "LLVM", "x86_64,znver2,+avx2", "", "")),
            ("PCI:0,2+NV::sm_90,+x", ("NV", "", "sm_90,+x", "PCI", "0,2")),
            ("USB+AMD:LLVM", ("AMD", "LLVM", "", "USB", "")),
            ("PCI:0,2+NV", ("NV", "", "", "PCI", "0,2")),
        ],
    )
    def test_parse_and_repr(self, text: str, fields: tuple[str, ...]) -> None:
        target = Target.parse(text)
        assert (target.device, target.renderer, target.arch, target.interface, target.indices) == fields
        assert Target.parse(repr(target)) == target

    @pytest.mark.parametrize(("text", "what"), [("a:b:c:d", "':'"), ("a+b+c", "'[+]'"), ("a:1:2+b", "':'")])
    def test_too_many_parts(self, text: str, what: str) -> None:
        with pytest.raises(RuntimeError, match=f"too many {what}"):
            Target.parse(text)

    def test_defaults(self) -> None:
        filled = Target.parse("CPU:LLVM").replacedefault(renderer="CLANG", arch="x86_64")
        assert (filled.renderer, filled.arch) == ("LLVM", "x86_64")

    def test_dev(self) -> None:
        with Context(DEV="NULL:HIP:gfx1100;cpu:llvm"):
            assert DEV
            assert DEV.value == [Target("NULL", "HIP", "gfx1100"), Target("CPU", "LLVM")]
            assert DEV.device == "NULL"
            assert DEV.arch == "gfx1100"
            assert DEV.target("CPU:1", arch="native") == Target("CPU", "LLVM", "native")
            assert DEV.target("AMD", renderer="HIP") == Target("AMD", "HIP")
            with Context(DEV="python"):
                assert DEV == "PYTHON"
            assert DEV.device == "NULL"
        with Context(DEV=""):
            assert not DEV
            assert DEV.device == ""

    @pytest.mark.parametrize(
        ("name", "text", "instead"),
        [("CPU", "1", "DEV=CPU "), ("NV_CC", "PTX", "DEV=NV:PTX "), ("AMD_IFACE", "USB", r"DEV=USB\+AMD "),
         ("CPU_LLVM", "1", "DEV=CPU:LLVM "), ("EMULATE", "gfx1100", "DEV=PYTHON::gfx1100 ")],
    )  # fmt: skip
    def test_deprecated_variables(self, name: str, text: str, instead: str) -> None:
        with pytest.raises(AssertionError, match=instead):
            check_deprecated_device_variables({name: text})

    def test_variables_of_other_programs_are_left_alone(self) -> None:
        check_deprecated_device_variables({
            "PYTHON": "/usr/bin/python3",
            "CUDA": "12.4",
            "CUDA_PATH": "/x",
            "CC": "gcc",
        })


class TestErrors:
    def test_classes(self) -> None:
        assert issubclass(ShapeError, ValueError)
        assert issubclass(ShapeError, IndexError)
        assert issubclass(DTypeError, RuntimeError)
        assert issubclass(DTypeError, TypeError)
        assert issubclass(DeviceError, RuntimeError)

    def test_user_line_skips_decorators_of_the_standard_library(self) -> None:
        @Context(DEBUG=0)
        def decorated() -> str:
            return user_line()

        assert "test_helpers.py:" in user_line()
        assert decorated().endswith("return user_line()")

    def test_error_text(self) -> None:
        class Operand:
            shape, dtype, device = (8, 64), dtypes.float32, "CPU"

        text = error_text(
            "matmul", "inner sizes differ, 64 and 32", {"left": Operand(), "axis": 3}, "left == right", "use right.T"
        )
        first, *rows = text.splitlines()
        assert first == "matmul: inner sizes differ, 64 and 32"
        assert rows[0] == "  left  (8, 64)   float32   CPU"
        assert rows[1] == "  axis  3"
        assert rows[2] == "  rule  left == right"
        assert rows[3].startswith("  line  ")
        assert "test_helpers.py:" in rows[3]
        assert rows[4] == "  hint  use right.T"
