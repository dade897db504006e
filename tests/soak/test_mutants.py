"""Files that are wrong in many ways, read by every command and by the library: errors of our own and nothing else.

A twentieth of it in CI; all of it, over 3,000 mutants, with PROBE_SOAK=1. tests/kernel/test_fuzz.py does the same with
the files of kernel dumps, and tests/format/test_fuzz.py with whole dumps of random words.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import mutants
import pytest
from probe_format.errors import ProbeError
from probe_runtime.config import load, resolve

CORPUS = Path(__file__).parents[1] / "format" / "corpus"
#: (dump, how many mutants of it): documents, journals and tensor files of both frameworks.
DUMPS = [
    ("probe/complete", 750),
    ("probe/torn", 750),
    ("mindspore/mix_statistics", 250),
    ("mindspore/misc_debug", 250),
]
SHARE = 1 if os.environ.get("PROBE_SOAK") else 0.05

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("dump", "most"), DUMPS, ids=[name for name, _ in DUMPS])
def test_no_damaged_dump_ends_a_command_with_a_traceback(dump: str, most: int, tmp_path: Path) -> None:
    good = tmp_path / "good"
    shutil.copytree(CORPUS / dump, good)
    wrong = islice(mutants.mutants(good, seed=20), int(most * SHARE))
    found = [fault for what, change in wrong for fault in mutants.faults(good, tmp_path, what, change)]
    assert found == []


CONFIG = {
    "task": "statistics", "level": "mix", "dump_path": "./dump", "rank": [0, "4-6"], "step": [1, "2-3"],
    "statistics": {"scope": [], "list": ["linear"], "data_mode": ["forward"], "summary_mode": "md5"},
}  # fmt: skip
YAML = b"""\
base: &base {list: [relu], data_mode: [all]}
step: [1, "4-6", 0x10, 1_000]
rank: !!seq [0]
dump_path: "./here"  # a comment
statistics:
  <<: *base
  summary_mode: |
    md5
"""


def wrong_texts(document: dict[str, Any], seed: int, text: bytes = b"") -> Iterator[bytes]:
    """The document with a value that is wrong, a place that is gone, or bytes (of the text): without an end."""
    draw, whole = random.Random(seed), text or json.dumps(document, indent=1).encode()
    places = list(mutants.places(document))
    while True:
        if draw.random() < 0.4:
            at, size = draw.randrange(len(whole)), draw.randrange(4)
            yield whole[:at] + draw.randbytes(size) + whole[at + draw.randrange(4) :]
        else:
            wrong = draw.choice((mutants.GONE, *mutants.WRONG))
            yield json.dumps(mutants.changed(document, draw.choice(places), wrong)).encode()


@pytest.mark.parametrize(("suffix", "whole"), [(".json", b""), (".yaml", YAML)])
def test_no_wrong_configuration_raises_anything_else(suffix: str, whole: bytes, tmp_path: Path) -> None:
    file = tmp_path / f"config{suffix}"
    for text in islice(wrong_texts(CONFIG, 21, whole), int(500 * SHARE)):
        file.write_bytes(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                assert all(len(told) <= 1000 for told in resolve(load(file)).warnings)
            except ProbeError as error:
                assert str(error).isprintable() or "\n" in str(error), (text, error)
                assert len(str(error)) < 60_000
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
