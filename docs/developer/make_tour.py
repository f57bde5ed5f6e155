"""Run the Python blocks of tour.md and put what they print into the text blocks that follow them.

In:   docs/developer/tour.md.
Out:  the same page with fresh output, on standard output; ``--write`` changes the file.
Why:  a page about intermediate forms is only worth reading if it shows what the code does today. A test compares.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("tour.md")
ROOT = PAGE.parents[2]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def refreshed(page: str) -> str:
    """Return the page with the output of its blocks, which run one after the other in one namespace."""
    names: dict[str, object] = {"__name__": "tour"}

    def run(match: re.Match[str]) -> str:
        code, printed = match["code"], io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)  # the page is part of this repository
        text = "\n".join(line.rstrip() for line in printed.getvalue().splitlines()).strip("\n")
        return f"```python\n{code}```\n" + (f"\n```text\n{text}\n```\n" if text else "")

    return BLOCK.sub(run, page)


def main() -> None:
    """Print the fresh page, or write it."""
    # What the page shows must not depend on the machine or on the switches of whoever runs it.
    for name in ("BEAM", "DEBUG", "NOOPT", "VIZ", "JIT"):
        os.environ.pop(name, None)
    os.environ.update(DEV="CPU", NUM_CPU_THREADS="2", NO_COLOR="1")
    sys.path.insert(0, str(ROOT))
    page = refreshed(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page, encoding="utf-8")
    else:
        sys.stdout.write(page)


if __name__ == "__main__":
    main()
