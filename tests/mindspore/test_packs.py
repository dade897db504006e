"""`tensor_files: packed`: the contract of both frameworks."""

import pytest
from contract_packs import *  # noqa: F403  the tests that both frameworks have

pytestmark = pytest.mark.once
