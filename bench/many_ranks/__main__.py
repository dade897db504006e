"""Measure `probe ranks` of many ranks: `python -m bench.many_ranks --sizes 100 1000 10000 --where DIR`.

Each run has the fault that is asked for, and each size is read by a process of its own, so that its peak memory is its
own; with several workers, the peak is the largest of a process. The time is CPU time, without that of the first
process's imports, and a record is one of all ranks. What was written before under the same place is read again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

from .generate import LAYERS, Run, write_json, write_parquet


def measured(form: str, dump: Path, size: int, records: int, workers: int) -> dict[str, Any]:
    """Return what a process of its own says of a dump, with what it was asked."""
    command = [sys.executable, "-m", "bench.many_ranks.one", str(dump), str(workers)]
    known = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    us = known["cpu"] / records * 1e6
    return known | {"form": form, "ranks": size, "workers": workers, "records": records, "us": us}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1000, 10000])
    parser.add_argument("--forms", nargs="+", choices=("json", "parquet"), default=["json", "parquet"])
    parser.add_argument(
        "--most-json", type=int, default=1000, help="up to how many ranks are written as JSON"
    )
    parser.add_argument("--fault", default="weight")
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--where", type=Path, default=Path("/dev/shm/many_ranks"))
    parser.add_argument("--write", action="store_true", help="keep the table for docs/performance.md")
    given = parser.parse_args()
    found = []
    for form, size in product(given.forms, given.sizes):
        if form == "json" and size > given.most_json:
            continue
        run = Run(size, given.layers, fault=given.fault, odd=size * 7 // 9)
        dump = given.where / f"{form}-{size}-{given.layers}-{given.fault}"
        if not dump.exists():
            (write_json if form == "json" else write_parquet)(run, dump)
        for workers in given.workers:
            found.append(measured(form, dump, size, size * 520 * given.layers // LAYERS, workers))
            print(found[-1], file=sys.stderr, flush=True)
    if given.write:
        from . import page  # not where memory is measured: it brings much

        page.write(found)


if __name__ == "__main__":
    main()
