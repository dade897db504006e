"""What a failing call says: which file, and why."""

from __future__ import annotations

import errno

import pytest
from probe_format.safe_files import naming


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (OSError(errno.ENOSPC, "No space left"), "[Errno 28] No space left: '/a/b'"),
        (OSError(errno.EIO, "Input/output error", "b"), "[Errno 5] Input/output error: '/a/b'"),
        (OSError(errno.EIO, "Input/output error", "/x/y"), "[Errno 5] Input/output error: '/x/y'"),
        (OSError("Error closing file"), "[Errno 5] Error closing file: '/a/b'"),  # as pyarrow raises it
        (OSError(), "[Errno 5] : '/a/b'"),
    ],
)
def test_an_error_names_the_file_and_the_reason(error: OSError, shown: str) -> None:
    with pytest.raises(OSError) as caught, naming("/a/b"):
        raise error
    assert str(caught.value) == shown
