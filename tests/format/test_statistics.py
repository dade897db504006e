"""The table of statistics, the specification and the numbers that are computed say the same."""

import re
from importlib.resources import files

import numpy as np
from probe_format.statistics import KEYS, NOT_FINITE, WHOLE
from probe_format.tensors import stats_json, stats_of

PACKAGE = files("probe_format")


def test_the_specification_names_each():
    page = (PACKAGE / "spec" / "statistics.md").read_text().split("A statistic is")[0]
    assert set(KEYS) <= set(re.findall(r"`(\w+)`", page))


def test_each_is_computed_where_it_applies():
    assert tuple(stats_json(stats_of(np.ones(3)))) == WHOLE
    broken = stats_json(stats_of(np.array([np.nan, np.inf, -np.inf, 0.0]), zero_count=True))
    assert set(broken) == set(KEYS)
    assert all(broken[key] == 1 for key in NOT_FINITE)
