"""A fault of Probe's own never reaches the user's run."""

import pytest
from contract_faults import *  # noqa: F403  the tests that both frameworks have

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("pynative")]
