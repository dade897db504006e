"""``python -m probe_format`` is the command ``probe``."""

import sys

from probe_format.cli.main import main

sys.exit(main())
