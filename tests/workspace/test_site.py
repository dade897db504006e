"""The site as it is read from a folder: `hatch run docs:build` makes it, and ends where a link is broken."""

from __future__ import annotations

import pytest
from browser import LONG, opened_browser
from members import ROOT

SITE = ROOT / "site"


@pytest.mark.slow
@pytest.mark.skipif(not SITE.is_dir(), reason="`hatch run docs:build` has not made the site")
@pytest.mark.parametrize("words", ["recover", "断电"])
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
