"""The contract of the key `export`."""

import pytest
from contract_export import *  # noqa: F403

pytestmark = pytest.mark.once
