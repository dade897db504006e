"""Write small dumps, as files, for the tests of the page; what is in them is read back from the files, or the page."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

HOSTILE = "</script><img src=x onerror=window.hacked=1>"


def tensor(seed: float, **more: Any) -> dict[str, Any]:
    """A float32 tensor whose numbers follow from ``seed``, none of them round."""
    statistics = {
        "Max": math.exp(seed % 9) + seed,
        "Min": -math.pi * seed,
        "Mean": seed / 7,
        "Norm": 100 * math.sqrt(seed + 1e-3),
    }
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], **statistics, **more}


def model(
    step: int = 0, layers: int = 3, planted: int = -1
) -> tuple[dict[str, Any], dict[str, str | None], Any]:
    """Records, construct.json and stack.json of a step: each layer calls linear and relu, then everything backward.

    planted: the layer whose linear returns other numbers.
    """
    data: dict[str, Any] = {}
    parents: dict[str, str | None] = {}
    stack: dict[str, Any] = {}
    for way in ("forward", "backward"):
        for i in range(layers) if way == "forward" else reversed(range(layers)):
            module = f"Module.layers.{i}.Layer.{way}.0"
            parents[module] = None
            for place, api in enumerate(("linear", "relu")):
                seed = 0.3 * i + 0.1 * place + 0.01 * step + (0.05 if way == "backward" else 0)
                off = 0.5 if i == planted and api == "linear" and way == "forward" else 0.0
                name = f"Functional.{api}.{i}.{way}"
                parents[name] = module
                given, made = tensor(seed), tensor(seed + 0.02 + off)
                if way == "forward":
                    kwargs = {"eps": {"type": "float", "value": 1e-5}} if api == "linear" else {}
                    data[name] = {"input_args": [given], "input_kwargs": kwargs, "output": [made]}
                    frames = [
                        f"File /home/u/{api}.py, line {10 + i}, in forward, \n y = {api}(x)",
                        "File /usr/lib/python3/site-packages/torch/module.py, line 5, in _call, \n return f()",
                    ]
                    stack[str(len(stack))] = [[name], frames[::-1] if i == 1 else frames]
                else:
                    data[name] = {"input": [given], "output": [made]}
            # The module returns what its last call returns.
            last = data[f"Functional.relu.{i}.{way}"]["output"]
            if way == "forward":
                inputs = data[f"Functional.linear.{i}.forward"]["input_args"]
                data[module] = {
                    "input_args": inputs,
                    "input_kwargs": {},
                    "output": last,
                    "parameters": {"w": tensor(0.9 + i)},
                }
            else:
                data[module] = {"input": last, "output": last}
    return data, parents, stack


def write(
    folder: Path,
    data: Mapping[str, Any],
    parents: Mapping[str, str | None] | None = None,
    stack: Any = None,
    *,
    step: int = 0,
    rank: int | None = None,
    report: Mapping[str, Any] | None = None,
    framework: str = "pytorch",
) -> Path:
    """Write one rank of one step; return the dump_path."""
    where = folder / f"step{step}" / ("rank" if rank is None else f"rank{rank}")
    where.mkdir(parents=True)
    header = {"task": "statistics", "level": "mix", "framework": framework, "dump_data_dir": None}
    (where / "dump.json").write_text(json.dumps({**header, "data": data}))
    (where / "construct.json").write_text(json.dumps(parents or {}))
    (where / "stack.json").write_text(json.dumps(stack or {}))
    if report is not None:
        blank: dict[str, Any] = {
            "format_version": "1.0",
            "state": "complete",
            "header": {},
            "files": {},
            "journal": None,
        }
        blank |= {"counts": {}, "records": len(data), "tensors": 0, "tensor_files": 0}
        (where / "report.json").write_text(json.dumps({**blank, **report}))
    return folder


def read(html: str) -> tuple[dict[str, Any], Any]:
    """The document of a page, and what returns a column of it."""
    (data,) = re.findall(r'<script type="application/gzip" id="data">([^<]*)</script>', html)
    raw = gzip.decompress(base64.b64decode(data))
    length = int.from_bytes(raw[:4], "little")
    body = raw[4 + length :]

    def column(entry: dict[str, Any]) -> Any:
        kind, begin, count = entry["column"]
        return np.frombuffer(body, f"<{kind}", count, begin)

    return json.loads(raw[4 : 4 + length]), column
