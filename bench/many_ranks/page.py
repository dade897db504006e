"""Keep what many ranks cost for docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import page
from ..curve import curve
from ..machine import about
from ..tables import keep

HEAD = ["ranks", "form", "processes", "records", "CPU us/record", "wall s", "times one", "MiB of a process"]
NAMES = {"json": "JSON", "parquet": "Parquet"}
PICTURES = {"Microseconds of a record, by ranks": "us", "MiB of the largest process, by ranks": "peak"}


def write(found: Sequence[dict[str, Any]]) -> None:
    """Keep a table and two pictures. found: what each run of `probe ranks` cost."""
    of = about(quick=False)
    lines = {
        title: {
            f"{NAMES[form]}{f' by {workers}' if workers > 1 else ''}": [
                (x["ranks"], x[key]) for x in found if (x["form"], x["workers"]) == (form, workers)
            ]
            for form, workers in dict.fromkeys((x["form"], x["workers"]) for x in found)
        }
        for title, key in PICTURES.items()
    }
    for name, (title, each) in zip(("ranks-time", "ranks-memory"), lines.items(), strict=True):
        (page.PAGE.parent / f"{name}.svg").write_text(curve(title, each))
    rows = [[f"{x['ranks']:,}", NAMES[x["form"]], str(x["workers"]), f"{x['records']:,}"] for x in found]
    for row, x in zip(rows, found, strict=True):
        alone = next(y for y in found if (y["form"], y["ranks"]) == (x["form"], x["ranks"]))
        row += [f"{x['us']:.1f}", f"{x['wall']:.1f}", f"{alone['wall'] / x['wall']:.2f}", f"{x['peak']:.0f}"]
    text = (
        f"{of['date']}, {of['processor']}, {of['cores']} cores, load {of['load']}: `probe ranks` of synthetic runs of "
        "100 to 10,000 ranks in tensor, pipeline, data and expert parallelism, each with a weight that one rank holds "
        "otherwise, which is named every time. A record has 6.5 tensors and 1.3 kB of JSON. The CPU "
        "time is that of all processes, their imports with it but for the first one's. The memory is that of the "
        "largest process. Made by `python -m bench.many_ranks --write`.\n\n"
        "![Time by ranks](ranks-time.svg)\n\n![Memory by ranks](ranks-memory.svg)"
    )
    keep(page.RANKS, text, HEAD, rows)
    page.make(page.load())
