"""The walk-throughs in docs/: what a page tells a reader to do is done, and what it shows is what comes out.

The page on MindSpore alone is run in MindSpore's environment: tests/mindspore/test_walkthroughs.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from blocks import blocks_of
from forks import Forks
from members import ROOT
from walkthroughs import BLOCKS, matches, run_page

DOCS = ROOT / "docs"
PAGES = [
    "quick-start-torch",
    "loss-is-nan",
    "two-runs-differ",
    "a-thousand-ranks",
    "check",
    "gpu-to-npu",
    "from-msprobe",
    "plan",
    "command-line",
    "run",
    "inference",
    "catch-the-bad-step",
    "callbacks",
]
ELSEWHERE = {"quick-start-mindspore": "tests/mindspore/test_walkthroughs.py"}
#: Pages that explain, and have nothing to run.
UNRUN = {"architecture", "performance", "concepts", "troubleshooting"}
PYTHONS = {
    "mindspore": Path(os.environ.get("PROBE_MINDSPORE_PYTHON", ROOT / ".venv-mindspore/bin/python")),
    "msprobe": Path(os.environ.get("PROBE_MSPROBE_PYTHON", ROOT / ".venv-interop/bin/python")),
}
FORKS = Forks("torch")


def test_every_page_is_run_or_named_here() -> None:
    translated = {
        page.name.removesuffix(".zh-CN.md") for page in DOCS.glob("*.zh-CN.md")
    }  # test_chinese_readme.py
    written = {page.stem for page in DOCS.glob("*.md") if not page.stem.endswith(".zh-CN")}
    assert written == {*PAGES, *ELSEWHERE, *UNRUN} >= translated
    for page, test in ELSEWHERE.items():
        assert page in (ROOT / test).read_text()
    for name in UNRUN:
        assert "console" not in {block.language for block in blocks_of(DOCS / f"{name}.md")}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_right(name: str, tmp_path: Path) -> None:
    run_page(DOCS / f"{name}.md", tmp_path, PYTHONS, FORKS)


@pytest.mark.parametrize("name", [*PAGES, *ELSEWHERE])
def test_every_block_is_run_or_meant_as_text(name: str) -> None:
    blocks = blocks_of(DOCS / f"{name}.md")
    assert {block.language for block in blocks} <= BLOCKS
    for block in blocks:
        if block.language in ("python", "yaml", "json"):
            assert block.file, f"{name}: a block without a file name is run by nobody:\n{block.text}"
        if block.language == "console":
            assert block.text.startswith("$ "), block.text
            assert list(block.commands)
    assert sum(block.language == "console" for block in blocks) >= 3


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nb", True),
        ("", "", True),
        ("", "a\n", False),
        ("a\n", "a\nb\n", False),
        ("a\nb\n", "b\na\n", False),
        ("a\n...\nc\n", "a\nb\nb\nc\n", True),
        ("a\n...\n", "a\n", True),
        ("...\nc\n", "a\nd\n", False),
        ("norm ... of x\n", "norm 1.25e-07 of x\n", True),
        ("norm ... of x\n", "norm 1.25\n of x\n", False),
        ("1.0 * [2]\n", "1.0 * [2]\n", True),
        ("1.0\n", "100\n", False),
    ],
)
def test_what_a_page_shows_is_compared(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


PAGE = """
# A page

```python
# hello.py
print("hello", 1 / 3)
```

```console
$ python hello.py
hello 0.33...
$ test -f hello.py && echo there
there
```

<!-- exit: 3 -->

```console
$ exit 3
```
"""


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("hello 0.33...", "hello 0.25...", "but prints"),
        ("there\n```", "```", "but prints"),
        ("exit 3\n", "exit 2\n", "ended with 2"),
        ("<!-- exit: 3 -->\n", "", "ended with 3"),
        ("1 / 3)", "1 / 0)", "ZeroDivisionError"),
    ],
)
def test_a_page_that_is_wrong_fails(right: str, wrong: str, words: str, tmp_path: Path) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "folder"
    folder.mkdir()
    page.write_text(PAGE)
    run_page(page, folder)
    assert right in PAGE
    page.write_text(PAGE.replace(right, wrong))
    with pytest.raises((AssertionError, pytest.fail.Exception), match=words):
        run_page(page, folder)
