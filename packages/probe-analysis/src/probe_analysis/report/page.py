"""Put the page together: one HTML file with its styles, scripts and data, which asks no network for anything.

No text of a dump is in the HTML itself: all are in the packed data, and the scripts put them on the page as text.
The page's policy lets the browser run the scripts named here, by their hashes, and nothing else, and load nothing.

The data is a document with long columns of numbers, which a browser turns into typed arrays without parsing: four bytes
with the length of the JSON text, little-endian; the JSON text, ended with blanks; the columns, each beginning at a
multiple of eight bytes. Where the document has a column, the JSON has ``{"column": [type, begin, length]}``; ``begin``
counts from the end of the JSON text. assets/columns.js reads it.
"""

import base64
import gzip
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.jsonio import dumps

Column = npt.NDArray[Any]

_WHOLE = ("u1", "i1", "u2", "i2", "u4", "i4")


def whole(values: Sequence[int]) -> Column:
    """Return whole numbers as a column of the narrowest type that has them all; at most 32 bits."""
    column = np.asarray(values, np.int64)
    least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    kinds = (kind for kind in _WHOLE if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max)
    return column.astype(next(kinds))


def numbers(values: Sequence[float]) -> Column:
    """Return numbers as a column: of float32 where it can hold each of them exactly, else of float64."""
    column = np.asarray(values, np.float64)
    with np.errstate(over="ignore"):
        narrow = column.astype(np.float32)
    exact = np.array_equal(narrow.astype(np.float64), column, equal_nan=True)
    return narrow if exact else column


def pack(document: Any) -> bytes:
    """Return a document of dicts, lists, texts, numbers and columns as bytes."""
    parts: list[bytes] = []
    begin = 0

    def plain(node: Any) -> Any:
        nonlocal begin
        if isinstance(node, np.ndarray):
            raw = node.astype(node.dtype.newbyteorder("<")).tobytes()
            entry = {"column": [f"{node.dtype.kind}{node.dtype.itemsize}", begin, len(node)]}
            parts.append(raw + bytes(-len(raw) % 8))
            begin += len(parts[-1])
            return entry
        if isinstance(node, dict):
            return {key: plain(value) for key, value in node.items()}
        texts = bool(node) and isinstance(node, list | tuple) and isinstance(node[0], str)
        if isinstance(node, list | tuple) and not texts:  # which hold no columns
            return [plain(value) for value in node]
        return node

    text = dumps(plain(document))
    text += b" " * (-(len(text) + 4) % 8)
    return b"".join((len(text).to_bytes(4, "little"), text, *parts))


class Numbering(dict[Any, int]):
    """Give each thing a number, from 0, in the order in which they are first asked for."""

    def __missing__(self, thing: Any) -> int:
        self[thing] = number = len(self)
        return number


_ASSETS = files(__package__) / "assets"
_STYLES = ("vendor/uPlot.min.css", "page.css")
#: In the order in which they run: each uses what those before it define.
_SCRIPTS = (
    "vendor/uPlot.iife.min.js", "columns.js", "numbers.js", "elements.js", "run.js", "rows.js", "tree.js", "detail.js",
    "charts.js", "watched.js", "findings.js", "coverage.js", "main.js",
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
