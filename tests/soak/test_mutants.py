"""Files that are wrong in many ways, read by every command and by the library: errors of our own and nothing else.

A tenth of it in CI; all of it, over 3,000 mutants, with PROBE_SOAK=1. tests/kernel/test_fuzz.py does the same with the
files of kernel dumps, and tests/format/test_fuzz.py with whole dumps of random words.
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
from probe_kernel import BACKENDS, load_settings
from probe_runtime.config import load, resolve

CORPUS = Path(__file__).parents[1] / "format" / "corpus"
#: (dump, how many mutants of it): documents, journals and tensor files of both frameworks.
DUMPS = [
    ("probe/complete", 750),
    ("probe/torn", 750),
    ("mindspore/mix_statistics", 250),
    ("mindspore/misc_debug", 250),
]
SHARE = 1 if os.environ.get("PROBE_SOAK") else 0.1

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
CONTROL = {
    "common_dump_settings": {
        "dump_mode": 0, "path": "/d", "net_name": "Net", "iteration": "0|2", "saved_data": "tensor", "input_output": 0,
        "kernels": [], "support_device": [0],
    },
    "e2e_dump_settings": {"enable": True, "trans_flag": True},
}  # fmt: skip


def wrong_texts(document: dict[str, Any], seed: int) -> Iterator[bytes]:
    """The document with a value that is wrong, a place that is gone, or bytes that are: without an end."""
    draw, whole = random.Random(seed), json.dumps(document, indent=1).encode()
    places = list(mutants.places(document))
    while True:
        if draw.random() < 0.4:
            at, size = draw.randrange(len(whole)), draw.randrange(4)
            yield whole[:at] + draw.randbytes(size) + whole[at + draw.randrange(4) :]
        else:
            wrong = draw.choice((mutants.GONE, *mutants.WRONG))
            yield json.dumps(mutants.changed(document, draw.choice(places), wrong)).encode()


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_no_wrong_configuration_raises_anything_else(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"config{suffix}"
    for text in islice(wrong_texts(CONFIG, 21), int(500 * SHARE)):
        file.write_bytes(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                resolve(load(file))
            except ProbeError as error:
                assert str(error).isprintable() or "\n" in str(error), (text, error)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("backend", ["cpu", "ascend-o2"])
def test_no_wrong_control_file_raises_anything_else(backend: str, tmp_path: Path) -> None:
    assert backend in BACKENDS
    file = tmp_path / "data_dump.json"
    for text in islice(wrong_texts(CONTROL, 22), int(500 * SHARE)):
        file.write_bytes(text)
        try:
            load_settings(file, backend, {})
        except ProbeError as error:
            assert str(file) in str(error), (text, error)
