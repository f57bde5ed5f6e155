"""How much work a call is, in seconds of this process: what else runs on the machine does not count."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any


def processor_seconds(run: Callable[[], Any]) -> float:
    """Return the processor time that a call takes in all threads of this process, collections of garbage left out."""
    collects = gc.isenabled()
    gc.disable()
    try:
        start = time.process_time()
        run()
        return time.process_time() - start
    finally:
        if collects:
            gc.enable()
