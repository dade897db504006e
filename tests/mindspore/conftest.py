"""Make the helpers beside the tests (zoo.py, dumping.py) importable: importlib mode adds no folder."""

import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.append(_HERE)
