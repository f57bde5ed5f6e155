"""docs/api is made from the docstrings: it is current, and everything public is there with an example."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from test.helpers_docs import load_script
from tinygrad import Tensor, nn

ROOT = Path(__file__).parents[2]
ATTRIBUTES = {"uop", "grad", "is_param"}  # in the docstring of Tensor itself


make_api = load_script("make_api")


PAGES = make_api.pages()


def documented(owner: Any) -> list[str]:
    return [name for page in make_api.PAGES if page.owner is owner for name in page.names.split()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path], "run: python docs/make_api.py --write"


def test_no_other_pages() -> None:
    assert {*make_api.FOLDER.iterdir()} == {*PAGES}


def test_every_tensor_method_is_on_one_page() -> None:
    public = {name for name in dir(Tensor) if not name.startswith("_") and hasattr(Tensor, name)} - ATTRIBUTES
    names = [*documented(Tensor), *make_api.other_names()]
    assert len(names) == len({*names})
    assert public - {*names} == set(), "add them to a page of docs/make_api.py"


@pytest.mark.parametrize("module", [nn, nn.optim, nn.state, nn.datasets], ids=lambda module: module.__name__)
def test_every_function_of_a_module_is_on_its_page(module: ModuleType) -> None:
    public = {name for name in module.__all__ if callable(getattr(module, name))} - {*make_api.SAME}
    assert {*documented(module)} == public


EVERYTHING = [(page, *member) for page in make_api.PAGES for member in make_api.members(page)]


@pytest.mark.parametrize(
    ("name", "function"),
    [(f"{e[0].shown}{e[1]}", e[2]) for e in EVERYTHING],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_docstring(name: str, function: Any) -> None:
    parts = make_api.sections(inspect.getdoc(function) or "")
    assert parts[""], f"{name} says nothing"
    assert ">>> " in parts.get("Example", ""), f"{name} has no example"
    told = [key.strip("*") for key, _ in make_api.items(parts.get("Args", ""))]
    takes = [p for p in inspect.signature(function).parameters if p not in {"self", "cls"}]
    if told and not inspect.isclass(function):
        assert told == takes, f"{name}: the arguments told are {told}, those taken are {takes}"
