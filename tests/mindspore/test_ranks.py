"""Which process this is, before and after mindspore.communication is initialised."""

import pytest
from mindspore import communication
from mindspore.communication import GlobalComm
from probe_mindspore.ranks import current_rank, world_size

VARIABLES = ("RANK_ID", "RANK_SIZE", "MS_WORKER_NUM", "MS_ROLE")


@pytest.mark.parametrize(
    ("values", "rank", "size"),
    [
        ({}, None, None),
        ({"RANK_ID": "1", "RANK_SIZE": "2"}, 1, 2),
        ({"RANK_ID": "1", "MS_WORKER_NUM": "2"}, 1, 2),
        ({"RANK_ID": "3"}, 3, None),
        ({"RANK_ID": "0", "RANK_SIZE": "1"}, None, 1),
        ({"RANK_ID": "0", "RANK_SIZE": "1", "MS_ROLE": "MS_WORKER"}, 0, 1),
        ({"RANK_ID": "none", "RANK_SIZE": "2"}, None, None),
        ({"RANK_ID": "-1", "RANK_SIZE": "2"}, None, None),
        ({"RANK_SIZE": "8"}, None, None),
    ],
)
def test_before_initialisation_the_launcher_tells(monkeypatch, values, rank, size):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert (current_rank(), world_size()) == (rank, size)


def test_the_group_has_the_last_word(monkeypatch):
    monkeypatch.setenv("RANK_ID", "7")
    monkeypatch.setattr(GlobalComm, "INITED", True)
    monkeypatch.setattr(communication, "get_rank", lambda: 1)
    monkeypatch.setattr(communication, "get_group_size", lambda: 2)
    assert (current_rank(), world_size()) == (1, 2)
