"""The contract on task `watch`, for torch."""

from contract_watch import *  # noqa: F403
