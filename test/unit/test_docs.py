"""Every Python block of README.md and docs/*.md runs, and the list of environment variables is complete."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tinygrad.settings import ENVIRONMENT, ContextVar

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

MARK = " \\*"


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """Return (line number, code) of each block that is marked as Python."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start(1)].count("\n") + 1, match.group(1)) for match in found]


def with_line_numbers(blocks: list[tuple[int, str]]) -> str:
    """Join the blocks of a page to one program whose line numbers are those of the page."""
    program = ""
    for line, code in blocks:
        program += "\n" * (line - 1 - program.count("\n")) + code
    return program


@pytest.mark.parametrize("page", [*filter(python_blocks, PAGES)], ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page: Path) -> None:
    program = with_line_numbers(python_blocks(page))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEBUG": "0"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{page.name}: {done.stderr}"
    shown = iter(done.stdout.splitlines())
    for promised in re.findall(r"^\s*print\(.*\)  # (.+)$", program, re.MULTILINE):
        assert promised in shown, f"{page.name}: nothing prints {promised!r} in its turn:\n{done.stdout}"


def test_quickstart_has_blocks() -> None:
    assert len(python_blocks(ROOT / "docs" / "quickstart.md")) >= 8


def test_page_of_environment_variables() -> None:
    known = {*ENVIRONMENT, *ContextVar.registry}
    environment = {name: value for name, value in os.environ.items() if name not in known}  # they change the defaults
    command = [sys.executable, "docs/make_env_vars.py"]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True)
    page = (ROOT / "docs" / "env_vars.md").read_text(encoding="utf-8")
    # The marks of unused names follow every change of the package, so they may lag behind; the rest may not.
    assert page.replace(MARK, "") == made.stdout.replace(MARK, ""), (
        "run: python docs/make_env_vars.py > docs/env_vars.md"
    )
    assert set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE)) >= {*ENVIRONMENT, "DEBUG", "DEV", "TRAINING", "TC"}
