"""Configurations made by hand to do harm: a ConfigError of bounded length, soon."""

import os
import subprocess
import sys

import pytest
from bounded import limit
from probe_format.errors import ConfigError
from probe_runtime.config import load, resolve

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
MERGES = "a0: &a0 {k: 1}\n" + "".join(
    f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)

YAML = {
    "laughs": (LAUGHS, "aliases"),
    "merges": (MERGES, "aliases"),
    "small laughs in a value": ("\n".join(LAUGHS.splitlines()[:4]).replace("a3", "step"), "not a key"),
    "itself": ("step: &a [1, *a]\n", "contains itself"),
    "itself as a key": ("&a {x: *a}\n", "contains itself"),
    "an empty int": ("step: !!int ''\n", ":1"),
    "a timestamp that is not one": ("a: 1\nstep: !!timestamp x\n", ":2"),
    "a date that is not one": ("step: 2001-99-99\n", ":1"),
    "a bool that is not one": ("step: !!bool maybe\n", ":1"),
    "a float that is not one": ("step: !!float ''\n", ":1"),
    "bytes that are none": ("step: !!binary '%%%'\n", ":1"),
    "an object": ("step: !!python/object/apply:os.system [ls]\n", ":1"),
    "a tag of a megabyte": ("step: !" + "x" * 500_000 + " 1\n", ":1"),
    "a number of a megabyte": ("step: " + "9" * 900_000 + "\n", ":1"),
    "a hexadecimal number of a megabyte": ("step: 0x" + "f" * 900_000 + "\n", ":1"),
    "a sexagesimal number of a megabyte": ("step: 1" + ":59" * 300_000 + "\n", ":1"),
    "a long duplicated key": (f"{'k' * 900}: 1\n{'k' * 900}: 2\n", ":2"),
    "deep lists": ("step: " + "[" * 100_000, "nested"),
    "less deep lists": ("step: " + "[" * 60 + "]" * 60, "nested"),
    "deep indentation": ("".join(" " * i + "a:\n" for i in range(1000)), "nested"),
    "over a megabyte": ("# " + "x" * (1 << 20) + "\n", "bytes"),
    "a control character": ("step: \x01\n", "not usable YAML"),
    "a set": ("!!set {task, level}\n", "holds a set"),
    "a list as a key": ("? [a, b]\n: 1\n", ":1"),
    "a surrogate in dump_path": ('dump_path: "\\ud800"\n', "dump_path"),
    "a surrogate as a key": ('"\\ud800": 1\n', "not a key"),
    "ranges": (
        "step: [" + ", ".join(f'"{i}000000-{i}999999"' for i in range(1, 500)) + "]\n",
        "over 1,000,000",
    ),
}
JSON = {
    "duplicated keys": ("{" + ", ".join(f'"k{i}": 1, "k{i}": 2' for i in range(40_000)) + "}", "there twice"),
    "a long duplicated key": ('{"' + "k" * 99_999 + '": 1, "' + "k" * 99_999 + '": 2}', "there twice"),
    "a huge int": ('{"step": ' + "9" * 5000 + "}", "not usable JSON"),
    "a negative huge int": ('{"step": -' + "9" * 4000 + "}", "negative"),
    "deep": ('{"step": ' + "[" * 500_000, "nested"),
    "less deep": ('{"step": ' + "[" * 700 + "]" * 700 + "}", "nested"),
    "NaN": ('{"step": NaN}', "step"),
    "infinity": ('{"async_bytes": Infinity}', "async_bytes"),
    "a surrogate in dump_path": ('{"dump_path": "\\ud800"}', "dump_path"),
    "a surrogate in apis": ('{"statistics": {"apis": "~\\ud800/x"}}', "apis"),
    "thousands of unknown keys": (
        "{" + ", ".join(f'"key{i}": 1' for i in range(5_000)) + "}",
        "and 4950 more",
    ),
    "a key of a megabyte": ('{"' + "k" * 900_000 + '": 1}', "not a key"),
    "a value of a megabyte": ('{"task": "' + "k" * 900_000 + '"}', "task"),
    "a list of wrong things": ('{"list": [' + "3, " * 200_000 + "3]}", "not a string"),
    "over a megabyte": ('{"task": "' + "k" * (1 << 20) + '"}', "bytes"),
    "empty": ("", "not JSON"),
    "a list": ("[]", "holds a list"),
}
CASES = [
    *((f"{n}.yaml", *case) for n, case in YAML.items()),
    *((f"{n}.json", *case) for n, case in JSON.items()),
]
RUN = """
import sys
from probe_runtime.config import load, resolve
from probe_format.errors import ConfigError
for path in sys.argv[1:]:
    try:
        resolve(load(path))
        print()
    except ConfigError as error:
        print(ascii(str(error)))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Name of each case -> what the error says; of one process, in which all of them are resolved."""
    folder = tmp_path_factory.mktemp("crafted")
    for name, text, _ in CASES:
        (folder / name).write_text(text, encoding="utf-8")
    names = [name for name, _, _ in CASES]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *names], preexec_fn=limit, capture_output=True, text=True, cwd=folder
    )
    assert (done.returncode, done.stderr) == (0, "")
    return dict(zip(names, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize(("name", "says"), [(name, says) for name, _, says in CASES])
def test_a_crafted_configuration_is_a_configerror_of_bounded_length(said, name, says):
    assert said[name].startswith(("'The configuration", '"The configuration')), said[name][:500]
    assert says in said[name], said[name][:2000]
    assert len(said[name]) < 60_000


def test_aliases_and_merges_of_people_still_work(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "step: &few [0, 2]\nrank: *few\nstatistics: &base\n  list: [relu]\ntensor:\n  <<: *base\n  data_mode: [all]\n"
    )
    config = resolve(load(path), dump_path=tmp_path)
    assert (config.step, config.rank, config.list) == ({0, 2}, {0, 2}, ("relu",))
    assert load(path)["tensor"] == {"list": ["relu"], "data_mode": ["all"]}


def test_what_is_fed_for_ever_or_never_is_refused(tmp_path):
    (tmp_path / "zeros.yaml").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.yaml")
    for name in ("zeros.yaml", "pipe.yaml"):
        with pytest.raises(ConfigError, match="neither a file nor a folder"):
            load(tmp_path / name)
