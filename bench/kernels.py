"""Show the kernels of one of our workloads: the steps that were applied to each, then the time of each.

In:   ``python -m bench.kernels "softmax 4096^2"``; DEBUG=4 shows the generated code too.
Out:  lines of DEBUG=3 while compiling, with nothing cached; then lines of DEBUG=2 of one warm run.
Why:  a slow workload is explained by its slowest kernel.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Print; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ["CACHEDB"] = f"{folder}/cache.db"
        from bench.inputs import Inputs
        from bench.peers.tinygrad_jit import Adapter
        from bench.workloads import WORKLOADS, find
        from tinygrad import Context
        from tinygrad.settings import DEBUG

        if not arguments:
            print(f"give the name of a workload: {', '.join(w.name for w in WORKLOADS)}", file=sys.stderr)
            return 2
        workload, adapter = find(arguments[0]), Adapter(2)
        dtype = workload.dtypes.get("tinygrad", "")
        inputs = [adapter.load(x, dtype if x.dtype.kind == "f" else "") for x in workload.inputs(Inputs())]
        with Context(JIT=0):  # a replay of the JIT is one native call
            run = adapter.prepare(workload.functions["tinygrad"], inputs, workload.make)
            with Context(DEBUG=max(3, DEBUG.get())):
                run()
            run()
            print("---- warm")
            with Context(DEBUG=2):
                run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
