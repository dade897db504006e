"""`python -m bench`: measure the rows of docs/performance.md, in one run, and make the page."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence

from . import page
from .machine import about
from .rows import GROUPS, How


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the groups asked for; those that are not keep their numbers of the run before."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rows", default=",".join(GROUPS), help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, default=0, help="of each case, instead of its own number")
    parser.add_argument(
        "--quick", action="store_true", help="as little as shows that it works; the page says so"
    )
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="a folder on the disk to measure")
    parser.add_argument(
        "--msprobe", default=os.environ.get("PROBE_MSPROBE_PYTHON", ""), help="a Python with it"
    )
    parser.add_argument(
        "--page", action="store_true", help="measure nothing, make the page of what was measured"
    )
    given = parser.parse_args(arguments)
    chosen = [] if given.page else given.rows.split(",")
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown:
        parser.error(f"--rows: there is no {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    if chosen and not given.msprobe:
        print("msprobe is not measured: give --msprobe, or set PROBE_MSPROBE_PYTHON.", file=sys.stderr)
    how = How(given.msprobe, given.disk, given.rounds, given.quick)
    known = page.load()
    begin = time.perf_counter()
    for group in chosen:
        answers = []
        for answer in GROUPS[group](how):
            print(f"[{time.perf_counter() - begin:5.0f} s] {group}: {page.brief(group, answer)}", flush=True)
            answers.append(answer)
        if not answers:  # not on this machine
            continue
        known[group] = {"about": about(given.quick), "answers": answers}
        page.RESULT.write_text(json.dumps(known, indent=1) + "\n")
        page.make(known)
    page.make(known)
    print(f"{time.perf_counter() - begin:.0f} s; see {page.PAGE}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
