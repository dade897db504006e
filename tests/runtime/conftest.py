"""Make the helpers beside the tests (streams.py) importable: importlib mode adds no folder.

And no example of a property is timed: the machine may be busy.
"""

import sys
from pathlib import Path

from hypothesis import settings

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.append(_HERE)

settings.register_profile("probe", deadline=None)
settings.load_profile("probe")
