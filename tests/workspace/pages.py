"""Code blocks of the Markdown files of the workspace."""

from __future__ import annotations

import re
from pathlib import Path

from members import ROOT

PLACES = ("", "packages/*/", "packages/*/docs/", "packages/*/src/*/spec/", "bench/")
PAGES = sorted(page for place in PLACES for page in ROOT.glob(f"{place}*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks in one language, in order. An indented block is none."""
    found = re.findall(r"^```([\w-]*)[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    return [text for name, text in found if name == language]
