"""Write the kernel that the steps of a Schedule describe.

In:   a Schedule: what each original range became, which loops are cached, which operands are staged.
Out:  the kernel SINK with its ranges split and typed.
Ops:  padded ranges gate the accesses that depend on them. CACHE makes a nest of its own that adds up one block of the
      reduction, in scratch memory; STAGE makes a nest that copies a block of an operand to scratch memory.
Why:  steps only describe what is wanted, so a policy may apply and inspect many before a graph is written once.

    for block of outputs:                     the original END, outer part
        for block of the reduction:           END of the sums
            scratch = operand                 STAGE: one nest per operand
            sums += reduce(scratch ...)       CACHE
        store(epilogue(sums))                 the original END, inner part
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinygrad.codegen.late.affine import affine
from tinygrad.codegen.late.structure import is_memory
from tinygrad.codegen.opt.words import word_of
from tinygrad.codegen.simplify import rebuild
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.record import record
from tinygrad.uop import AxisType, Ops
from tinygrad.uop.ops import ParamArg, UOp, identity_element

if TYPE_CHECKING:
    from tinygrad.codegen.opt.schedule import Schedule
    from tinygrad.codegen.opt.tc import TensorCore

LINE_BYTES = 64
COPY_VECTORS = 4  # vectors of a copy that are moved without a test between them
_DIVISIONS = frozenset({Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD})


@record(frozen=True)
class Cached:
    """A CACHE step: the output loops, as they were then, that run inside the blocks of the reduction."""

    outputs: tuple[UOp, ...]
    blocks: tuple[UOp, ...]


@record(frozen=True)
class Window:
    """Two ranges of an operand that are one in its copy: it is read at ``rows + step * taps``."""

    rows: UOp
    taps: UOp
    step: int

    @property
    def size(self) -> int:
        """How many places there are."""
        return int(self.rows.src[0].arg + self.step * (self.taps.src[0].arg - 1))


@record(frozen=True)
class Staged:
    """A STAGE step: the ranges, as they were then, over which an operand is copied.

    Args:
        inside: Output loops in front of which the copy is made.
        outputs: Those that the operand depends on; the last one is the register tile.
        reduces: Loops of the reduction; those over taps of a window have no place of their own.
        panel: Whether the tile is the innermost dimension of the copy; otherwise the reduction is.
        windows: Output loops that move over the operand together with a loop of the reduction.
    """

    inside: tuple[UOp, ...]
    outputs: tuple[UOp, ...]
    reduces: tuple[UOp, ...]
    panel: bool
    windows: tuple[Window, ...] = ()

    def size(self, r: UOp) -> int:
        """Return how many places the copy has along a range."""
        return next((w.size for w in self.windows if w.rows is r), r.src[0].arg)

    @property
    def ranges(self) -> tuple[UOp, ...]:
        """The ranges that have a place of their own in the copy."""
        return (*self.outputs, *self.terms)

    @property
    def terms(self) -> tuple[UOp, ...]:
        """Those of them that are loops of the reduction."""
        taps = {w.taps for w in self.windows}
        return tuple([r for r in self.reduces if r not in taps])


@record(frozen=True)
class Dot:
    """A TC step with a dot-product instruction.

    Args:
        range: The iterations of the reduction that one word holds.
        core: The instruction.
        narrow: Both factors, before they were cast.
        wide: Which of them has lanes.
    """

    range: UOp
    core: TensorCore
    narrow: tuple[UOp, UOp]
    wide: int

    @property
    def first(self) -> int:
        """Which factor comes first: the unsigned one, where it matters."""
        unsigned = [i for i, x in enumerate(self.narrow) if x.dtype is dtypes.uint8]
        return unsigned[0] if unsigned else 1 - self.wide

    @property
    def is_offset(self) -> bool:
        """Whether the first factor is signed and made unsigned by adding 128, which is taken off the sums again."""
        return self.core.dtype_in is dtypes.uint8 and self.narrow[self.first].dtype is dtypes.int8


def narrow_factors(factors: tuple[UOp, ...], core: TensorCore) -> tuple[UOp, UOp] | None:
    """Return the factors of a product before they were cast, if the instruction takes such ones."""
    if len(set(factors)) != 2 or any(f.op is not Ops.CAST for f in factors):
        return None
    first, second = (f.src[0] for f in factors)
    return (first, second) if core.takes(first.dtype, second.dtype, factors[0].dtype) else None


class Env:
    """What the original ranges are in one loop nest, and what was rebuilt there."""

    def __init__(self, schedule: Schedule, final: dict[UOp, UOp], own: dict[UOp, UOp] | None = None) -> None:
        # A nest of its own has ranges of its own in place of those of the final kernel.
        self.own = own or {}
        if own:
            final = {**own, **{old: rebuild(v, own) for old, v in final.items()}}
        self.conditions: dict[UOp, list[UOp]] = {}
        for old, condition in schedule.conditions:
            made = rebuild(condition, final)
            for r in schedule.origins[old]:
                self.conditions.setdefault(r, []).append(made)
        self.final = final
        self.padded = sum(1 << schedule.original[r] for r in self.conditions)
        self.new = {r: final.get(r, r) for r in schedule.original}

    def value(self, r: UOp) -> UOp:
        """Return what a range of any moment has become."""
        return self.final.get(r, r)

    def add(self, schedule: Schedule, r: UOp, condition: UOp) -> None:
        """Gate what depends on the original ranges of ``r``."""
        for o in schedule.origins[r]:
            self.conditions.setdefault(o, []).append(condition)
            self.padded |= 1 << schedule.original[o]


def _inside(env: Env, value: UOp, ranges: tuple[UOp, ...], outside: Any) -> UOp:
    """Return a value, and a constant beyond the end of padded ranges."""
    for g in dict.fromkeys(g for r in ranges for g in env.conditions.get(r, ())):
        value = UOp(Ops.WHERE, value.dtype, (g, value, UOp(Ops.CONST, value.dtype, (), outside)))
    return value


def _const(value: int) -> UOp:
    return UOp(Ops.CONST, dtypes.weakint, (), value)


def _and(a: UOp | None, b: UOp) -> UOp:
    return b if a is None else UOp(Ops.AND, dtypes.bool, (b, a))


def simplified(u: UOp) -> UOp:
    """Simplify an index or gate if it divides; sums are normalised later anyway."""
    return u.simplify() if any(u.ops_below >> op & 1 for op in _DIVISIONS) else u


def place_of(parts: list[tuple[UOp, int]]) -> UOp:
    """Return the sum of terms times steps."""
    total: UOp | None = None
    for value, step in parts:
        term = value if step == 1 else UOp(Ops.MUL, dtypes.weakint, (value, _const(step)))
        total = term if total is None else UOp(Ops.ADD, dtypes.weakint, (total, term))
    return _const(0) if total is None else total


class Rebuild:
    """Rebuilds the kernel of one Schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.s = schedule
        self.next_slot = 1 + max(
            (u.arg.slot for u in schedule.nodes if u.op is Ops.BUFFER or u.op is Ops.PARAM), default=0
        )
        self.final = self._final({})
        cached = schedule.cached
        self.inside = self.in_order(cached.outputs) if cached else []
        self.blocks = self.in_order(cached.blocks) if cached else []

    def run(self) -> UOp:
        """Return the kernel."""
        return self._rebuilt(Env(self.s, self.final), self.s.sink)

    def _final(self, stop: dict[UOp, UOp]) -> dict[UOp, UOp]:
        """Return every replaced range's value in terms of final ranges, or of those that ``stop`` gives instead."""
        final = dict(stop)
        for old, value in reversed(self.s.replaced.items()):
            if old not in final:
                final[old] = rebuild(value, final)
        return final

    def in_order(self, ranges: tuple[UOp, ...]) -> list[UOp]:
        """Return the final ranges that stand for ``ranges``, in the order of the axes."""
        found: dict[UOp, None] = {}
        stack = list(reversed(ranges))
        while stack:
            r = stack.pop()
            if r in self.s.children:
                stack.extend(reversed(self.s.children[r]))
            else:
                found[r] = None
        return [a.range for a in self.s.axes if a.range in found]

    # ---- plain nodes

    def _rebuilt(self, env: Env, root: UOp) -> UOp:
        """Rebuild ``root`` and what it needs in one loop nest."""
        new, cached, staged, dot, factors = env.new, self.s.cached, self.s.staged, self.s.dot, self.s.factors()
        stack = [root]
        while stack:
            u = stack[-1]
            if u in new:
                stack.pop()
                continue
            if u in staged and u is not root:
                new[u] = self._stage(env, u, staged[u])
                continue
            if dot is not None and u.src == factors and u.op is Ops.MUL and all(f in new for f in factors):
                new[u] = self._dot(dot, new[factors[dot.first]], new[factors[1 - dot.first]])
                continue
            if cached is not None and u.op is Ops.REDUCE:
                new[u] = self.cache(u, cached)
                continue
            missing = [x for x in u.src if x not in new]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            new[u] = self._node(env, u)
        return new[root]

    def _node(self, env: Env, u: UOp) -> UOp:
        if u.op is Ops.REDUCE:
            return self._reduce(env, u, self.in_order(u.src[1:]))
        src = tuple([env.new[s] for s in u.src])
        if u.op is Ops.END:
            return UOp(Ops.END, dtypes.void, (src[0], *self._store_order(src[0], self.in_order(u.src[1:]))))
        if u.op is Ops.INDEX and is_memory(u.src[0]):
            src = self._index_src(env, u, src)
        return u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)

    def _store_order(self, store: UOp, ranges: list[UOp]) -> list[UOp]:
        """Return the loops of a store: sums that were kept are stored in the order of memory, not in that of tiles."""
        places = [n for n, r in enumerate(ranges) if r in self.inside and r.arg[-1] is AxisType.LOOP]
        if len(places) < 2 or store.op is not Ops.STORE or store.src[0].op is not Ops.INDEX:
            return ranges
        terms, _ = affine(store.src[0].src[1])
        ordered = sorted((ranges[n] for n in places), key=lambda r: -abs(terms.get(r, 0)))
        found = dict(zip(places, ordered, strict=True))
        return [found.get(n, r) for n, r in enumerate(ranges)]

    def _index_src(self, env: Env, u: UOp, src: tuple[UOp, ...]) -> tuple[UOp, ...]:
        """Simplify a changed index, and gate it where it depends on a padded range."""
        if self.s.replaced:
            src = (src[0], *(simplified(s) for s in src[1:]))
        if not self.s.mask[u] & env.padded:
            return src
        gates = [g for r, gs in env.conditions.items() if self.s.mask[u] >> self.s.original[r] & 1 for g in gs]
        gate = src[2] if len(src) > 2 else None
        for g in dict.fromkeys(gates):
            gate = _and(gate, g)
        return src[:2] if gate is None else (*src[:2], gate)

    # ---- reductions

    def _reduce(self, env: Env, u: UOp, ranges: list[UOp]) -> UOp:
        """Rebuild a REDUCE: over its final ranges, the identity beyond the end of padded ones, blocks inside."""
        value = env.new[u.src[0]]
        dot = self.s.dot
        if dot is None:
            if u.arg[0] is not Ops.ADD or not self._is_zero_outside(env, u.src[0], u.src[1:]):
                value = _inside(env, value, u.src[1:], identity_element(u.arg[0], u.dtype))
            return self._summed(u, value, ranges)
        ranges = [r for r in ranges if r is not dot.range]
        total = self._summed(u, value, ranges)
        if not dot.is_offset:
            return total
        # (a + 128) * b - 128 * b; the second sum is the same for all rows of a block.
        extra = self._summed(u, self._dot(dot, UOp(Ops.CONST, dtypes.uint32, (), 0x80808080), value.src[1]), ranges)
        negative = UOp(Ops.MUL, u.dtype, (extra, UOp(Ops.CONST, u.dtype, (), -1)))
        return UOp(Ops.ADD, u.dtype, (total, negative))

    def _summed(self, u: UOp, value: UOp, ranges: list[UOp]) -> UOp:
        for r in reversed(ranges):
            if r in self.s.block_outer:
                at = ranges.index(r) + 1
                value = UOp(Ops.REDUCE, u.dtype, (value, *ranges[at:]), u.arg) if ranges[at:] else value
                ranges = ranges[:at]
        return UOp(Ops.REDUCE, u.dtype, (value, *ranges), u.arg)

    def _dot(self, dot: Dot, a: UOp, b: UOp) -> UOp:
        zero = UOp(Ops.CONST, dot.core.dtype_out, (), 0)
        return UOp(Ops.WMMA, dot.core.dtype_out, (a, b, zero), dot.core.arg("CPU"))

    def _is_zero_outside(self, env: Env, value: UOp, ranges: tuple[UOp, ...]) -> bool:
        """Whether a value is 0 beyond the end of the padded ones among ``ranges``, where loads give 0."""
        own = sum(1 << self.s.original[r] for r in ranges if r in env.conditions)
        stack = [value]
        while stack:
            u = stack.pop()
            if u.op is Ops.INDEX and is_memory(u.src[0]):
                if self.s.mask[u] & own != own:
                    return False
            elif u.op in (Ops.MUL, Ops.ADD):
                stack.extend(u.src)
            elif u.op in (Ops.CAST, Ops.NEG):
                stack.append(u.src[0])
            else:
                return False
        return True

    # ---- scratch memory

    def scratch(self, dtype: DType, size: int) -> UOp:
        """Return new scratch memory of ``size`` elements."""
        arg = ParamArg(self.next_slot, dtype, (size,), addrspace=AddrSpace.LOCAL)
        self.next_slot += 1
        return UOp(Ops.BUFFER, dtype, (), arg)

    def cache(self, u: UOp, cached: Cached) -> UOp:
        """Make the nest that adds blocks of the reduction up in scratch memory; returns the sum."""
        sizes = [r.src[0].arg for r in cached.outputs]
        scratch = self.scratch(u.dtype, math.prod(sizes))
        steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        fresh = {r: self.s.new_range(r.src[0].arg, r.arg[-1], frozenset()) for r in self.inside}
        env = Env(self.s, self.final, fresh)
        self._rebuilt(env, u.src[0])
        part = self._reduce(env, u, [r for r in self.in_order(u.src[1:]) if r not in self.blocks])
        place = [(env.value(r), step) for r, step in zip(cached.outputs, steps, strict=True)]
        done = self.summed_in(scratch, u, place_of(place), part, [fresh[r] for r in self.inside])
        result = place_of([(self.final.get(r, r), step) for r, step in zip(cached.outputs, steps, strict=True)])
        return scratch.after(done).index(result)

    def summed_in(self, scratch: UOp, u: UOp, place: UOp, part: UOp, loops: list[UOp]) -> UOp:
        """Make the nest that adds the part of each block of the reduction ``u`` to scratch memory."""
        target = self.sum_so_far(scratch, u, place)
        total = UOp(u.arg[0], u.dtype, (target, part)) if self.blocks else part
        return target.store(total).end(*loops).end(*self.blocks)

    def sum_so_far(self, scratch: UOp, u: UOp, place: UOp) -> UOp:
        """Return where the blocks of the reduction ``u`` are added up, cleared in front of the first block."""
        outer = [a.range for a in self.s.axes if not a.reduce and a.range not in self.inside]
        if not self.blocks:
            return scratch.after(*outer).index(place)
        cleared = self._clear(scratch.after(*outer), scratch.arg.shape[0], identity_element(u.arg[0], u.dtype))
        return scratch.after(cleared, *outer, *self.blocks).index(place)

    def _clear(self, scratch: UOp, size: int, identity: Any) -> UOp:
        """Make the loop that fills scratch memory with one number.

        A first block that stores its sums instead of adding them would save this pass, which is short, but would put
        a test in front of every load of every block.
        """
        lanes = math.gcd(size, max(1, self.s.renderer.vector_bytes // scratch.dtype.itemsize))
        parts = [(size // lanes, AxisType.LOOP, lanes), (lanes, AxisType.VECTOR, 1)]
        made = [(self.s.new_range(n, kind, frozenset()), step) for n, kind, step in parts if n > 1]
        place = scratch.index(place_of(made))
        return place.store(UOp(Ops.CONST, scratch.dtype, (), identity)).end(*(r for r, _ in made))

    def _stage(self, env: Env, u: UOp, staged: Staged) -> UOp:
        """Make the nest that copies an operand to scratch memory; returns the read of the copy."""
        copy, steps = self.filled(env, u, staged)
        taps = [(env.value(w.taps), w.step * steps[w.rows]) for w in staged.windows]
        return copy.index(place_of([*((env.value(r), step) for r, step in steps.items()), *taps]))

    def filled(self, env: Env, u: UOp, staged: Staged) -> tuple[UOp, dict[UOp, int]]:
        """Make the nest that copies an operand to scratch memory; returns the copy and the step of each range in it."""
        ranges = staged.ranges
        first = {w.taps: _const(0) for w in staged.windows}
        plain = {r: self.s.new_range(staged.size(r), AxisType.LOOP, frozenset()) for r in ranges}
        copied = self._copied(u, {**plain, **first}, env.own)
        walk = _steps(copied, plain)
        packed = 1 if self.s.dot is None or copied.op is Ops.INDEX else self.s.dot.core.packed
        near = dict.fromkeys(staged.outputs[-1:], 1) | dict.fromkeys(reversed(staged.terms), packed)
        lane = next((r for r, step in near.items() if walk[r] == step), None)
        dtype = u.dtype if self.s.dot is None else dtypes.uint32
        lanes = 1
        if lane is not None and (n := staged.size(lane)) > 1:
            lanes = self.s.renderer.vector_bytes // dtype.itemsize
            while lanes > 2 and lanes // 2 >= n:
                lanes //= 2
        steps, size = self.layout(staged, lane, lanes, LINE_BYTES // dtype.itemsize)
        inner = min(ranges, key=lambda r: steps[r])
        loops: list[UOp] = []
        values: dict[UOp, UOp] = first
        for r in sorted(ranges, key=lambda r: (r is lane, -abs(walk[r]))):
            if r is lane:
                values[r], own = self._fill_loops(staged.size(r), lanes, AxisType.VECTOR)
            elif staged.panel and r is inner and lane is not None:
                # What is contiguous here is not there: copies beside each other make whole vectors.
                values[r], own = self._fill_loops(staged.size(r), math.gcd(staged.size(r), lanes), AxisType.UPCAST)
            else:
                values[r], own = plain[r], [plain[r]]
            loops += own
        gate = None
        if lane is not None and staged.size(lane) % lanes:
            gate = lane, UOp(Ops.CMPLT, dtypes.bool, (values[lane], _const(staged.size(lane))))
        inside = self.in_order(staged.inside)
        outer = [env.value(a.range) for a in self.s.axes if not a.reduce and a.range not in inside]
        scratch = self.scratch(dtype, size)
        target = scratch.after(*outer, *self.blocks).index(place_of([(values[r], steps[r]) for r in ranges]))
        filled = target.store(self._copied(u, values, env.own, gate)).end(*loops)
        return scratch.after(filled), {r: steps[r] for r in ranges}

    def _copied(self, u: UOp, values: dict[UOp, UOp], own: dict[UOp, UOp], gate: tuple[UOp, UOp] | None = None) -> UOp:
        """Return an operand where ranges have the given values; packed in words for a dot-product instruction."""
        dot = self.s.dot
        if dot is None:
            return self._operand(u, values, own, gate)
        i = self.s.factors().index(u)
        places = [{**values, dot.range: _const(n)} for n in range(dot.core.packed)]
        word = word_of([self._operand(dot.narrow[i], place, own, gate) for place in places])
        if dot.is_offset and i == dot.first:
            word = UOp(Ops.XOR, dtypes.uint32, (word, UOp(Ops.CONST, dtypes.uint32, (), 0x80808080)))
        return word

    def _operand(self, u: UOp, values: dict[UOp, UOp], own: dict[UOp, UOp], gate: tuple[UOp, UOp] | None) -> UOp:
        env = Env(self.s, self._final(values), own)
        if gate is not None:
            env.add(self.s, *gate)
        value = self._rebuilt(env, u)
        if self.s.dot is None:
            return value
        # What is packed with others cannot be left out of the sum any more.
        terms = next(r.src[1:] for r in self.s.nodes if r.op is Ops.REDUCE)
        return value if self._is_zero_outside(env, u, terms) else _inside(env, value, terms, 0)

    def layout(self, staged: Staged, lane: UOp | None, lanes: int, line: int) -> tuple[dict[UOp, int], int]:
        """Return the step of each range in the copy, and its size.

        What lies beside each other for one value of the reduction (rows), and whole panels, start in different cache
        lines of different sets, whatever their sizes.
        """
        tile, reduces = staged.outputs[-1], staged.terms
        order = [*staged.outputs[:-1], *((*reduces, tile) if staged.panel else (tile, *reduces))]
        steps: dict[UOp, int] = {}
        step = 1
        for r in reversed(order):
            steps[r] = step
            n = staged.size(r)
            step *= -(-n // lanes) * lanes if r is lane else n
            if r in reduces[:1]:
                step = (-(-step // line) | 1) * line
        return steps, step

    def _fill_loops(self, size: int, count: int, kind: AxisType) -> tuple[UOp, list[UOp]]:
        """Cut ``count`` iterations off a range of a copy; return its value, and the loops that it takes."""
        outer = -(-size // count)
        beside = math.gcd(outer, COPY_VECTORS) if kind is AxisType.VECTOR else 1
        parts = [(outer // beside, AxisType.LOOP, count * beside), (beside, AxisType.UPCAST, count), (count, kind, 1)]
        made = [(self.s.new_range(n, k, frozenset()), step) for n, k, step in parts if n > 1]
        return place_of(made), [loop for loop, _ in made]


def _steps(value: UOp, ranges: dict[UOp, UOp]) -> dict[UOp, int]:
    """Return how far the loads of an expression move per iteration of each range; 0 if they differ or do not move."""
    found: dict[UOp, set[int]] = {r: set() for r in ranges}
    for u in value.toposort():
        if u.op is Ops.INDEX and is_memory(u.src[0]):
            terms, _ = affine(u.src[1])
            for r, made in ranges.items():
                linear = not any(made in t.toposort() for t in terms if t is not made)
                found[r].add(terms.get(made, 0) if linear else 1 << 20)
    return {r: max(s - {0}, default=0) if len(s - {0}) < 2 else 1 << 20 for r, s in found.items()}
