"""Make the helpers beside the tests importable. No saver outlives its test."""

from collections.abc import Iterator

import pytest
from importable import make_importable

make_importable(__file__)


@pytest.fixture(autouse=True)
def _no_saver_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from probe_format.errors import ConfigError
    from probe_save import configure
    from probe_save.current import VARIABLE

    for name in (VARIABLE, "RANK", "RANK_ID"):
        monkeypatch.delenv(name, raising=False)
    yield
    with pytest.raises(ConfigError):
        configure(task="none of them")  # closes the saver before it, and leaves none
