"""The contract of `max_bytes` and `min_free_bytes`."""

import pytest
from contract_budget import *  # noqa: F403

pytestmark = pytest.mark.once
