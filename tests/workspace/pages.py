"""The Markdown pages of the workspace."""

from __future__ import annotations

from members import ROOT

PLACES = ("", "docs/", "packages/*/", "packages/*/docs/", "packages/*/src/*/spec/", "bench/")
PAGES = sorted(page for place in PLACES for page in ROOT.glob(f"{place}*.md"))
