"""``python -m probe_format`` is the command ``probe``."""

import sys

from .cli import main

sys.exit(main())
