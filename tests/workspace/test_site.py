"""The site as it is read from a folder: `hatch run docs:build` makes it, and ends where a link is broken."""

from __future__ import annotations

import re

import pytest
from browser import LONG, opened_browser
from members import ROOT

SITE = ROOT / "site"


@pytest.mark.slow
@pytest.mark.skipif(not SITE.is_dir(), reason="`hatch run docs:build` has not made the site")
@pytest.mark.parametrize("words", ["recover", "断电", "梯度", "日志"])
def test_its_search_finds_words_where_no_server_is(words: str) -> None:
    with opened_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(LONG)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((SITE / "docs" / "loss-is-nan.html").as_uri())
        page.fill("input.md-search__input", words)
        page.press("input.md-search__input", "Shift")
        page.wait_for_selector(".md-search-result__link", state="attached")
        assert all(url.startswith(("file:", "blob:", "data:")) for url in asked)


@pytest.mark.skipif(not SITE.is_dir(), reason="`hatch run docs:build` has not made the site")
@pytest.mark.parametrize("package", ["probe_torch", "probe_mindspore"])
def test_a_class_begins_with_what_makes_one(package: str) -> None:
    page = (SITE / "reference" / f"{package}.html").read_text(encoding="utf-8")
    page = page[page.index(f'id="{package}.PrecisionDebugger"') :]
    assert 0 < page.index("config_path") < page.index(f'id="{package}.PrecisionDebugger.')


def test_its_guide_is_in_the_navigation() -> None:
    pages = re.findall(r"^      - .*: (\S+)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    wanted = (
        "concepts.md",
        "config.md",
        "command-line.md",
        "plan.md",
        "run.md",
        "troubleshooting.md",
        "loss-is-nan.zh-CN.md",
    )
    assert [name for name in wanted if not any(page.endswith(f"/{name}") for page in pages)] == []
