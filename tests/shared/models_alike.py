"""A script with four models of one class, the last two made after the collector ran, or never ran (`probe run`)."""

from __future__ import annotations

from pathlib import Path

KINDS = ("ReLU", "Tanh", "GELU", "SiLU")
_SCRIPT = """
import copy, gc, sys
{imports}
class Net(nn.{kind}):
    def __init__(self, kind):
        super().__init__()
        self.inner = kind()
    def {method}(self, x):
        return self.inner(x)
gc.disable()
nets = [Net(nn.ReLU), Net(nn.Tanh)]
if sys.argv[1] == "collected":
    gc.collect()
nets += [copy.deepcopy(Net(nn.GELU)), Net(nn.SiLU)]
def step():
    for net in nets:
        net({tensor})
step()
"""


def write(folder: Path, **words: str) -> list[str]:
    """Write the script; return what `probe run` is given. words: ``imports``, ``kind``, ``method`` and ``tensor``."""
    (folder / "x.py").write_text(_SCRIPT.format(**words))
    named = ["--models", "[Net]", "--step_ends", "calls:__main__:step"]
    return ["run", "--level", "L0", "--dump_path", "dump", *named, "x.py"]
