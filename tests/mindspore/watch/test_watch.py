"""The contract on task `watch`, for MindSpore."""

from contract_watch import *  # noqa: F403
