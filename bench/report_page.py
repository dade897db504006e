"""Time `probe report` on two dumps of many records, and how long Chromium takes to open the page and to filter it.

python -m bench.report_page [RECORDS]: writes the dumps in a temporary folder; needs playwright and Chromium
(`PROBE_CHROMIUM`, /usr/bin/chromium).
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from probe_analysis import report
from probe_format.jsonio import dumps

from .machine import own_peak

_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
]
_SEED = 3


def write_dump(folder: Path, records: int, planted: int | None = None) -> Path:
    """Write a mix dump of one step as Probe would: layers of modules and calls, forward and backward, with stacks.

    planted: the place of a call from which on all forward results are off by a part in a thousand.
    """
    rank = folder / "step0" / "rank0"
    rank.mkdir(parents=True)
    numbers = random.Random(_SEED)
    data: dict[str, Any] = {}
    parents: dict[str, str | None] = {}
    stack: dict[str, list[str]] = {}
    inner = 9
    for place in range(records // (2 * (inner + 1))):
        module = f"Module.model.layers.{place}.mlp.Block"
        for way in ("forward", "backward"):
            around = f"{module}.{way}.0"
            parents[around] = None
            for i in range(inner):
                name = f"Functional.linear.{place * inner + i}.{way}"
                parents[name] = around
                data[name] = _record(numbers, way, planted is not None and place * inner + i >= planted)
            data[around] = _record(numbers, way, planted is not None and (place + 1) * inner > planted)
            stack[around] = [f"File /home/u/model.py, line {20 + place % 50}, in forward, \n x = layer(x)"]
        for i in range(inner):
            name = f"Functional.linear.{place * inner + i}.forward"
            stack[name] = [
                f"File /home/u/mlp.py, line {i}, in forward, \n x = F.linear(x, w)",
                *stack[f"{module}.forward.0"],
            ]
    header = {
        "task": "statistics",
        "level": "mix",
        "framework": "pytorch",
        "dump_data_dir": None,
        "format_version": "1.0",
    }
    lines = ",\n".join(f"{dumps(name).decode()}: {dumps(record).decode()}" for name, record in data.items())
    head = ",\n".join(f"{dumps(key).decode()}: {dumps(value).decode()}" for key, value in header.items())
    (rank / "dump.json").write_text(f'{{\n{head},\n"data": {{\n{lines}\n}}}}')
    (rank / "construct.json").write_bytes(dumps(parents))
    (rank / "stack.json").write_bytes(
        dumps({str(i): [[name], frames] for i, (name, frames) in enumerate(stack.items())})
    )
    return folder


def _record(numbers: random.Random, way: str, off: bool) -> dict[str, Any]:
    tensors = [_tensor(numbers) for _ in range(3)]
    if way == "backward":
        return {"input": tensors[:1], "output": tensors[1:]}
    if off:
        tensors[2] = {
            **tensors[2],
            **{key: tensors[2][key] * 1.001 for key in ("Max", "Min", "Mean", "Norm")},
        }
    kwargs = {"bias": None, "eps": {"type": "float", "value": 1e-5}}
    return {"input_args": tensors[:2], "input_kwargs": kwargs, "output": tensors[2:]}


def _tensor(numbers: random.Random) -> dict[str, Any]:
    high, low, mean, norm = (numbers.gauss(0, 1) for _ in range(4))
    statistics = {"Max": abs(high), "Min": -abs(low), "Mean": mean * 0.01, "Norm": abs(norm) * 50}
    return {
        "type": "torch.Tensor",
        "dtype": "torch.bfloat16",
        "shape": [4, 2048, 4096],
        **statistics,
        "requires_grad": True,
    }


def measure(page: Path) -> dict[str, float]:
    """Return milliseconds: until the page is ready, and for what people do with it."""
    binary = os.environ.get("PROBE_CHROMIUM", "/usr/bin/chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=_OPTIONS)
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        begun = time.perf_counter()
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        found = {"opened, seen from outside": (time.perf_counter() - begun) * 1e3}
        found["ready, by the page's own clock"] = float(
            tab.evaluate("document.documentElement.dataset.ready")
        )
        by = "document.getElementById"
        empty = f"{by}('search').value = ''; {by}('forward').click()"
        find = f"const s = {by}('search'); s.value = 'linear.777'; s.dispatchEvent(new Event('input'))"
        for what, script in (
            ("open all", f"{by}('unfold').click()"),
            ("scroll to the middle", f"const t = {by}('tree'); t.scrollTop = t.scrollHeight / 2"),
            ("search", find),
            ("backward only", f"{by}('forward').click()"),
            ("charts of all", f"{empty}; {by}('tabCharts').click()"),
        ):
            wait = 90 if what == "search" else 0  # it waits for the next key
            found[what] = float(tab.evaluate(
                f"async () => {{ const begun = performance.now(); {{ {script} }} "
                f"if ({wait}) await new Promise(r => setTimeout(r, {wait})); "
                "await new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r))); "
                "return performance.now() - begun }"
            ))  # fmt: skip
        browser.close()
    return found


def main() -> None:
    """Print a table of what was measured."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        a = write_dump(folder / "a", records)
        b = write_dump(folder / "b", records, planted=records // 4)
        for what, dumps_ in (("one dump", (a,)), ("two dumps", (a, b))):
            begun, cpu = time.perf_counter(), time.process_time()
            made = report(*dumps_)
            seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
            page = folder / "report.html"
            made.write(page)
            print(f"{what} of {records} records: made in {seconds:.1f} s ({cpu:.1f} s of CPU)")
            print(f"  size: {page.stat().st_size / 1e6:.1f} MB")
            for name, milliseconds in measure(page).items():
                print(f"  {name}: {milliseconds:.0f} ms")
    print(f"memory at most: {own_peak() / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
