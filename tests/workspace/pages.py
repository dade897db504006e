"""Code blocks of the Markdown files of the workspace."""

from __future__ import annotations

import re
from pathlib import Path

from members import ROOT

PLACES = ("", "docs/", "packages/*/", "packages/*/docs/", "packages/*/src/*/spec/", "bench/")
PAGES = sorted(page for place in PLACES for page in ROOT.glob(f"{place}*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks in one language, in order. An indented block does not count."""
    return [text for _, text in _fenced(page, language)]


def runnable(page: Path, language: str) -> list[str]:
    """Those of `blocks` that are not marked ``no-run``: they need something that is not everywhere."""
    return [text for mark, text in _fenced(page, language) if mark != "no-run"]


def _fenced(page: Path, language: str) -> list[tuple[str, str]]:
    fence = r"^```([\w-]*) *([^\n]*)\n(.*?)^```$"
    found = re.findall(fence, page.read_text(encoding="utf-8"), re.M | re.S)
    return [(mark.strip(), text) for name, mark, text in found if name == language]
