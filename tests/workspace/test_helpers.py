"""Test folders put their helper modules on one import path (see their conftest.py): the names must not meet."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_no_two_folders_have_a_helper_of_one_name() -> None:
    helpers = [
        path.name
        for path in TESTS.glob("*/*.py")
        if path.name != "conftest.py" and not path.name.startswith("test_")
    ]
    assert {"zoo.py", "mindspore_zoo.py"} <= set(helpers)
    assert [name for name, times in Counter(helpers).items() if times > 1] == []
