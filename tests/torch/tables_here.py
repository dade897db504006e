"""Compute numbers by the kernel of CUDA devices: on the device where there is one, else by Triton's interpreter."""

from __future__ import annotations

from typing import Any

import torch
from probe_format.tensors import Stats
from probe_torch.tensors import device_table
from probe_torch.tensors.device_table import DeviceTable
from torch import Tensor

CUDA = torch.cuda.is_available()


class OnThisMachine(DeviceTable[Any]):
    """Run the launches of a table one after the other, by the interpreter, on tensors of the CPU."""

    def _of_stream(self, device: torch.device) -> Any:
        if not self._streams:
            rows = torch.full((device_table.ROWS, device_table.WIDTH), -7, dtype=torch.int64)
            self._streams[0, 0] = device_table.StreamRows(0, None, rows)
        return self._streams[0, 0]

    def _send(self, here: Any) -> None:
        self._sent.append((Done, here.rows[: here.used].clone(), here.waiting))
        here.used, here.waiting = 0, []


class Done:
    query = staticmethod(lambda: True)
    synchronize = staticmethod(lambda: None)


def numbers(*tensors: Tensor, zero_count: bool = True, sketch: bool = False) -> list[Stats]:
    table = DeviceTable[None](zero_count, sketch) if CUDA else OnThisMachine(zero_count, sketch)
    for n, t in enumerate(tensors):
        assert table.add(n, t.cuda() if CUDA else t, None)
    assert table.waiting
    found = {number: stats for number, _, stats in table.fetch()}
    assert not table.waiting
    return [found[n] for n in range(len(tensors))]
