"""`tensor_files: packed`: the contract of both frameworks."""

from contract_packs import *  # noqa: F403  the tests that both frameworks have
