"""Rewriting of whole graphs until no rule applies.

In:   a graph and a table of rules (or a map of nodes).
Out:  the rewritten graph; the same object if nothing changed. Shared nodes are rewritten once and stay shared.
Why:  most compile time is spent here. Walks use explicit stacks (graphs are deep), skip sub-graphs in which no root op
      of the rules occurs, and remember on each node what a pure table made of it, across calls.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

from tinygrad.settings import REWRITE_STACK_LIMIT, TRACK_MATCH_STATS
from tinygrad.uop import Ops, tracing
from tinygrad.uop.infer import dtype_from_uop
from tinygrad.uop.tracing import TrackedGraphRewrite, rewrite_group

if TYPE_CHECKING:
    from tinygrad.uop.matchcode import RewriteFn
    from tinygrad.uop.matcher import PatternMatcher
    from tinygrad.uop.ops import UOp

__all__ = ["BottomUpGate", "graph_rewrite", "rebuild", "rewrite_group", "substitute"]


class BottomUpGate(Exception):  # noqa: N818  a signal, not an error
    """Raised by a rule of a bottom-up rewrite: keep the node as it is and do not visit its sources."""


def rebuild(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """Return ``u`` with other sources; a dtype that followed from the sources follows from the new ones."""
    dtype = u.dtype
    for old, new in zip(u.src, src, strict=False):
        if old.dtype is not new.dtype:
            if dtype_from_uop(u.op, u.src, u.arg) is dtype:
                dtype = dtype_from_uop(u.op, src, u.arg)
            break
    made = type(u)(u.op, dtype, src, u.arg, u.tag)
    if made._made_by is None:
        made._made_by = u._made_by
    return made


def graph_rewrite(
    sink: UOp,
    pm: PatternMatcher,
    ctx: Any = None,
    bottom_up: bool = False,
    name: str | None = None,
    bpm: PatternMatcher | None = None,
    walk: bool = False,
    enter_calls: bool = False,
) -> UOp:
    """Rewrite a graph until no rule applies.

    Args:
        sink: Root of the graph.
        pm: The rules. Sources are rewritten first, then the rebuilt node is offered to the rules; a replacement is
        itself
            fully rewritten. Each distinct node is rewritten once.
        ctx: Given to every rule that has a parameter ``ctx``.
        bottom_up: Offer a node to the rules before its sources, repeatedly, and once more when its sources have
        changed.
            A rule may raise ``BottomUpGate`` to keep the node and skip its sources.
        name: Label in traces and errors.
        bpm: Rules for the position before the sources, together with ``pm`` after them.
        walk: One pass; replacements are final and not visited.
        enter_calls: Also rewrite the bodies of CALL and FUNCTION.

    Returns:
        The new root; ``sink`` itself if nothing changed.

    Raises:
        RuntimeError: The rules never settle; the message names them and shows the nodes that they cycle through.
    """
    top, bottom = (None, pm) if bottom_up else (pm, bpm)
    if TRACK_MATCH_STATS.get() < 2:
        return _Rewrite(top, bottom, ctx, name, walk, enter_calls).run(sink)
    frame = sys._getframe(1)
    location = (frame.f_code.co_filename, frame.f_lineno)
    tracing.start(TrackedGraphRewrite(location, sink, [], name, 0, bottom_up, walk, enter_calls))
    result = None
    try:
        result = _Rewrite(top, bottom, ctx, name, walk, enter_calls).run(sink)
    finally:
        tracing.finish(result)
    return result


# Stages of a node on the work stack.
_VISIT, _BUILD, _WAIT = 0, 1, 2
_NONE: dict[Any, Any] = {}


class _Functions(dict[Ops, "RewriteFn"]):
    """Op -> compiled rules; compiles on the first use of an op."""

    def __init__(self, matcher: PatternMatcher | None) -> None:
        super().__init__()
        self.matcher = matcher
        if matcher is not None and not matcher.is_traced:
            self.update(matcher.functions)

    def __missing__(self, op: Ops) -> RewriteFn:
        matcher = self.matcher
        assert matcher is not None
        self[op] = function = matcher.traced_function_for(op) if matcher.is_traced else matcher.function_for(op)
        return function


class _Rewrite:
    """One call of graph_rewrite."""

    def __init__(
        self,
        top: PatternMatcher | None,
        bottom: PatternMatcher | None,
        ctx: Any,
        name: str | None,
        walk: bool,
        enter_calls: bool,
    ) -> None:
        self.top, self.bottom, self.ctx, self.name = top, bottom, ctx, name
        self.walk, self.enter_calls = walk, enter_calls
        self.mask = (top.root_mask if top is not None else 0) | (bottom.root_mask if bottom is not None else 0)
        self.replaced: dict[UOp, UOp] = {}
        self.stack: list[tuple[int, UOp, UOp]] = []
        self.memo_key = self._memo_key()
        self.top_functions: _Functions | None = None

    def _memo_key(self) -> int | None:
        """The key under which results are remembered on nodes; None if they depend on more than the node."""
        only = self.top if self.bottom is None else self.bottom if self.top is None else None
        if only is None or not only.pure or only.is_traced:
            return None
        return only.serial * 8 + (self.top is None) * 4 + self.walk * 2 + self.enter_calls

    def run(self, root: UOp) -> UOp:
        """Return the rewritten root."""
        if not root.ops_below & self.mask:
            return root
        if self.bottom is None and self.top is not None and not self.walk:
            self.run_top_down(root)
        else:
            self.run_general(root)
        return self.replaced[root]

    def run_top_down(self, root: UOp) -> None:  # noqa: C901  one loop, written for speed
        """Sources first, then the node, then its replacement. The common mode, written for speed."""
        replaced, stack, mask, ctx, key = self.replaced, self.stack, self.mask, self.ctx, self.memo_key
        functions = _Functions(self.top)
        waiting: set[UOp] = set()
        limit, pending = REWRITE_STACK_LIMIT.get(), 0
        stack.append((_VISIT, root, root))
        while stack:
            stage, n, new = stack.pop()
            if stage == _VISIT:
                if n in replaced:
                    continue
                if n in waiting:
                    self.report_cycle(n)
                if not n.ops_below & mask:
                    replaced[n] = n
                    continue
                if key is not None and key in (memo := getattr(n, "_rewrites", _NONE)):
                    found = memo[key]
                    replaced[n] = n if found is None else found
                    continue
                waiting.add(n)
                stack.append((_BUILD, n, n))
                for s in reversed(self.sources(n)):
                    if s not in replaced:
                        stack.append((_VISIT, s, s))
                continue
            if stage == _BUILD:
                new = self.with_new_sources(n)
                result = functions[new.op](new, ctx)
                if result is not None and result is not n:
                    if result in replaced:
                        new = replaced[result]
                    else:
                        pending += 1
                        if pending > limit:
                            self.report_endless(n, limit)
                        stack += ((_WAIT, n, result), (_VISIT, result, result))
                        continue
                elif result is n and new is not n:
                    self.report_cycle(n)
            else:
                pending -= 1
                new = replaced[new]
            replaced[n] = new
            replaced.setdefault(new, new)
            if new._made_by is None:
                new._made_by = n._made_by
            waiting.discard(n)
            if key is not None:
                _remember(n, key, new)

    def run_general(self, root: UOp) -> None:  # noqa: C901  the same with more positions
        """Rules before the sources (``bottom``), after them (``top``), or both; one pass if ``walk``."""
        replaced, stack, key = self.replaced, self.stack, self.memo_key
        waiting: set[UOp] = set()
        limit, pending = REWRITE_STACK_LIMIT.get(), 0
        stack.append((_VISIT, root, root))
        while stack:
            stage, n, new = stack.pop()
            if stage == _VISIT:
                if n in replaced:
                    continue
                if n in waiting:
                    self.report_cycle(n)
                first = self.first_look(n)
                if first is None:
                    continue
                waiting.add(n)
                stack.append((_BUILD, n, first))
                stack += [(_VISIT, s, s) for s in reversed(self.sources(first)) if s not in replaced]
                continue
            if stage == _BUILD:
                built = self.with_new_sources(new)
                result = self.second_look(new, built)
                if result is None or result is built is new:
                    new = built
                elif self.walk:
                    new = result
                elif result in replaced:
                    new = replaced[result]
                else:
                    pending += 1
                    if pending > limit:
                        self.report_endless(n, limit)
                    stack += ((_WAIT, n, result), (_VISIT, result, result))
                    continue
            else:
                pending -= 1
                new = replaced[new]
            replaced[n] = new
            if new._made_by is None:
                new._made_by = n._made_by
            if not self.walk:
                replaced.setdefault(new, new)
            waiting.discard(n)
            if key is not None:
                _remember(n, key, new)

    def second_look(self, before: UOp, built: UOp) -> UOp | None:
        """Return what becomes of a node on its final sources; None if it stays."""
        if self.bottom is not None and built is not before and not self.walk:
            return built  # a new node: it is offered to the rules before its sources, too
        if self.top is None:
            return None
        if self.top_functions is None:
            self.top_functions = _Functions(self.top)
        return self.top_functions[built.op](built, self.ctx)

    def first_look(self, n: UOp) -> UOp | None:
        """Offer a node to the rules before its sources; None if it is finished (its result is in ``replaced``)."""
        replaced, key = self.replaced, self.memo_key
        if not n.ops_below & self.mask:
            replaced[n] = n
            return None
        if key is not None and key in (memo := getattr(n, "_rewrites", _NONE)):
            found = memo[key]
            replaced[n] = n if found is None else found
            return None
        if self.bottom is None:
            return n
        try:
            new = self.fixed_point(n)
        except BottomUpGate as gate:
            replaced[n] = gate.args[0]
            return None
        if new is not n and (self.walk or new in replaced):
            replaced[n] = new if self.walk else replaced[new]
            return None
        return new

    def fixed_point(self, n: UOp) -> UOp:
        """Apply the rules for the position before the sources until none fits (once if ``walk``)."""
        bottom = self.bottom
        seen: dict[UOp, None] = {}
        assert bottom is not None
        limit = REWRITE_STACK_LIMIT.get()
        while True:
            try:
                result = bottom.rewrite(n, self.ctx)
            except BottomUpGate:
                raise BottomUpGate(n) from None
            if result is None or result is n:
                return n
            if self.walk:
                return result
            seen[n] = None
            if result in seen or len(seen) > limit:
                chain = list(seen)[-8:]
                self.fail("infinite loop in fixed_point_rewrite", [*zip(chain, [*chain[1:], result], strict=True)])
            if result in self.replaced:
                return result
            n = result

    def sources(self, n: UOp) -> tuple[UOp, ...]:
        """The sources that are visited."""
        if not self.enter_calls and (n.op is Ops.CALL or n.op is Ops.FUNCTION):
            return n.src[1:]
        return n.src

    def with_new_sources(self, n: UOp) -> UOp:
        """Return ``n`` on its rewritten sources."""
        replaced, src = self.replaced, n.src
        if not src:
            return n
        if not self.enter_calls and (n.op is Ops.CALL or n.op is Ops.FUNCTION):
            new = (src[0], *[replaced[s] for s in src[1:]])
        else:
            new = tuple([replaced[s] for s in src])
        return n if new == src else rebuild(n, new)

    # ---- errors

    def report_cycle(self, node: UOp) -> NoReturn:
        """A rewrite of ``node`` has led back to it."""
        chain = self.pending_rewrites()
        start = next((i for i, (before, _) in enumerate(chain) if before is node), 0)
        kind = "fixed_point_rewrite" if self.bottom is not None else "graph_rewrite"
        self.fail(f"infinite loop in {kind}", chain[start:][-8:] or [(node, node)])

    def report_endless(self, node: UOp, limit: int) -> NoReturn:
        """More rewrites wait for one another than is allowed."""
        kind = "fixed_point_rewrite" if self.top is None else "graph_rewrite"
        summary = f"infinite loop in {kind} (stack too big): {limit} rewrites wait for one another"
        self.fail(summary, self.pending_rewrites()[-4:])

    def pending_rewrites(self) -> list[tuple[UOp, UOp]]:
        """The replacements whose result is awaited, outermost first."""
        return [(before, after) for stage, before, after in self.stack if stage == _WAIT or before is not after]

    def fail(self, summary: str, chain: list[tuple[UOp, UOp]]) -> NoReturn:
        """Raise the error that names the rules and shows the nodes."""
        lines = [summary + (f" {self.name!r}" if self.name else "")]
        for before, after in chain:
            rule = None
            for matcher in (self.top, self.bottom):
                if matcher is None or rule is not None:
                    continue
                src = tuple(self.replaced.get(s, s) for s in before.src)
                rule = matcher.explain(before, self.ctx) or matcher.explain(rebuild(before, src), self.ctx)
            lines.append(f"  rule  {rule if rule is not None else 'unknown'}")
            lines += [f"    before  {_brief(before)}", f"    after   {_brief(after)}"]
        lines.append("  hint  a rule must not match its own replacement: return None when there is nothing left to do")
        raise RuntimeError("\n".join(lines))


def _remember(n: UOp, key: int, result: UOp) -> None:
    # None stands for the node itself, which would keep itself alive otherwise.
    try:
        n._rewrites[key] = None if result is n else result
    except AttributeError:
        n._rewrites = {key: None if result is n else result}


def _brief(u: UOp, depth: int = 3) -> str:
    """Show the top of a graph on one line."""
    arg = "" if u.arg is None else f" {str(u.arg)[:40]}"
    if not u.src:
        return f"{u.op.name}{arg}"
    inner = ", ".join(_brief(s, depth - 1) for s in u.src[:4]) if depth else "..."
    return f"{u.op.name}{arg}({inner}{', ...' if len(u.src) > 4 else ''})"


def substitute(
    root: UOp,
    dvars: dict[UOp, UOp],
    walk: bool = False,
    enter_calls: bool = False,
    extra_pm: PatternMatcher | None = None,
    **kwargs: Any,
) -> UOp:
    """Return the graph with the keys of ``dvars`` replaced by its values.

    A value is itself substituted unless ``walk``; a key inside its own value stays. ``extra_pm`` simplifies the result.
    """
    mask = 0
    for u in dvars:
        mask |= 1 << u.op
    final = set(dvars) if walk else _final_keys(dvars, mask)
    done: dict[UOp, UOp] = {}
    stack: list[tuple[int, UOp]] = [(_VISIT, root)]
    while stack:
        stage, n = stack.pop()
        skipped = 1 if not enter_calls and (n.op is Ops.CALL or n.op is Ops.FUNCTION) else 0
        if stage == _BUILD:
            src = (*n.src[:skipped], *[done[s] for s in n.src[skipped:]])
            done[n] = n if src == n.src else rebuild(n, src)
        elif stage == _WAIT:
            done[n] = done[dvars[n]]
        elif n in done:
            continue
        elif n in final:
            done[n] = dvars[n]
        elif n in dvars:
            stack += ((_WAIT, n), (_VISIT, dvars[n]))
        elif not n.ops_below & mask:
            done[n] = n
        else:
            stack.append((_BUILD, n))
            stack += [(_VISIT, s) for s in n.src[skipped:] if s not in done]
    result = done[root]
    return result if extra_pm is None else graph_rewrite(result, extra_pm)


def _final_keys(dvars: dict[UOp, UOp], mask: int) -> set[UOp]:
    """Return the keys whose values are not substituted again: no key in them, or a way back to the key itself."""
    final: set[UOp] = set()
    leads_to: dict[UOp, list[UOp]] = {}
    for key, value in dvars.items():
        below = value.toposort(gate=lambda u: bool(u.ops_below & mask)) if value.ops_below & mask else {}
        leads_to[key] = [u for u in below if u in dvars]
    for key in dvars:
        reached: set[UOp] = set()
        pending = list(leads_to[key])
        while pending:
            u = pending.pop()
            if u not in reached:
                reached.add(u)
                pending.extend(leads_to[u])
        if not leads_to[key] or key in reached:
            final.add(key)
    return final
