"""docs/performance.md is what `python -m bench` made of its measurements, and nothing that was written by hand."""

from __future__ import annotations

import os
import subprocess
import sys

from members import ROOT


def test_the_page_is_made_of_the_measurements() -> None:
    code = "from bench import page; assert page.text_of(page.load()) == page.PAGE.read_text(), 'python -m bench --page'"
    sources = sorted(str(path) for path in (ROOT / "packages").glob("*/src"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
