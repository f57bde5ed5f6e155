"""Who takes part: each peer with its environment, its adapter and the functions of the workloads that it runs.

In:   a name from the command line.
Out:  its ``Peer``.
Why:  workloads need not know which libraries there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True)
class Peer:
    """One column of the table.

    Attributes:
        name: On the command line and in the table.
        library: Whose functions of a workload it runs.
        adapter: Module of ``bench.peers`` with a class ``Adapter``.
        environment: Folder below ``bench/.envs``; peers with the same requirements share it. Empty: this interpreter.
        requirements: What pip installs there.
        opaque: A black box: nothing of what it prints is shown, since that may quote its source.
        threads: Threads and processors; 0 for as many as everybody.
    """

    name: str
    library: str
    adapter: str
    environment: str = ""
    requirements: tuple[str, ...] = ()
    opaque: bool = True
    threads: int = 0


OURS: Final = Peer("ours", "tinygrad", "tinygrad_jit", opaque=False)
# This project on one processor: what it is held against shows what the others bring.
ALONE: Final = replace(OURS, name="alone", threads=1)
_TORCH: Final = ("torch==2.13.0", "numpy>=1.26")
PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer("torch", "torch", "torch_eager", "torch", _TORCH),
        Peer("compile", "torch", "torch_compiled", "torch", _TORCH),
        Peer("numpy", "numpy", "numpy_plain", "numpy", ("numpy>=1.26",)),
        Peer("jax", "jax", "jax_jit", "jax", ("jax[cpu]", "numpy>=1.26")),
        Peer("tinygrad", "tinygrad", "tinygrad_jit", "tinygrad", ("tinygrad", "numpy>=1.26")),
        ALONE,
    )
}


def choose(names: str) -> list[Peer]:
    """Return the peers of a comma list.

    Raises:
        ValueError: A name is not known.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in PEERS]
    if unknown:
        raise ValueError(f"unknown peers {', '.join(unknown)}; there are {', '.join(PEERS)}")
    return [PEERS[name] for name in dict.fromkeys(wanted)]
