"""The steps of two processes never mix."""

import pytest
from contract_processes import *  # noqa: F403  the tests that both frameworks have

pytestmark = pytest.mark.once
