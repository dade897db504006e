"""Print what the installed msprobe has: commands, calls, their arguments, exports, keys. Run by msprobe's python.

What a file of MindSpore's exports is read, as MindSpore is not there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

cli = importlib.import_module("msprobe.msprobe")
torch_side = importlib.import_module("msprobe.pytorch")
Config = importlib.import_module("msprobe.core.dump.common_config").CommonConfig


keys: set[str] = set()


class Asked(dict[str, Any]):
    def get(self, key: str, default: Any = None) -> Any:
        keys.add(key)
        return super().get(key, default)


commands: list[str] = []
add = argparse._SubParsersAction.add_parser
argparse._SubParsersAction.add_parser = lambda self, name, **more: (
    commands.append(name) or add(self, name, **more)
)
sys.argv = ["msprobe"]
with contextlib.suppress(SystemExit):
    cli.main()
debugger = torch_side.PrecisionDebugger
calls = [name for name in dir(debugger) if name[0] != "_" and callable(getattr(debugger, name))]
arguments = {
    name: list(inspect.signature(getattr(debugger, name)).parameters) for name in ["__init__", *calls]
}
exported = {name for name, value in vars(torch_side).items() if name[0] != "_" and callable(value)}
mindspore_side = (Path(torch_side.__file__).parents[1] / "mindspore/__init__.py").read_text()
exported.update(re.findall(r"'(\w+)'", mindspore_side.split("__all__")[1]))
Config(Asked(task="statistics", level="L0", rank=[], step=[]))
for task in ("statistics", "tensor", "acc_check"):
    debugger._get_task_config(task, Asked({task: Asked()}))
print()
print(json.dumps([commands, calls, arguments, sorted(exported), sorted(keys)]))
