"""spec/kernel-config.md has a row for every key of the documents, and says of the code what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from probe_kernel import BACKENDS, AclDump, KernelDump, acl_settings, settings
from probe_kernel.control import description
from probe_kernel.control.option_rules import NOTES, RULES

SPEC = Path(description.__file__).parents[1] / "spec" / "kernel-config.md"
DOCUMENTS = Path(__file__).parents[1] / "document_keys.txt"
STATUSES = ("supported", "refused", "noted", "n/a")


def keys() -> dict[str, list[str]]:
    """Group -> the keys, in the order of the documents."""
    found: dict[str, list[str]] = {}
    for line in DOCUMENTS.read_text().splitlines():
        if line.startswith("["):
            group = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            group.append(line)
    return found


def rows() -> list[list[str]]:
    lines = [line for line in SPEC.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.mark.parametrize("key", [k for group in keys().values() for k in group])
def test_every_key_of_the_documents_has_a_row(key: str) -> None:
    assert [row for row in rows() if f"`{key}`" in row[0]], f"{key} has no row in {SPEC.name}"


def test_every_row_has_a_status() -> None:
    heads = {"name", "key", "value", "rule", "key of config.json"}
    backends = {f"`{b}`" for b in BACKENDS}
    level2 = SPEC.read_text().partition("## Level L2")[2]
    for row in rows():
        if row[0] in heads or row[0] in backends or row[0] in level2:
            continue
        assert any(row[-1].startswith(s) for s in STATUSES), row


def test_every_rule_of_the_code_is_named() -> None:
    text = SPEC.read_text()
    rules = {"unknown_options", "kinds_of_kernels", *(r.name for r in (*RULES, *NOTES))}
    assert not [name for name in rules if f"`{name}`" not in text]
    named = set(re.findall(r"\(`([a-z_]+)`(?:, `([a-z_]+)`)?\)", text))
    modules = {p.stem for p in SPEC.parent.parent.rglob("*.py")}
    assert {n for pair in named for n in pair if n} <= rules | modules


def test_every_backend_and_statistic_has_a_row() -> None:
    first = {row[0] for row in rows()}
    assert {f"`{b}`" for b in BACKENDS} <= first
    assert {f"`{s}`" for s in description.STATISTICS} <= first


def test_every_key_that_is_written_is_supported_there() -> None:
    """What settings() writes is called supported, and so is each key of the ACL file."""
    supported = {row[0].strip("`") for row in rows() if row[-1].startswith("supported")}
    written = {"common_dump_settings", "e2e_dump_settings"}
    for name, backend in BACKENDS.items():
        written |= {*backend.common, *backend.e2e}
        assert set(settings(KernelDump(path="/d"), name, {})["common_dump_settings"]) <= written
    assert written <= supported
    assert set(acl_settings(AclDump(path="/d"))["dump"]) <= supported
