"""Look for steps in a process that a run under ``probe run`` has started: begin once it imports a framework.

Python runs a file of this name as it starts. This one hides any other sitecustomize of that process, and so runs it
first.
"""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.machinery.PathFinder.find_spec(
    "sitecustomize", [path for path in sys.path if os.path.abspath(path or os.curdir) != _here]
)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
try:
    from probe_runtime.auto import activation

    if (_given := activation.handed_on()) is not None:
        activation.begin_on_import(_given, is_child=True)
except Exception as e:  # nothing of ours may keep a process from starting
    sys.stderr.write(f"Probe: this process is not recorded: {type(e).__name__}: {e}\n")
