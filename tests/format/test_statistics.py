"""The table of statistics, the schemas, the specification and the numbers that are computed say the same."""

import json
import re
from importlib.resources import files

import numpy as np
import pytest
from probe_format.statistics import BROKEN, KEYS, NOT_FINITE, TABLE, WHOLE
from probe_format.tensors import stats_json, stats_of

PACKAGE = files("probe_format")
KINDS = {"number": "statistic", "count": "count"}


@pytest.mark.parametrize("name", ["dump", "debug"])
def test_a_schema_has_each_statistic_and_its_kind(name):
    tensor = json.loads((PACKAGE / "schema" / f"{name}.schema.json").read_text())["$defs"]["tensor"]
    of = {"#/$defs/statistic": "number", "#/$defs/count": "count"}
    found = {key: of[each["$ref"]] for key, each in tensor["properties"].items() if each.get("$ref") in of}
    assert found == {each.key: each.kind for each in TABLE}
    assert set(tensor["dependentRequired"]) == set(BROKEN)


def test_the_specification_names_each():
    page = (PACKAGE / "spec" / "statistics.md").read_text().split("A statistic is")[0]
    assert set(KEYS) <= set(re.findall(r"`(\w+)`", page))


def test_each_is_computed_where_it_applies():
    assert tuple(stats_json(stats_of(np.ones(3)))) == WHOLE
    broken = stats_json(stats_of(np.array([np.nan, np.inf, -np.inf, 0.0]), zero_count=True))
    assert set(broken) == set(KEYS)
    assert all(broken[key] == 1 for key in NOT_FINITE)
