"""Run the command ``probe`` as ``python -m probe_format``."""

import sys

from probe_format.cli.main import main

sys.exit(main())
