"""`python -m probe_mindspore.demo`: train a small GPT twice, PyNative and as a graph, and dump steps of both."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import mindspore as ms
from mindspore import nn
from probe_format.terminal import say
from probe_runtime.demo import demo_arguments, summary, timed_steps

from . import PrecisionDebugger, seed_all
from .demo_model import Gpt, batches

_MODES = {"pynative": (ms.PYNATIVE_MODE, "mix"), "graph": (ms.GRAPH_MODE, "L0")}


def train(
    dump_path: Path, mode: str, *, steps: int, dumped: Sequence[int], layers: int, width: int
) -> dict[int, float]:
    """Train in one mode (``pynative`` or ``graph``) and dump some steps. Return the seconds that each step took."""
    number, level = _MODES[mode]
    before = ms.get_context("mode")
    # One thread is faster for so small a network; on a busy machine several would spin while they wait.
    ms.set_context(runtime_num_threads=1)
    ms.set_context(mode=number)
    try:
        with seed_all(1234):
            model = Gpt(layers, width)
            model.set_train()
            one_step = nn.TrainOneStepCell(model, nn.AdamWeightDecay(model.trainable_params(), 3e-4))
            one_step.set_train()
            with PrecisionDebugger(
                task="statistics", level=level, dump_path=str(dump_path), step=list(dumped)
            ) as debugger:
                return timed_steps(
                    debugger, model, batches(), lambda batch: one_step(*batch).asnumpy(), steps, dumped
                )
    finally:
        ms.set_context(mode=before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo from the command line. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m probe_mindspore.demo", description=__doc__)
    parser.add_argument("--out", type=Path, help="an empty or new directory (default: a new one below /tmp)")
    parser.add_argument("--mode", choices=("both", *_MODES), default="both")
    given = demo_arguments(parser, arguments, steps=10, layers=4, width=128)
    folder = given.out or Path(tempfile.mkdtemp(prefix="probe-demo-"))
    dumped = (given.steps // 2, given.steps - 2)
    for mode in _MODES if given.mode == "both" else (given.mode,):
        out = folder / mode / "dump"
        what = "PyNative, level mix" if mode == "pynative" else "GRAPH_MODE, level L0 inside the graph"
        say(f"{what}: a GPT of {given.layers} layers, width {given.width}; steps {dumped} to {out}", "")
        seconds = train(out, mode, steps=given.steps, dumped=dumped, layers=given.layers, width=given.width)
        say("", *summary(out, seconds), "")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
