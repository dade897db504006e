"""Run where mindtorch is, which is the environment `mindtorch` in hatch.toml; elsewhere all is left out.

mindtorch writes over mindspore.Tensor when it is imported, for the rest of the process: this folder is run alone.
"""

import importlib.util
import os

from importable import make_importable

os.environ.setdefault("GLOG_v", "3")  # errors only: its warnings hide what a failed test says

make_importable(__file__, "mindspore")

_found = importlib.util.find_spec("mindtorch")  # without an origin it is this very folder
collect_ignore_glob = ["*.py"] if _found is None or _found.origin is None else []

if not collect_ignore_glob:
    import mindspore
    import mindtorch  # noqa: F401  from here on `import torch` gives a torch whose tensors are MindSpore's

    # One thread for operators: with more they now and then wait seconds for each other on a busy machine.
    mindspore.set_context(runtime_num_threads=1)
