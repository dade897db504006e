"""The contract of `keep`."""

from contract_keep import *  # noqa: F403
