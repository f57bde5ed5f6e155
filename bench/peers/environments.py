"""The environment of a peer: a virtual environment below ``bench/.envs``, made when it is first asked for.

In:   a peer, or a path given with ``--python NAME=PATH``.
Out:  its Python interpreter.
Why:  the libraries disagree about versions of their dependencies.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.peers import Peer

ENVIRONMENTS: Final = Path(__file__).resolve().parents[1] / ".envs"


class PeerUnavailableError(Exception):
    """A peer cannot be installed here."""


def python_of(peer: Peer, given: dict[str, str] | None = None) -> Path:
    """Return the interpreter of a peer; makes its environment if it is not there or has other requirements.

    Args:
        peer: The peer.
        given: Interpreters to use instead: name of a peer -> path.

    Raises:
        PeerUnavailableError: It cannot be made; the message has the last line that pip printed.
    """
    if given and peer.name in given:
        return Path(given[peer.name])
    if not peer.environment:
        return Path(sys.executable)
    folder = ENVIRONMENTS / peer.environment
    python, marker = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join(peer.requirements) + "\n"
    if marker.exists() and marker.read_text(encoding="utf-8") == wanted:
        return python
    print(f"making {folder} with {', '.join(peer.requirements)} ...", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], peer)
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements], peer)
    marker.write_text(wanted, encoding="utf-8")
    return python


def _run(command: list[str], peer: Peer) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise PeerUnavailableError(f"{peer.name}: {' '.join(last) or f'exit status {done.returncode}'}")
