"""The walk-through for MindSpore in docs/: what it tells a reader to do is done, and what it shows comes out."""

from pathlib import Path

import pytest
from walkthroughs import ROOT, run_page

pytestmark = pytest.mark.once


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quick-start-mindspore"])
def test_the_page_is_right(name: str, tmp_path: Path) -> None:
    run_page(ROOT / "docs" / f"{name}.md", tmp_path)
