"""The contract of `max_bytes` and `min_free_bytes`."""

from contract_budget import *  # noqa: F403
