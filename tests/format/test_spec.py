"""The specification, the schemas and the README say the same."""

import json
import re
import sys
from importlib.resources import files
from pathlib import Path

import probe_format
import pytest
from blocks import texts_of
from corpus_cases import CORPUS

README = Path(__file__).parents[2] / "packages" / "probe-format" / "README.md"
PACKAGE = files("probe_format")
PAGES = {page.name: page.read_text() for page in (PACKAGE / "spec").iterdir()}
FILES = ("dump", "stack", "construct", "debug", "report")


def keys_of(schema):
    """Every key that a schema names as a property."""
    found, todo = set(), [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            found |= set(node.get("properties", {}))
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)
    return found


def test_there_is_a_page_for_each_part():
    assert set(PAGES) == {
        f"{name}.md" for name in (*FILES, "journal", "layout", "names", "statistics", "values", "watch")
    }
    first = {name: page.splitlines()[0] for name, page in PAGES.items()}
    assert first.pop("journal.md").endswith("version 2")
    assert all("version 1" in line for line in first.values())
    assert all("Normative" in page for page in PAGES.values())


@pytest.mark.parametrize("name", FILES)
def test_every_key_of_a_schema_is_in_the_specification(name):
    schema = json.loads((PACKAGE / "schema" / f"{name}.schema.json").read_text())
    text = "\n".join(PAGES.values())
    quoted = set(re.findall(r"`([\w]+)`", text)) | set(re.findall(r'"([\w]+)"', text))
    assert keys_of(schema) <= quoted


def test_every_folder_of_a_dump_is_in_what_probe_writes():
    from probe_format.layout import MODES

    written, accepted = PAGES["layout.md"].split("## 4. What msprobe writes")
    for mode in MODES:
        assert f"<dump_path>/{mode}/step<N>/" in written and f"`{mode}/step<N>/" not in accepted


def test_the_example_in_the_readme_runs(monkeypatch, capsys):
    def run(code, *arguments):
        monkeypatch.setattr(sys, "argv", ["-c", *map(str, arguments)])
        exec(code, {})
        return capsys.readouterr().out

    example, resources = texts_of(README, "python")
    out = run(example, CORPUS / "torch" / "misc2_nan_oc" / "dump")
    assert out.splitlines()[0] == "0 None pytorch 20"
    assert "  Torch.log.0.forward.output.0 torch.float32[5, 2]: NaN" in out
    assert run(example, CORPUS / "probe" / "torn").splitlines()[0] == "0 None pytorch 7"
    assert {"dump.md", "dump.schema.json"} <= set(run(resources).split())


def test_the_readme_names_only_what_there_is():
    table = [line for line in README.read_text().splitlines() if line.startswith("| `")]
    for line in table:
        owner, members = line.split("|")[1].strip(" `"), re.findall(r"`\.(\w+)", line)
        cls = getattr(probe_format, owner)
        fields = {f.name for f in getattr(cls, "__attrs_attrs__", ())}
        assert not [name for name in members if not hasattr(cls, name) and name not in fields], owner
