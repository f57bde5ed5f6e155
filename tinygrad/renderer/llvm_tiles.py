"""Tile registers of x86 (AMX) in LLVM IR.

In:   the linear program of a kernel with WMMA nodes on tiles.
Out:  ``Tiles``: which node is in which tile register, and the calls that load, multiply and store.
Why:  LLVM's form with immediate register numbers is used, because a kernel of this project names few tiles and each
      lives in one place: register variables of the program keep their tile for the whole kernel and are multiplied
      into in place, operands take the tiles that are left from their load to their last use.

A tile is loaded with the hint that it will not be read again soon where the loop around moves on to another one: it
would only push what that loop comes back to out of the first cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinygrad.codegen.opt.tc import TILE_REGISTERS, is_tile_arg
from tinygrad.device import CompileError
from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.llvm_build import Builder, Value
from tinygrad.uop import Ops

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp

_ROW_BYTES = 64
_ROWS = 16
_SIGNS = {dtypes.int8: "s", dtypes.uint8: "u"}
# Palette 1, and for each of eight tiles the bytes of a row (16 bits each, from byte 16 on) and the rows (from byte 48).
_CONFIG = (1, *(0,) * 15, *(_ROW_BYTES, 0) * 8, *(0,) * 16, *(_ROWS,) * 8, *(0,) * 8)


def is_tile_product(u: UOp) -> bool:
    """Whether a node multiplies tiles."""
    return u.op is Ops.WMMA and is_tile_arg(u.arg)


def _function(left: DType, right: DType) -> str:
    if left is dtypes.bfloat16:
        return "llvm.x86.tdpbf16ps"
    return f"llvm.x86.tdpb{_SIGNS[left]}{_SIGNS[right]}d"


class Tiles:
    """The tiles of one kernel.

    Args:
        uops: The linear program.
        builder: Where instructions go.
    """

    def __init__(self, uops: Sequence[UOp], builder: Builder) -> None:
        self.b = builder
        products = [u for u in uops if is_tile_product(u)]
        self.used = bool(products)
        self.variables: dict[UOp, int] = {}  # register variable -> tile
        self.held: dict[UOp, int] = {}  # value -> tile that it is in now
        self.starts: dict[UOp, int] = {}  # load of what a sum starts with -> tile of the sum
        self.streamed: set[UOp] = set()
        self._last_use = {s: u for u in products for s in u.src[:2]}
        self._free: list[int] = []
        if products:
            self._assign(uops, set(products))

    def _assign(self, uops: Sequence[UOp], products: set[UOp]) -> None:
        loops: list[UOp] = []
        for u in uops:
            if u.op is Ops.RANGE:
                loops.append(u)
            elif u.op is Ops.END:
                del loops[len(loops) - len(u.src) + 1 :]
            elif u.op is Ops.STORE and u.src[1] in products and u.src[0].op is not Ops.INDEX:
                self.variables.setdefault(u.src[0].without_after, len(self.variables))
            elif u in self._last_use:
                if u.op is not Ops.LOAD or len(u.src) > 1:
                    raise CompileError(f"LLVM: the operand of a tile product is a {u.op}; only plain loads can be one")
                if len(loops) > 1 and loops[-2] in u.src[0].src[1].toposort():
                    self.streamed.add(u)
        for u in uops:
            if u.op is Ops.STORE and u.src[0].without_after in self.variables and u.src[1].op is Ops.LOAD:
                self.starts[u.src[1]] = self.variables[u.src[0].without_after]
        self._free = list(range(len(self.variables), TILE_REGISTERS))

    def _call(self, function: str, *operands: str) -> None:
        self.b.declare("void", function, operands)
        self.b.append(f"call void @{function}({', '.join(operands)})")

    def is_tile(self, u: UOp) -> bool:
        """Whether a LOAD is the operand of a product, or what a sum starts with."""
        return u in self._last_use or u in self.starts

    # ---- instructions

    def configure(self) -> list[str]:
        """Return the lines at the start of the kernel: all tiles have 16 rows of 64 bytes."""
        self.b.declarations.add("declare void @llvm.x86.ldtilecfg(ptr)")
        values = ", ".join(f"i8 {x}" for x in _CONFIG)
        return [
            "%tiles = alloca [64 x i8], align 64",
            f"store <64 x i8> <{values}>, ptr %tiles, align 64",
            "call void @llvm.x86.ldtilecfg(ptr %tiles)",
        ]

    def release(self) -> list[str]:
        """Return the lines at the end of the kernel."""
        self.b.declarations.add("declare void @llvm.x86.tilerelease()")
        return ["call void @llvm.x86.tilerelease()"]

    def load(self, u: UOp, pointer: Value) -> None:
        """Load an operand into a free tile, or what a sum starts with into its tile."""
        if u in self.starts:
            self._load(self.starts[u], u, pointer, "tileloadd64")
            return
        if not self._free:
            raise CompileError(f"LLVM: more than {TILE_REGISTERS} tiles are needed at once; use fewer copies")
        self._load(self._free.pop(0), u, pointer, "tileloaddt164" if u in self.streamed else "tileloadd64")

    def _load(self, tile: int, u: UOp, pointer: Value, kind: str) -> None:
        self.held[u] = tile
        self._call(f"llvm.x86.{kind}", f"i8 {tile}", f"ptr {pointer.name}", f"i64 {_ROW_BYTES}")

    def set_variable(self, register: UOp, value: UOp) -> None:
        """Store to a register variable: zero, or what was loaded or multiplied into its tile."""
        tile = self.variables[register]
        if value in self.held:
            if self.held[value] != tile:
                raise CompileError("LLVM: a sum of tiles changes its register")
        elif value.op is Ops.STACK and all(s.op is Ops.CONST and s.arg == 0 for s in value.src):
            self._call("llvm.x86.tilezero", f"i8 {tile}")
        else:
            raise CompileError(f"LLVM: sums of tiles start at zero or with a load, not with a {value.op}")

    def multiply(self, u: UOp) -> None:
        """Add a product to the tile of its sum."""
        left, right, total = u.src
        if total not in self.held:
            raise CompileError("LLVM: the sum of tile products is in no register variable")
        tile = self.held[u] = self.held[total]
        self._call(_function(*u.arg[4]), *(f"i8 {t}" for t in (tile, self.held[left], self.held[right])))
        for s in {left, right}:
            if self._last_use[s] is u:
                self._free.append(self.held.pop(s))

    def store(self, u: UOp, pointer: Value) -> None:
        """Store a sum to memory."""
        self._call("llvm.x86.tilestored64", f"i8 {self.held[u]}", f"ptr {pointer.name}", f"i64 {_ROW_BYTES}")

    def as_vector(self, u: UOp) -> Value:
        """Return a sum as a vector: through memory, there is no other way."""
        if "%tile = alloca" not in "".join(self.b.entry):
            self.b.entry.append(f"%tile = alloca [{_ROWS * _ROW_BYTES} x i8], align 64")
        self.store(u, Value("%tile", dtypes.void, 1, 0))
        return self.b.load(Value("%tile", dtypes.void, 1, 0), u.dtype, _ROWS * _ROW_BYTES // 4, None, None)
