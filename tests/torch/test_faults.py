"""A fault of Probe's own never reaches the user's run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from contract_faults import *  # noqa: F403  the tests that both frameworks have
from dumping import dumped, opened, records, report
from hostile import Raises


class Operand:
    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise Raises


@pytest.mark.parametrize("times", [1, 5])
def test_an_operand_whose_exception_cannot_say_what_it_is(times: int, tmp_path: Path) -> None:
    with dumped(tmp_path, torch.nn.Sequential(), level="mix", max_faults=3):
        for _ in range(times):
            with pytest.raises(Raises):
                torch.add(torch.ones(2), Operand())  # type: ignore[call-overload]
    assert records(tmp_path / "dump")["Torch.add.0.forward"]["raised"].startswith("Raises: ")
    assert not report(tmp_path / "dump")["faults"]


class Fails(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("of the run")


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("is_tracked", [True, False])
def test_an_error_of_the_run_is_shown_with_none_of_ours(level: str, is_tracked: bool, tmp_path: Path) -> None:
    module = Fails()
    with opened(tmp_path, level=level) as debugger:
        debugger.start(torch.nn.Sequential(module if is_tracked else torch.nn.Identity()))
        with pytest.raises(ValueError, match="of the run") as caught:
            module(torch.ones(2))
        with pytest.raises(RuntimeError) as of_function:
            torch.ones(2) @ torch.ones(3)
    for error in (caught.value, of_function.value):
        assert error.__context__ is None
        assert error.__cause__ is None
