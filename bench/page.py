"""Make docs/performance.md, its pictures and README's numbers out of what was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import call_count, memory, save_cost
from .chart import Bars, picture
from .curve import curve
from .steps import ROOT, share
from .tables import table
from .turns import Answer

__all__ = ["PAGE", "RANKS", "RESULT", "WATCH", "brief", "load", "make", "text_of"]

RESULT = Path(__file__).parent / "results" / "performance.json"
WATCH = Path(__file__).parent / "results" / "watch.json"
RANKS = Path(__file__).parent / "results" / "many_ranks.json"
#: What other programs have measured.
OTHERS = {
    "On a CUDA device": Path(__file__).parent / "results" / "device.json",
    "Task watch": WATCH,
    "Many ranks": RANKS,
    "MindSpore": Path(__file__).parent / "results" / "mindspore.json",
    "MindSpore, compiled": Path(__file__).parent / "results" / "mindspore_graph.json",
}
PAGE = ROOT / "docs" / "performance.md"
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
_BEGIN, _END = "<!-- made by python -m bench: begin -->", "<!-- end -->"

Known = dict[str, Any]


def load() -> Known:
    """Return what was measured before, by group."""
    return json.loads(RESULT.read_text()) if RESULT.exists() else {}


def make(known: Known) -> None:
    """Write the page, its pictures, and the READMEs' part, which a quick run leaves alone."""
    PAGE.write_text(text_of(known))
    bars = _bars(known)
    if bars:
        title = "A dumped step over a plain one (shorter is cheaper)"
        (PAGE.parent / "step-ratios.svg").write_text(picture(title, bars))
    grown = _answers(known, "growth")
    if grown:
        lines = {"in the step": [(a["records"], a["step_us"]) for a in grown],
                 "around it": [(a["records"], a["stop_us"]) for a in grown]}  # fmt: skip
        (PAGE.parent / "growth-time.svg").write_text(
            curve("Microseconds of a record, by records in a step", lines)
        )
        lines = {"MiB": [(a["records"], a["above_mib"]) for a in grown]}
        (PAGE.parent / "growth-memory.svg").write_text(
            curve("Memory above the plain step, by records", lines)
        )
    if "statistics" in known and not any(group["about"]["quick"] for group in known.values()):
        for page in READMES:
            text = page.read_text(encoding="utf-8")
            if _BEGIN in text:
                head, rest = text.split(_BEGIN)
                made = head + _BEGIN + "\n" + _readme(known) + "\n" + _END + rest.partition(_END)[2]
                page.write_text(made, encoding="utf-8")


def text_of(known: Known) -> str:
    """Return the page."""
    return "\n\n".join(part for part in _parts(known) if part) + "\n"


def brief(group: str, answer: Answer) -> str:
    """Return one line about an answer, for the terminal."""
    if "cpu_ratios" in answer:
        return (
            answer["name"] + ": " + ", ".join(f"{tool} {r:.2f}" for tool, r in answer["cpu_ratios"].items())
        )
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in answer.items())


_NO_THREADS = "## On all threads\n\nNot measured: that takes a machine with eight cores or more."

#: Measured once, on 2026-11-23, with 036e914, the last commit that could use numbers again.
_NOT_SHARED = """## Why numbers are not shared

Until 036e914 the numbers of a tensor that came again unchanged were used again, where PyTorch tells of every write. It
took 650 lines (850 of tests) and a row under Limits: after some writes a number could be an old one. This is what it
brought, as ratios of CPU time, all columns in turns in one process on one thread (two EPYC cores, medians; small: 6
layers, width 64, 2 x 16 tokens; wide: 2 layers, width 512, 4 x 256 tokens; AdamW within the step).

| dump                           | numbers and files shared | files only | neither |
| ------------------------------ | ------------------------ | ---------- | ------- |
| small L1 statistics            | 7.81                     | 7.84       | 8.11    |
| small mix statistics           | 9.96                     | 10.16      | 10.23   |
| wide L1 statistics             | 1.13                     | 1.19       | 1.17    |
| wide mix statistics            | 1.18                     | 1.21       | 1.22    |
| small mix tensor in memory     | 15.26                    | 16.89      | 17.18   |
| small mix tensor on disk       | 181                      | 178        | 340     |
| wide mix tensor in memory      | 1.88                     | 2.72       | 7.86    |

(In memory the wide one varies by half from process to process: 1.8 to 2.8 with both shared, 2.3 to 3.1 with
files only.)

Every number being the true one is worth more. Files of equal bytes are still one file with several names (`share`)."""


# -- the page -------------------------------------------------------------------------------------------------------


def _parts(known: Known) -> list[str]:
    return [
        "# What Probe costs",
        "Made by `python -m bench` ([how it measures](../bench/README.md)); not written by hand. A ratio is that of a "
        "dumped step over a plain one, in turns; a share is Probe's overhead (ratio minus 1) over the peer's, in CPU "
        'time. "without fast" is Probe without the extra `fast` (probe-fast).',
        _about(known),
        _short(known),
        _steps(known, "statistics", "Statistics"),
        "![Step ratios](step-ratios.svg)" if _bars(known) else "",
        _steps(known, "threads", "On all threads") or _NO_THREADS,
        _steps(known, "md5", "md5"),
        _tensors(known),
        _cheap(known),
        _idle(known),
        _memory(known),
        _growth(known),
        _calls(known),
        _ablations(known),
        _NOT_SHARED,
        _save(known),
        _convert(known),
        _others(),
    ]


def _answers(known: Known, group: str) -> list[Answer]:
    return list(known.get(group, {}).get("answers", ()))


#: What numbers depend on; an older page was made with numkong.
_LIBRARIES = ("torch", "numpy", "numkong", "probe-fast")


def _about(known: Known) -> str:
    """Say on what machines the groups were measured, and on each of them which groups on which day."""
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for group, found in known.items():
        about = found["about"]
        flags = ", ".join(about["flags"]) or "none of the wide ones"
        software = [f"Python {about['python']}"]
        software += [f"{name} {about[name]}" for name in _LIBRARIES if name in about]
        if about["quick"]:
            software += [
                "**a quick run on a machine in use: it shows that the measurement works, not the numbers**"
            ]
        machine = f"{about['processor']}, {about['cores']} cores ({flags})"
        days = rows.setdefault((machine, ", ".join(software)), {})
        days.setdefault(about["date"], []).append(group)
    return table(
        ["machine", "software", "measured"],
        [
            [*where, "; ".join(f"{day}: {', '.join(groups)}" for day, groups in days.items())]
            for where, days in rows.items()
        ],
    )


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _goals(known: Known) -> list[tuple[str, float | None, float]]:
    """Return (row, what was measured, the most that it may be) of every row that has a goal."""
    found: list[tuple[str, float | None, float]] = []
    for group in ("statistics", "threads", "md5", "tensor"):
        for a in _answers(known, group):
            goal = a["case"]["goal"]
            if goal is not None:
                found.append((f"{a['name']}: share of msprobe's overhead", share(a), goal))
            if group == "threads":  # many threads shorten the plain step, and not what one of them does
                found.append((f"{a['name']}: the same in wall time", share(a, time="ratios"), goal))
            if group == "statistics":
                found.append((f"{a['name']} without fast: overhead over that with it", _without(a), 1.5))
            if group == "tensor" and not a["case"]["place"]:
                theirs = a["written"].get("msprobe", {}).get("bytes")
                ours = a["written"]["probe"]["bytes"]
                found.append(
                    (f"{a['name']}: share of msprobe's bytes", ours / theirs if theirs else None, 1 / 2)
                )
                found.append((f"{a['name']}: overhead over a raw write of the bytes", _over_raw(a), 1.3))
                if "packed" in a["seconds"]:
                    found.append((f"{a['name']}, packed: the same", _over_raw(a, "packed"), 1.5))
    found += [
        (f"statistics of {a['name']} over a read of it", a["statistics"] / a["read"], 1 / 0.9)
        for a in _answers(known, "read")
    ]
    for a in _answers(known, "idle"):
        found += [(f"a debugger that is {n}: ratio", a["cpu_ratios"][n], 1.02) for n in ("made", "stopped")]
    found += [(f"memory, {a['name']}: MiB", a["above_mib"], a["goal_mib"]) for a in _answers(known, "memory")]
    grown = [a["step_us"] + a["stop_us"] for a in _answers(known, "growth")]
    if grown:
        found.append(("growth: the slowest record over the fastest", max(grown) / min(grown), 1.2))
    for a in _answers(known, "calls"):
        goal = call_count.GOALS.get((a["level"], a["task"]))
        if a["tool"] == "probe" and goal is not None:
            name = f"calls, {a['level']} {a['task']}"
            found.append((f"{name}: in the step", a["per_record"], goal))
            found.append((f"{name}: with start, stop and step()", a["per_record_with_start_stop"], goal + 60))
    for a in _answers(known, "save"):
        found.append(
            (f"save() of {a['name']}, statistics: us over one pass", a["statistics"] - a["pass"], 20)
        )
    found += [("convert over a copy", a["convert"] / a["copy"], 1.3) for a in _answers(known, "convert")]
    return found


def _without(a: Answer) -> float | None:
    ratios = a["cpu_ratios"]
    return (ratios["slow"] - 1) / (ratios["probe"] - 1) if ratios["probe"] > 1 and "slow" in ratios else None


def _over_raw(a: Answer, tool: str = "probe") -> float | None:
    raw = a["raw_write_seconds"]
    return (a["seconds"][tool] - a["seconds"]["none"]) / raw if raw and tool in a["seconds"] else None


def _short(known: Known) -> str:
    goals = _goals(known)
    unknown = [row for row, value, _ in goals if value is None]
    over = [
        (value / most, row, value, most) for row, value, most in goals if value is not None and value > most
    ]
    reached = _reached(known)
    rows = [
        [row, f"{value:.3g}", f"{most:.3g}", reached.get(row, "")]
        for _, row, value, most in sorted(over, reverse=True)
    ]
    met = len(goals) - len(rows) - len(unknown)
    text = f"## Rows that fall short of their goal, the worst first\n\n{met} of {len(goals)} goals are met."
    if unknown:
        text += (
            f" {len(unknown)} could not be measured, for want of msprobe or of a plain step to compare with."
        )
    text += f" {_REACHED}" if reached else ""
    head = ["row", "measured", "at most", *(["without"] if reached else [])]
    return text + ("\n\n" + table(head, [row[: len(head)] for row in rows]) if rows else "")


_REACHED = (
    '"Without" is what a row comes to where one part of Probe\'s work is taken out (see Where it goes): the parts that '
    "it is bound by, the first the one that brings it furthest. Where a row was not measured so, the most similar one "
    "that was is named."
)
#: The beginning of a row that was measured without parts -> that of those that it stands for, in their order.
_LIKE = {
    "small L1": ("small Llama L1", "small ResNet L1"),
    "small mix": ("small Llama mix", "small ResNet mix"),
    "6x512 L0": ("6x512, one thread L0", "6x512 Llama L0"),
    "6x512 L1": (
        "6x512 mix",
        "6x512, one thread L1",
        "6x512, one thread mix",
        "6x512 Llama L1",
        "6x512 Llama mix",
    ),
    "ResNet-18 L1": ("ResNet-18 mix",),
}


def _reached(known: Known) -> dict[str, str]:
    """Return for rows that have a goal what they come to without the parts of Probe that matter most."""
    found: dict[str, dict[str, float]] = {}
    for a in _parted(known):
        for part in _left_out(a):
            tool = f"without {part}"
            found.setdefault(f"{a['name']}: share of msprobe's overhead", {})[part] = share(a, tool) or 0.0
            if part == "numbers" and a["case"]["task"] == "statistics":  # what fast is for
                left = (a["cpu_ratios"][tool] - 1) / (a["cpu_ratios"]["probe"] - 1)
                found[f"{a['name']} without fast: overhead over that with it"] = {part: left}
            if a["case"]["task"] == "tensor" and not a["case"]["place"]:
                over = _over_raw(a, tool) or 0.0
                found.setdefault(f"{a['name']}: overhead over a raw write of the bytes", {})[part] = over
                found.setdefault(f"{a['name']}, packed: the same", {})[part] = over
    for a in _answers(known, "calls without"):
        name = f"calls, {a['level']} {a['task']}"
        found.setdefault(f"{name}: in the step", {})[a["part"]] = a["per_record"]
        around = a["per_record_with_start_stop"]
        found.setdefault(f"{name}: with start, stop and step()", {})[a["part"]] = around
    saves = {(a["name"], a["part"]): a["statistics"] - a["pass"] for a in _answers(known, "save without")}
    all_of_it = {a["name"]: a["statistics"] - a["pass"] for a in _answers(known, "save")}
    for (name, part), left in saves.items():
        if part:  # of the same run, as the machine may be another one by now
            row = f"save() of {name}, statistics: us over one pass"
            found.setdefault(row, {})[part] = all_of_it.get(name, math.nan) * left / saves[name, ""]
    told = {
        row: ", ".join(f"{part} {value:.3g}" for part, value in sorted(parts.items(), key=lambda p: p[1])[:3])
        for row, parts in found.items()
    }
    for known_as, others in _LIKE.items():
        for row in [row for row in told if row.startswith(f"{known_as} statistics")]:
            for other in others:
                told.setdefault(other + row.removeprefix(known_as), f"as {known_as}: {told[row]}")
    return told


def _parted(known: Known) -> list[Answer]:
    return [a for group in ("parts", "parts large", "parts tensors") for a in _answers(known, group)]


def _left_out(a: Answer) -> list[str]:
    """Return the parts that a case was measured without."""
    return [
        name.removeprefix("without ")
        for name in a["cpu_ratios"]
        if name.startswith("without ") and not name.endswith(" stopped")
    ]


_PARTS_NOTE = (
    "What a dumped step takes above a plain one, in plain steps of CPU time (tensors: of wall time), and how much of "
    "that is gone where one part of the work is taken out and everything else stays (`bench/parts.py`). Parts lie "
    "within each other, so they do not add up: calls is all that a recorded call does but the wrapper around it; "
    "tensors, all that is done for a tensor; numbers, only the reading of its memory."
)
_PARTS_MORE = {
    "statistics": "Gradients: the backward records. Events: the journal, and the files made of it.",
    "tensor": (
        "Links: the search for an earlier file of the same bytes (without it each is written again). Files: all that "
        "is written for tensors. As many files: a raw write of as many files with as many bytes in all, in plain steps."
    ),
}


def _ablations(known: Known) -> str:
    found = [_ablation(known, task) for task in _PARTS_MORE]
    return "\n\n".join(["## Where it goes", _PARTS_NOTE, *filter(None, found)]) if any(found) else ""


def _ablation(known: Known, task: str) -> str:
    answers = [a for a in _parted(known) if a["case"]["task"] == task]
    if not answers:
        return ""
    time = "ratios" if task == "tensor" else "cpu_ratios"
    parts = list(dict.fromkeys(part for a in answers for part in _left_out(a)))
    head = ["dump", "overhead", *parts] + ["as many files"] * (task == "tensor")
    rows = []
    for a in answers:
        all_of_it = a[time]["probe"] - 1
        cells = [a["name"], f"{all_of_it:.2f}"]
        for part in parts:
            left = a[time].get(f"without {part}")
            gone = 0.0 if left is None else max(0.0, (a[time]["probe"] - left) / all_of_it)
            cells.append("-" if left is None else f"-{gone:.0%}")
        if task == "tensor":
            cells.append(_number(a["raw_files_seconds"] / a["seconds"]["none"]))
        rows.append(cells)
    return f"{_PARTS_MORE[task]}\n\n{table(head, rows)}"


_TOOLS = {
    "probe": "Probe",
    "slow": "without fast",
    "msprobe": "msprobe",
    "debug": "DebugMode",
    "hooks": "hooks",
}


def _steps(known: Known, group: str, title: str) -> str:
    answers = _answers(known, group)
    if not answers:
        return ""
    tools = [tool for tool in _TOOLS if any(tool in a["cpu_ratios"] for a in answers)]
    head = [
        "dump",
        "plain ms",
        "noise",
        *(_TOOLS[t] for t in tools),
        "share",
        "share (wall)",
        "share without fast",
        "next step",
    ]
    rows = [
        [
            a["name"], f"{a['cpu_seconds']['none'] * 1e3:.1f}", _number(a["cpu_ratios"]["none again"]),
            *(_number(a["cpu_ratios"].get(tool)) for tool in tools), _number(share(a)),
            _number(share(a, time="ratios")), _number(share(a, "slow")), _number(a["cpu_ratios"]["probe stopped"]),
        ]
        for a in answers
    ]  # fmt: skip
    note = (
        "Ratios of CPU time, on two threads where one is not said. Without a name: the demo's GPT, which calls "
        "`F.scaled_dot_product_attention`; Llama: that of transformers; ResNet: of torchvision's form, with eight "
        "channels in the small one. small: 6 layers, width 64, 16 tokens, batch 1, one thread, which is bound by "
        "Python's dispatch, the worst case; 6x512: 4 x 256 tokens. DebugMode (a hash of every tensor) and the script "
        "of hooks write other things than a dump. Next step: the undumped step right after a dumped one."
    )
    changed = [f"{tool} in {a['name']}" for a in answers for tool in a.get("changed", ())]
    if changed:
        note += f" Losses were not those of the run without a tool: {', '.join(changed)}."
    return f"## {title}\n\n{table(head, rows)}" + (f"\n\n{note}" if group == "statistics" else "")


def _tensors(known: Known) -> str:
    rows = []
    for a in _answers(known, "tensor"):
        megabytes = {tool: w["bytes"] / 1e6 for tool, w in a["written"].items()}
        rows.append([
            a["name"], _number(a["ratios"]["probe"]), _number(a["ratios"].get("msprobe")), _number(share(a)),
            f"{megabytes['probe']:.1f}", _number(megabytes.get("msprobe"), 1), _number(_over_raw(a)),
            _number(_over_raw(a, "packed")),
        ])  # fmt: skip
    head = [
        "dump",
        "Probe",
        "msprobe",
        "share (CPU)",
        "MB",
        "MB msprobe",
        "overhead / raw write",
        "packed / raw write",
    ]
    note = (
        "Ratios of wall time. The raw write is one of as many bytes as Probe wrote (each content once), in 1 MB "
        "blocks, to the same place in the same rounds."
    )
    return f"## Tensors\n\n{table(head, rows)}\n\n{note}" if rows else ""


def _cheap(known: Known) -> str:
    rows = [
        [a["name"], _number(a["cpu_ratios"]["none again"]), _number(a["cpu_ratios"]["probe"]),
         f"{a['written']['probe']['bytes'] / 1e3:.0f}"]
        for a in _answers(known, "cheap")
    ]  # fmt: skip
    note = (
        "What one can afford at every step: statistics of a few modules (`list` or `scope`, level L0), or of outputs "
        "only (`data_mode: [output]`). [How to write it](../packages/probe-torch/README.md#cheap-dumps)."
    )
    head = ["dump", "noise", "Probe", "KB a step"]
    return f"## Cheap dumps\n\n{note}\n\n{table(head, rows)}" if rows else ""


def _idle(known: Known) -> str:
    rows = [[n, _number(a["cpu_ratios"][n], 3)] for a in _answers(known, "idle") for n in a["cpu_ratios"]]
    note = "Plain steps of the small model: with a debugger made and not started, and after `stop()`."
    return f"## Doing nothing\n\n{note}\n\n{table(['process', 'ratio'], rows)}" if rows else ""


def _memory(known: Known) -> str:
    rows = [
        [a["name"], f"{a['plain_mib']:.0f}", f"{a['above_mib']:.0f}", str(a["goal_mib"])]
        for a in _answers(known, "memory")
    ]
    head = ["dump", "plain step, MiB", "above it, MiB", "goal"]
    return (
        f"## Memory\n\n{memory.__doc__.strip() if memory.__doc__ else ''}\n\n{table(head, rows)}"
        if rows
        else ""
    )


def _growth(known: Known) -> str:
    rows = [
        [f"{a['records']:,}", f"{a['step_us']:.1f}", f"{a['stop_us']:.1f}", f"{a['above_mib']:.0f}",
         f"{a['bytes'] / 1e6:.1f}"]
        for a in _answers(known, "growth")
    ]  # fmt: skip
    head = ["records in one step", "us each, in the step", "us each, around it", "MiB above", "MB written"]
    note = (
        "CPU time of one step that calls relu so many times, at L1 with statistics, each size in a process that has "
        "dumped one step of 1,000 before. Around it: start(), stop() and step(), so that what they cost whatever is "
        "recorded is in the times of a record. Steps of less than 10^5 records are the median of up to nine."
    )
    pictures = "![Time of a record](growth-time.svg)\n\n![Memory](growth-memory.svg)"
    return f"## Growth of one step\n\n{note}\n\n{table(head, rows)}\n\n{pictures}" if rows else ""


def _calls(known: Known) -> str:
    answers = _answers(known, "calls")
    if not answers:
        return ""
    note = "Python-level calls for each recorded call, forward and backward: counted, so the same on every machine."
    return f"## Calls\n\n{note}\n\n{table(call_count.HEAD, call_count.rows(answers))}"


def _save(known: Known) -> str:
    answers = _answers(known, "save")
    return f"## One save()\n\n{table(save_cost.HEAD, [save_cost.row(a) for a in answers])}" if answers else ""


def _convert(known: Known) -> str:
    return "\n".join(
        f"## Converting a kernel dump\n\n256 MB of NC1HWC0 fp16 to NCHW: {a['convert']:.2f} s; a plain copy of the "
        f"file: {a['copy']:.2f} s ({a['convert'] / a['copy']:.2f})."
        for a in _answers(known, "convert")
    )


def _others() -> str:
    found = {title: json.loads(path.read_text()) for title, path in OTHERS.items() if path.exists()}
    return "\n\n".join(
        f"## {title}\n\n{part['about']}\n\n{table(part['head'], part['rows'])}"
        for title, part in found.items()
    )


# -- pictures and README --------------------------------------------------------------------------------------------

#: The setups of the picture and of README: the demo's model.
_PICTURED = ("small", "6x256", "6x512")


def _bars(known: Known) -> list[Bars]:
    return [
        Bars(a["name"].replace(" statistics", ""), {
            label: a["cpu_ratios"][tool] for tool, label in (("probe", "Probe"), ("msprobe", "msprobe"))
            if tool in a["cpu_ratios"] and math.isfinite(a["cpu_ratios"][tool])
        })
        for a in _answers(known, "statistics") if a["case"]["setup"] in _PICTURED
    ]  # fmt: skip


def _readme(known: Known) -> str:
    rows = [
        [
            a["name"],
            _number(a["cpu_ratios"]["probe"]),
            _number(a["cpu_ratios"].get("msprobe")),
            _number(share(a)),
        ]
        for group in ("statistics", "tensor")
        for a in _answers(known, group)
        if a["case"]["setup"] in _PICTURED
    ]
    first: Sequence[str] = ["dump", "Probe", "msprobe", "share"]
    return table(first, rows)
