"""docs/architecture.md names what is there: every path exists, and every name is defined in the file beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from members import MEMBERS, ROOT, source
from test_public_api import offered

PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`(probe_[a-z]+/[\w./]+)`", TEXT)))
# | question | `file`: `name` ... |
ANSWERS = re.findall(r"`(probe_[a-z]+/[\w./]+\.py)`: `(\w+)`", TEXT)


def place(path: str) -> Path:
    package, _, rest = path.partition("/")
    return source(package) / rest


@pytest.mark.parametrize("path", PATHS)
def test_each_path_is_there(path: str) -> None:
    assert place(path).exists()


@pytest.mark.parametrize(("path", "name"), ANSWERS)
def test_each_answer_is_where_the_page_says(path: str, name: str) -> None:
    assert name in offered(place(path))


def test_each_question_has_an_answer_that_is_checked() -> None:
    """Also one that begins with another word than "Where", and one beside a file without a name in it."""
    rows = re.findall(r"^\| ([^|]+\?) *\| (.*) \|$", TEXT, re.M)
    assert len(rows) >= 10
    assert not [
        question for question, answer in rows if not re.search(r"`probe_[a-z]+/[\w./]+\.py`: `\w+`", answer)
    ]
    loose = [a for _, answer in rows for a in re.findall(r"`(probe_[a-z]+/[\w./]+\.py)`(?!: `)", answer)]
    assert not loose, "a file of code comes with the name to look for"


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_every_room_is_on_the_page(package: str) -> None:
    rooms = {p.parent.name for p in source(package).glob("*/__init__.py")}
    assert not [room for room in rooms if f"`{package}/{room}`" not in TEXT]
