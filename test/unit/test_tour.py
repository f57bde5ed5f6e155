"""docs/developer/tour.md shows what the code does today, and docs/developer/layout.md names every file."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEVELOPER = ROOT / "docs" / "developer"


def test_output_on_the_page_is_that_of_the_code() -> None:
    maker = DEVELOPER / "make_tour.py"
    done = subprocess.run([sys.executable, maker], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    page = (DEVELOPER / "tour.md").read_text(encoding="utf-8")
    assert done.stdout == page, "read the difference, then run: python docs/developer/make_tour.py --write"


def test_every_block_of_the_tour_prints_something_or_only_defines() -> None:
    page = (DEVELOPER / "tour.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^```text$", page, re.MULTILINE)) >= 10
    assert "```text\n```" not in page


def test_layout_names_every_file() -> None:
    page = (DEVELOPER / "layout.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(tinygrad/[\w/.]+)`", page, re.MULTILINE))
    present = {str(path.relative_to(ROOT)) for path in (ROOT / "tinygrad").rglob("*.py")}
    assert listed == present, "run: python docs/developer/make_layout.py --write"


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "test").rglob("*.md")):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
