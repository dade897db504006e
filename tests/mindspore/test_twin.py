"""The dumps that probe-analysis is tested with are still what MindSpore and Probe write."""

from __future__ import annotations

from pathlib import Path

import probe_format
import pytest
from mindspore_launching import FORKS
from probe_mindspore.hooks import autograd

pytestmark = pytest.mark.skipif(
    not autograd.GRAPH,
    reason="the twin is 2.10's: 2.7 records whole gradients of inputs, no shares (README, Limits)",
)
TWINS = Path(__file__).parents[1] / "analysis" / "twins"


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_the_committed_twin_is_what_is_written_today(tmp_path: Path, level: str) -> None:
    FORKS.run(str(TWINS / "mindspore_twin.py"), str(tmp_path), level)
    kept, now = (probe_format.open(p).ranks[0].records for p in (TWINS / f"mindspore_{level}", tmp_path))
    # Which functions a cell calls is another matter in each version of MindSpore.
    names = [name for name in kept.names if name.startswith("Cell.")]
    assert names == [name for name in now.names if name.startswith("Cell.")]
    assert len(names) > 25
    for name in names:
        for one, two in zip(kept[name].tensors, now[name].tensors, strict=True):
            assert (one.slot, one.dtype, one.shape) == (two.slot, two.dtype, two.shape)
            assert one.norm == pytest.approx(two.norm, rel=1e-4, abs=1e-9), one.name
