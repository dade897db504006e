"""The steps of two processes never mix."""

from contract_processes import *  # noqa: F403  the tests that both frameworks have
