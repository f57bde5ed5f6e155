"""One short text that changes whenever the package's own code does.

In:   the package's files.
Out:  a digest of their paths, sizes and times of change.
Why:  caches on disk hold what the compiler made; another version of the compiler must not find it.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def source_fingerprint() -> str:
    """Return a digest of every Python file of the package that schedules, compiles or describes kernels."""
    root = Path(__file__).parent
    h = hashlib.sha256()
    for folder in ("uop", "schedule", "codegen", "renderer", "runtime", "mixin", "."):
        pattern = "*.py" if folder == "." else "**/*.py"
        for path in sorted((root / folder).glob(pattern)):
            stat = path.stat()
            h.update(f"{path.relative_to(root)}:{stat.st_size}:{stat.st_mtime_ns}|".encode())
    return h.hexdigest()[:16]
