"""What Probe warns of is told, and never ends or changes a run."""

import pytest
from contract_warnings import *  # noqa: F403  the tests that both frameworks have

pytestmark = pytest.mark.once
