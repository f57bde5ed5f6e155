"""Records of generated kernels, so that two revisions of this package can be compared.

In:   a kernel SINK, the PROGRAM that was made of it, and its renderer, while CAPTURE_PROCESS_REPLAY is on.
Out:  rows of the table ``process_replay`` in the cache database: all that another revision needs to generate the kernel
      again, and the source that this one generated. ``test/external/process_replay`` reads them.
Why:  a change that should not touch generated code can be proven not to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tinygrad.diskcache import diskcache_get, diskcache_put
from tinygrad.settings import CAPTURE_PROCESS_REPLAY, ContextVar

if TYPE_CHECKING:
    from tinygrad.renderer import Renderer
    from tinygrad.uop.ops import UOp

TABLE: Final = "process_replay"
# Switches that say what is printed, kept or run, not what is generated; DEV is replaced by the renderer's own target.
_NOT_RECORDED: Final = frozenset({
    "ALLOW_DEVICE_USAGE", "CACHELEVEL", "CAPTURE_PROCESS_REPLAY", "CAPTURING", "CCACHE", "DEBUG", "DEV", "GRAPH", "JIT",
    "JIT_BATCH_SIZE", "LRU", "NO_COLOR", "PARALLEL", "PROFILE", "SCACHE", "SPEC", "TRACEMETA", "TRACK_MATCH_STATS",
    "TRAINING", "VALIDATE_WITH_CPU", "VIZ",
})  # fmt: skip


def code_switches() -> dict[str, Any]:
    """Return the values of all context variables that a kernel's code may depend on."""
    return {key: var.value for key, var in ContextVar.registry.items() if key not in _NOT_RECORDED}


def record_kernel(ast: UOp, program: UOp, renderer: Renderer) -> None:
    """Keep a generated kernel if CAPTURE_PROCESS_REPLAY is on. The first record of a kernel stays."""
    if not CAPTURE_PROCESS_REPLAY:
        return
    sink, _, source, *_ = program.src
    switches = code_switches()
    renderer_name = f"{type(renderer).__module__}.{type(renderer).__qualname__}"
    key = f"{ast.key.hex()}-{renderer_name}-{renderer.target}-{sorted(switches.items())!r}"
    if diskcache_get(TABLE, key) is None:
        row = {
            "name": program.arg.name,
            "ast": ast,
            "options": sink.arg.applied_opts,
            "renderer": renderer_name,
            "target": renderer.target,
            "switches": switches,
            "source": source.arg,
        }
        diskcache_put(TABLE, key, row)


__all__ = ["TABLE", "code_switches", "record_kernel"]
