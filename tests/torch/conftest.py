"""Make the helpers beside the tests (zoo.py, dumping.py) importable: importlib mode adds no folder."""

import sys
from pathlib import Path

_HERE = Path(__file__).parent
for folder in (_HERE, _HERE.parent / "shared"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
