"""The real msprobe 26.2 as a command line, and the one training step (job.py) under either tool.

msprobe lives in an environment of its own (`interop` in hatch.toml). PROBE_MSPROBE_PYTHON names its python.
"""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from forks import Forks

ROOT = Path(__file__).resolve().parents[2]
JOB = str(Path(__file__).with_name("job.py"))
FORKS = Forks("torch")

Row = dict[str, str]


@cache
def msprobe_python() -> Path:
    """The python of msprobe's environment. An absent one is an error, never a skip."""
    named = os.environ.get("PROBE_MSPROBE_PYTHON")
    path = Path(named) if named else ROOT / ".venv-interop" / "bin" / "python"
    if not path.exists():
        raise FileNotFoundError(
            f"There is no msprobe environment at {path}. Make it with `python -m hatch env create interop`, "
            "or set PROBE_MSPROBE_PYTHON to a python that has mindstudio-probe==26.2.0 and torch."
        )
    return path


@cache
def _server() -> subprocess.Popen[str]:
    """The process whose children are all that msprobe runs; it ends when its input closes, with this process."""
    return subprocess.Popen(
        [msprobe_python(), Path(__file__).with_name("msprobe_server.py")],
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": os.devnull, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def msprobe(cwd: Path, *args: str | Path, script: str = "") -> str:
    """Run a command of msprobe, or a script in its python, to the end; what it printed. Other exits than 0 raise."""
    orders, answers = _server().stdin, _server().stdout
    assert orders is not None and answers is not None
    output = cwd / f"said{len(list(cwd.glob('said*')))}.txt"
    order = {"args": [*map(str, args)], "script": script, "cwd": str(cwd), "output": str(output)}
    orders.write(json.dumps(order) + "\n")
    orders.flush()
    status = answers.readline().strip()
    said = output.read_text(errors="replace") if output.exists() else ""
    if status != "0":
        raise RuntimeError(
            f"exit {status or 'of the server'} from msprobe {' '.join([script, *map(str, args)])}\n{said}"
        )
    return said


def dump(folder: Path, tool: str, config: dict[str, Any], variant: str = "plain") -> Path:
    """Run job.py under a tool with this config.json; the rank directory that it left."""
    folder.mkdir(parents=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**config, "dump_path": str(folder / "dump")}))
    if tool == "probe":
        FORKS.run(JOB, tool, str(path), variant, cwd=folder, HOME=str(folder))
    else:
        msprobe(folder, tool, path, variant, script=JOB)
    (found,) = (folder / "dump" / "step0").iterdir()
    return found


def compare(cwd: Path, target: Path, golden: Path, name: str = "dump.json") -> list[Row]:
    """The rows of `msprobe compare` for two ranks. Its exit code says nothing: the Result column does."""
    cwd.mkdir(parents=True, exist_ok=True)
    said = msprobe(cwd, "compare", "-tp", target / name, "-gp", golden / name, "-o", cwd / "out")
    assert "Traceback" not in said, said
    (found,) = (cwd / "out").glob("*.csv")
    with found.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {row["NPU Name"]: row for row in rows}


def graph_nodes(cwd: Path, target: Path, golden: Path | None = None) -> dict[str, str]:
    """Node -> parent, as `msprobe graph_visualize` drew them; beside those of another dump, where there is one."""
    cwd.mkdir(parents=True, exist_ok=True)
    other = () if golden is None else ("-gp", golden)
    said = msprobe(cwd, "graph_visualize", "-tp", target, *other, "-o", cwd / "out")
    assert "Traceback" not in said, said
    (found,) = (cwd / "out").glob("*.vis.db")
    with sqlite3.connect(found) as connection:
        return dict(connection.execute("select node_name, up_node from tb_nodes"))


def overflows(cwd: Path, step: Path) -> list[dict[str, Any]]:
    """What `msprobe overflow_check` found in rank 0 of a step; it writes no file when it finds nothing."""
    cwd.mkdir(parents=True, exist_ok=True)
    said = msprobe(cwd, "overflow_check", "-i", step, "-o", cwd / "out")
    assert "Traceback" not in said, said
    found = list((cwd / "out").glob("anomaly_analyze_*.json"))
    return list(json.loads(found[0].read_text())["rank_0"]) if found else []


def _leaves(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        if "shape" in value and "dtype" in value:
            return [value]
        return [leaf for inner in value.values() for leaf in _leaves(inner)]
    return [leaf for inner in value for leaf in _leaves(inner)] if isinstance(value, list) else []


def load(rank: Path, name: str) -> dict[str, Any]:
    """A file of a dump as plain strict JSON, read without Probe's own reader."""

    def refuse(token: str) -> None:
        raise ValueError(f"{rank / name} has a bare {token}: not JSON")

    return dict(json.loads((rank / name).read_text(encoding="utf-8"), parse_constant=refuse))


def tensors(rank: Path) -> Counter[tuple[str, str]]:
    """(dtype, shape) of every tensor that a dump.json has where msprobe looks for tensors."""
    places = ("input_args", "input_kwargs", "input", "output", "parameters")
    found: Counter[tuple[str, str]] = Counter()
    for name, record in load(rank, "dump.json")["data"].items():
        kept = record if "parameters_grad" in name else {k: v for k, v in record.items() if k in places}
        found.update((leaf["dtype"], str(leaf["shape"])) for leaf in _leaves(kept))
    return found


def rows_of_tensors(rows: list[Row]) -> Counter[tuple[str, str]]:
    """(dtype, shape) of each row that is a tensor; other rows are numbers, strings and nulls."""
    found = (r for r in rows if r["NPU Dtype"].startswith("torch.") and r["NPU Dtype"] != "torch.Size")
    return Counter((r["NPU Dtype"], r["NPU Tensor Shape"]) for r in found)
