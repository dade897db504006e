"""Make the helpers beside the tests (trees.py) importable: importlib mode adds no folder.

And no example of a property is timed: the machine may be busy.
"""

import sys
from pathlib import Path

from hypothesis import settings

_HERE = Path(__file__).parent
for folder in (_HERE, _HERE.parent / "shared"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

settings.register_profile("probe", deadline=None)
settings.load_profile("probe")
