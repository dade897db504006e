"""Open pages in a real Chromium, and hold that they are quiet: no error, nothing loaded, nothing printed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

#: Without a sandbox, as CI runs as root; without the connections that Chromium makes for itself.
OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--no-first-run",
]  # fmt: skip
LONG = 120_000  # milliseconds until a test that waits gives up


def chromium() -> str:
    """The path of Chromium. Without one the test is left out; where PROBE_CHROMIUM names it, as in CI, it fails."""
    asked = os.environ.get("PROBE_CHROMIUM")
    if asked:
        assert Path(asked).is_file(), f"PROBE_CHROMIUM is {asked}, which does not exist"
        return asked
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip(
            "no Chromium is installed (apt-get install chromium), and PROBE_CHROMIUM does not name one"
        )
    return found


@contextmanager
def opened_browser() -> Iterator[Any]:
    """A Chromium without a window."""
    binary = chromium()
    if os.environ.get("PROBE_CHROMIUM") is None:
        pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=OPTIONS, timeout=LONG)
        yield browser
        browser.close()


@contextmanager
def opened_page(browser: Any, path: Path) -> Iterator[Any]:
    """A page, when its data is shown. Raises AssertionError at the end if it said or loaded anything."""
    page = browser.new_page(viewport={"width": 1440, "height": 1400})
    page.set_default_timeout(LONG)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"{error} {error.stack}"))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    yield page
    page.close()
    assert said == []
    assert asked == [path.as_uri()]


def settled(page: Any) -> None:
    """Wait until the page has answered what was typed or scrolled, however long that takes on a busy machine.

    A timer that is set now and waits longer runs after the page's own (80 ms, for a search), and the second frame
    after it has been drawn since.
    """
    page.evaluate(
        "() => new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 100))"
    )
