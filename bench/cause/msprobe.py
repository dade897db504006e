"""Race msprobe's `compare` for the first cause, beside `probe diff`: its first row below its own threshold.

python -m bench.cause.msprobe [--faulty 40] [--honest 20] [--seed 0] [--keep FOLDER]: draws these pairs as `bench.cause`
does, and takes a fifth, all kinds in turn, as msprobe is slow. It is that of PROBE_MSPROBE_PYTHON.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from probe_analysis.calls.run import Call, runs_of

from bench.diff_race import Cost

from .faults import Truth
from .grade import grade_of, graded
from .pairs import drawn, dump, pair_options

__all__ = ["first_row", "main"]

#: Measured by a process that has no torch: what a child starts with counts as its memory.
_ALONE = "import sys, json, attrs, pathlib; from bench.diff_race import run; "
_ALONE += "print(json.dumps(attrs.asdict(run(sys.argv[1:], pathlib.Path.cwd()))))"
_PROBE = "import sys; from probe_format.cli.main import main; sys.exit(main(sys.argv[1:]))"


def first_row(a: Path, b: Path, out: Path) -> tuple[str, Call | None, list[Cost]]:
    """Return the first row, step after step, that msprobe does not let pass; its call; and what msprobe took.

    Raises RuntimeError where msprobe writes no table. out: a new folder.
    """
    tool, costs = Path(os.environ["PROBE_MSPROBE_PYTHON"]).with_name("msprobe"), list[Cost]()
    for one, two in zip(runs_of(a), runs_of(b), strict=True):
        into = out / str(len(costs))
        into.mkdir(parents=True)
        files = ("-tp", two.rank.path / "dump.json", "-gp", one.rank.path / "dump.json", "-o", into)
        costs.append(_run([str(tool), "compare", *map(str, files)], out))
        tables = list(into.glob("*.csv"))
        if not tables:
            raise RuntimeError(f"msprobe compared nothing of {a}:\n{costs[-1].said}")
        with tables[0].open(newline="") as table:
            row = next((row for row in csv.DictReader(table) if row["Result"] != "pass"), None)
        if row is not None:
            name = row["Bench Name"] if row["Bench Name"] != "N/A" else row["NPU Name"]
            record = name
            while record and record not in one.by_name:
                record = record.rpartition(".")[0]
            return name, one.by_name.get(record), costs
    return "", None, costs


def _run(command: list[str], cwd: Path) -> Cost:
    words, paths = [sys.executable, "-c", _ALONE, *command], os.pathsep.join([os.getcwd(), *sys.path])
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, "PYTHONPATH": paths}, check=True, stdout=subprocess.PIPE
    )
    return Cost(**json.loads(done.stdout))


def _theirs(a: Path, b: Path, truth: Truth | None, out: Path) -> tuple[str, str, list[Cost]]:
    row, call, costs = first_row(a, b, out)
    got = call is not None and row[len(call.name) :].startswith(".input")
    return grade_of(truth, bool(row), call, got), row or "all rows pass", costs


def _ours(a: Path, b: Path, truth: Truth | None, out: Path) -> tuple[str, str, list[Cost]]:
    cost = _run([sys.executable, "-c", _PROBE, "diff", str(a), str(b), "--rows", "0"], out)
    return *graded(a, b, truth), [cost]


def main() -> None:
    """Make the pairs, compare each with both tools, and print a row for each tool."""
    parser = pair_options(__doc__)
    parser.add_argument("--keep", type=Path, help="where the dumps are, as bench.cause --keep leaves them")
    given = parser.parse_args()
    found: dict[str, list[tuple[str, list[Cost]]]] = {"Probe": [], "msprobe": []}
    with tempfile.TemporaryDirectory(prefix="probe-cause-") as name:
        for n, pair in enumerate(drawn(given.faulty, given.honest, given.seed)):
            if n % 5 != n // 10 % 5:
                continue
            *dumps, truth = dump(pair, (given.keep or Path(name)) / f"{given.seed}-{n}")
            print(f"{given.seed}-{n} {pair}", flush=True)
            for tool, judge in (("Probe", _ours), ("msprobe", _theirs)):
                out = Path(name) / f"{tool}-{n}"
                out.mkdir()
                grade, said, costs = judge(*dumps, truth, out)
                found[tool].append((grade, costs))
                print(f"    {tool}: {grade}: {said}", flush=True)
    print("\n| | recall | precision | honest pairs called different | CPU time of a pair | memory |")
    print("|---|---|---|---|---|---|")
    for tool, each in found.items():
        print(f"| {tool} | {' | '.join(_cells([grade for grade, _ in each], [c for _, c in each]))} |")


def _cells(grades: list[str], costs: list[list[Cost]]) -> list[str]:
    honest = [grade for grade in grades if grade in ("alarm", "quiet")]
    faulty, alarms = len(grades) - len(honest), honest.count("alarm")
    named, silent = sum(grade in ("named", "around it") for grade in grades), grades.count("silent")
    spent = sum(cost.cpu for each in costs for cost in each) / max(1, len(costs))
    most = max((cost.memory for each in costs for cost in each), default=0.0)
    return [
        f"{named} of {faulty}",
        f"{named} of {faulty - silent + alarms}",
        f"{alarms} of {len(honest)}",
        f"{spent:.1f} s",
        f"{most:.0f} MB",
    ]


if __name__ == "__main__":
    main()
