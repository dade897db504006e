"""A numpy array as JSON: what is written at once is what the reference says, key by key."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_format import jsonio
from probe_format.tensors import array_object
from probe_format.write import Coverage
from probe_runtime.describe import Placement, StepFiles, TensorOptions, array_json

ARRAYS = {
    "usual": np.linspace(-1, 3, 300, dtype=np.float32).reshape(20, 15),
    "wide": np.linspace(-1, 3, 300),
    "large": np.linspace(-1, 3, (1 << 18) + 3, dtype=np.float32),
    "zeros": np.zeros(3),
    "scalar": np.array(2.5),
    "vanishing": np.full(5, 1e-30, np.float32),
    "huge": np.full(5, 3e38, np.float32),
    "empty": np.empty((0, 2)),
    "infinite": np.array([1.0, np.inf, np.nan]),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "swapped": np.arange(3.0).astype(">f8"),
    "half": np.arange(3, dtype=np.float16),
    "whole": np.arange(3),
    "masked": np.ma.array([1.0, 2.0], mask=[False, True]),
}


@pytest.mark.parametrize(
    "extra", [{}, {"zero_count": True}, {"checksum": "md5"}, {"statistics": False}], ids=str
)
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_described_as_the_reference_says(
    tmp_path: Path, name: str, extra: dict[str, Any]
) -> None:
    array, coverage, told = ARRAYS[name], Coverage(), list[Any]()
    options = TensorOptions(tmp_path, **extra)
    files = StepFiles(options, coverage, told.append)
    expected = array_object(array, **extra)
    summaries: list[Any] = []

    def keep(*about: Any) -> None:
        summaries.append(about)

    for wanted in (False, True):
        place = Placement("r", "input", wanted, label="input_args")
        text = array_json(array, place, (0,), options, files, coverage, keep)
        found = jsonio.loads(text)
        assert ("data_name" in found) == (wanted and array.size > 0)
        if "data_name" in found:
            file = tmp_path / found.pop("data_name")
            assert np.load(file).tobytes() == np.asarray(array).tobytes()
            assert found.pop("data_crc32") == f"{zlib.crc32(file.read_bytes()):08x}"
        assert list(found) == list(expected) and found == jsonio.loads(jsonio.dumps(expected))
        at, path, numbers = summaries.pop()
        assert (at, path) == (place, (0,)) and numbers["dtype"] == expected["dtype"]
        assert {key: numbers.get(key) for key in expected if key in ("Max", "Norm")} == {
            key: expected[key] for key in expected if key in ("Max", "Norm")
        }
    assert coverage.counts["recorded"] == {"arrays": 2} and not told
