"""Print docs/env_vars.md: every switch that tinygrad/settings.py declares, and whether anything reads it yet.

In:   tinygrad/settings.py and the other sources of the package.
Out:  the page, on standard output: ``python docs/make_env_vars.py > docs/env_vars.md``.
Why:  a page that is made from the declarations lists all of them.
"""

import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "tinygrad"
SETTINGS = PACKAGE / "settings.py"

# Defaults that depend on the machine or on another switch.
DEFAULTS = {
    "DEV": "automatic",
    "NUM_CPU_THREADS": "number of cores",
    "PARALLEL": "number of cores; 0 with VIZ",
    "PMA": "1 with VIZ=2",
    "PMC": "1 with VIZ=2",
    "PROFILE": "1 with VIZ",
    "SQTT": "1 with VIZ=2",
    "TRACK_MATCH_STATS": "2 with VIZ",
}
HEAD = """\
# Environment variables

<!-- Made by docs/make_env_vars.py from tinygrad/settings.py: change that and run it again. -->

The switches of the first tables are *context variables*: the environment sets their first value, and a program changes
them for a while with `Context`, as a block or as a decorator. A value belongs to the thread that sets it.

```python
from tinygrad import Context, Tensor

with Context(DEBUG=0, TRAINING=1):
    print(Tensor.ones(4).dropout(0.5).shape)
```

`DEV` takes `[INTERFACE[:INDICES]+]DEVICE[:RENDERER[:ARCH]]`, several of them separated by `;`: `DEV=CPU`,
`DEV=CPU:LLVM`, `DEV=PYTHON`.

Names marked with \\* are accepted, because programs set them, but nothing reads them yet.
"""


def words_in_use() -> set[str]:
    """Return every word of the package's sources, the settings left out."""
    files = (path for path in PACKAGE.rglob("*.py") if path != SETTINGS)
    return {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}


def sections() -> dict[str, list[tuple[str, str]]]:
    """Return heading -> (Python name, environment name) of the context variables, in the order of the settings."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading = ""
    pattern = r'^# (.+)$|^(\w+) = (?:Context|DTypeName|Device)Var\(\s*"(\w+)"'
    for comment, python_name, name in re.findall(pattern, SETTINGS.read_text(encoding="utf-8"), re.MULTILINE):
        if comment:
            heading = comment
        else:
            found.setdefault(heading, []).append((python_name, name))
    return found


def row(name: str, default: object, meaning: str, used: bool) -> str:
    """Return one line of a table."""
    shown = DEFAULTS.get(name, "" if default == "" else str(default))
    text = (meaning[:1].upper() + meaning[1:]).replace("|", "/")
    mark = "" if used else " \\*"
    return f"| `{name}`{mark} | {shown} | {text} |"


def page() -> str:
    """Return the whole page."""
    from tinygrad.settings import ENVIRONMENT, ContextVar

    used = words_in_use()
    table = ["", "| name | default | meaning |", "| --- | --- | --- |"]
    lines = [HEAD.rstrip()]
    for heading, variables in sections().items():
        lines += ["", f"## {heading}", *table]
        for python_name, name in variables:
            variable = ContextVar.registry[name]
            lines.append(row(name, variable.default, variable.doc, python_name in used))
    lines += ["", "## Read once from the environment", *table]
    lines += [row(name, default, meaning, name in used) for name, (default, meaning) in ENVIRONMENT.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(PACKAGE.parent))
    sys.stdout.write(page())
