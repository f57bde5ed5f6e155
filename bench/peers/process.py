"""The parent's side of a peer's process.

In:   requests as dicts.
Out:  answers as dicts; a process that died or does not answer in time is an answer with a "failure".
Why:  a library that crashes or hangs must not take the measurement with it, and threads of one must not slow another.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import IO, Any, Final

from bench.peers import Peer

_WORKER: Final = Path(__file__).with_name("worker.py")
_ROOT: Final = _WORKER.parents[2]
_THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUM_CPU_THREADS",
    "CPU_COUNT",
)  # fmt: skip


def worker_environment(peer: Peer, threads: int, scratch: Path) -> dict[str, str]:
    """Return the environment variables of a peer's process: threads, empty caches of its own, and its path."""
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")}
    variables |= dict.fromkeys(_THREAD_VARIABLES, str(threads))
    cache = scratch / f"cache-{peer.name}"
    cache.mkdir(exist_ok=True)
    variables |= {"XDG_CACHE_HOME": str(cache), "CACHEDB": str(cache / "cache.db"), "PYTHONDONTWRITEBYTECODE": "1"}
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "inductor")
    if not peer.environment:
        del variables["PYTHONDONTWRITEBYTECODE"]
        variables["PYTHONPATH"] = str(_ROOT)
    return variables


class PeerProcess:
    """A running peer; starts again after it died.

    Args:
        peer: The peer.
        python: Its interpreter.
        threads: Threads and processors.
        scratch: Folder for its caches.
        extra: Environment variables.
        first_processor: Number of the first one, of those that this process may use.

    Attributes:
        about: What the peer says that it is, or why it does not run.
    """

    def __init__(
        self, peer: Peer, python: Path, threads: int, scratch: Path, extra: dict[str, str] | None = None,
        first_processor: int = 0,
    ) -> None:  # fmt: skip
        self.extra, self.first_processor = extra or {}, first_processor
        self.peer, self.python, self.threads, self.scratch = peer, python, threads, scratch
        self.process: subprocess.Popen[bytes] | None = None
        self.about = "not started"

    def _start(self) -> dict[str, Any] | None:
        """Start the process if it does not run; returns a failure, or None."""
        if self.process is not None and self.process.poll() is None:
            return None
        self.stop()
        self.process = subprocess.Popen(
            [str(self.python), str(_WORKER), self.peer.name, str(self.threads), str(self.first_processor)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            # A traceback of a black box would quote its source.
            stderr=subprocess.DEVNULL if self.peer.opaque else None,
            env=worker_environment(self.peer, self.threads, self.scratch) | self.extra, cwd=self.scratch,
        )  # fmt: skip
        answer = self._exchange({"do": "about"}, timeout=120)
        self.about = answer.get("about") or answer["failure"]
        return answer if "failure" in answer else None

    def ask(self, timeout: float = 300, **request: Any) -> dict[str, Any]:
        """Return the answer to a request."""
        return self._start() or self._exchange(request, timeout)

    def _exchange(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        process = self.process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return {"failure": f"the process ended with status {process.wait()}"}
        line = _read_line(process.stdout, timeout)
        if line is None:
            self.stop()
            return {"failure": f"no answer to {request['do']!r} within {timeout:g} s"}
        if not line:
            return {"failure": f"the process ended with status {process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    stream.close()
            self.process = None


def _read_line(stream: IO[bytes], timeout: float) -> bytes | None:
    """Return the next line; empty at the end of the stream, None if it does not come in time."""
    found, end = b"", time.monotonic() + timeout
    descriptor = stream.fileno()
    while not found.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return None
        part = os.read(descriptor, 1 << 16)
        if not part:
            return b""
        found += part
    return found
