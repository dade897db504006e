"""Put the page together: one HTML file with its styles, scripts and data, which asks no network for anything.

No text of a dump is in the HTML itself: all are in the packed data, and the scripts put them on the page as text.
The page's policy lets the browser run the scripts named here, by their hashes, and nothing else, and load nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from importlib.resources import files
from typing import Any

from .columns import pack

_ASSETS = files(__package__) / "assets"
_STYLES = ("vendor/uPlot.min.css", "page.css")
#: In the order in which they run: each uses what those before it define.
_SCRIPTS = (
    "vendor/uPlot.iife.min.js", "columns.js", "numbers.js", "elements.js", "run.js", "rows.js", "tree.js", "detail.js",
    "charts.js", "findings.js", "coverage.js", "main.js",
)  # fmt: skip


def html_of(document: Any) -> str:
    styles, scripts = ([_read(name) for name in names] for names in (_STYLES, _SCRIPTS))
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; "
        "base-uri 'none'; form-action 'none'"
    )
    data = base64.b64encode(gzip.compress(pack(document), 6, mtime=0)).decode("ascii")
    page = _read("page.html")
    for place, text in (
        ("<!-- policy -->", f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        ("<!-- styles -->", "\n".join(f"<style>{style}</style>" for style in styles)),
        ("<!-- data -->", f'<script type="application/gzip" id="data">{data}</script>'),
        ("<!-- scripts -->", "\n".join(f"<script>{script}</script>" for script in scripts)),
    ):
        before, found, after = page.partition(place)
        assert found, f"{place} is not in page.html"
        page = before + text + after
    return page


def _read(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def _hashes(texts: list[str]) -> str:
    digests = (hashlib.sha256(text.encode("utf-8")).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests)
