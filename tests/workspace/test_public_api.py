"""The public names, listed by hand: adding or losing one is a decision and shows in this file's diff."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest
from members import MEMBERS, modules

# What `from PACKAGE import NAME` offers.
PACKAGE_NAMES: dict[str, set[str]] = {
    "probe_format": {
        "DamagedError", "Dump", "FormatError", "ProbeError", "Rank", "Record", "Records", "Step", "Tensor",
        "__version__", "open",
    },
    "probe_torch": {"PrecisionDebugger", "__version__", "seed_all"},
    "probe_save": {"Saver", "__version__", "configure", "save", "step"},
    "probe_kernel": {
        "BACKENDS", "AclDump", "AclModel", "ControlFile", "Dump", "KernelDump", "__version__", "acl_settings",
        "load_settings", "mindspore", "open", "settings", "torch",
    },
    "probe_mindspore": {
        "MsprobeInitStep", "MsprobeStep", "PrecisionDebugger", "ProbeInitStep", "ProbeStep", "__version__", "save",
        "save_grad", "seed_all", "step",
    },
}  # fmt: skip

# Modules that other packages and analysis tools build on.
MODULE_NAMES: dict[str, set[str]] = {
    "probe_format.arrays": {"PT_DTYPES", "load_npy", "load_pt", "npy_bytes", "pt_bytes", "write_parts"},
    "probe_format.checksum": {"crc32", "crc32_hex", "xor_hex"},
    "probe_format.config": {"Config", "as_mapping", "check_rank", "load", "resolve"},
    "probe_format.errors": {
        "ConfigError", "DamagedError", "FormatError", "ProbeError", "Problem", "UsageError",
    },
    "probe_format.journal": {"MAGIC", "JournalContents", "JournalWriter", "read_journal"},
    "probe_format.jsonio": {"dumps", "finite", "fragment", "loads", "number"},
    "probe_format.names": {
        "ApiName", "DebugName", "Direction", "ModuleName", "Name", "NodeName", "ParamsGradName",
        "backward_of", "is_name", "parse_name", "safe_file_name", "tensor_file_name",
    },
    "probe_format.read": {
        "Dump", "Rank", "Record", "Records", "Step", "Tensor", "assemble_journal", "open",
    },
    "probe_format.recover": {"Recovery", "recover", "recover_rank"},
    "probe_format.select": {"Fields", "NameFilter", "RankFilter", "StepFilter", "fields_of"},
    "probe_format.stats": {"NO_STATS", "Stats", "stats_json", "stats_of"},
    "probe_format.verify": {"STATES", "Progress", "State", "Verdict", "verify", "verify_rank"},
    "probe_kernel.binfile": {"BinFile", "Section", "open_bin"},
    "probe_kernel.cli": {"COMMANDS", "Command", "main"},
    "probe_kernel.conversion": {"TYPES", "Conversion", "Outcome", "Sources", "bin_files", "convert_file"},
    "probe_kernel.converting": {"convert_all"},
    "probe_kernel.destination": {"Destination", "short_name"},
    "probe_kernel.dtypes": {"Dtype", "decode", "dtype_of", "shaped"},
    "probe_kernel.dumpdata": {"FORMATS", "DumpData", "Piece", "Tensor", "parse_dump_data"},
    "probe_kernel.export": {"Exported", "cells_of", "export"},
    "probe_kernel.filename": {"MOST_SLOTS", "FileName", "Kind", "flat", "is_file_name", "parse_file_name"},
    "probe_kernel.find": {"Hit", "Line", "find", "parse_line"},
    "probe_kernel.ir": {"Frame", "Graph", "Operator", "Type"},
    "probe_kernel.irtext": {"parse_ir", "read_ir"},
    "probe_kernel.layouts": {"TARGETS", "convert"},
    "probe_kernel.level2": {
        "MindSporeKernels", "TorchKernels", "description_of", "find_npu", "mindspore_notes", "mindspore_problems",
        "torch_notes", "torch_problems",
    },
    "probe_kernel.mindspore": {"KernelRun", "dump", "find_backend"},
    "probe_kernel.torch": {"Patch", "dump", "replaced"},
    "probe_kernel.loaders": {"READERS", "Contents", "Part", "Reader", "contents"},
    "probe_kernel.mapping": {"MAPPING", "Mapping", "read_mapping"},
    "probe_kernel.match": {"Contradiction", "How", "Match", "agrees", "contradictions", "match", "stem"},
    "probe_kernel.opdebug": {"is_opdebug", "opdebug_json"},
    "probe_kernel.overflow": {"Overflow", "is_overflow", "read_overflow"},
    "probe_kernel.read": {
        "Dump", "Iteration", "Kernel", "Layout", "LazyGraph", "Place", "Rank", "Slot", "open",
    },
    "probe_kernel.statistic": {"STATISTIC", "Row", "Table", "Value", "read_table", "table_text"},
    "probe_kernel.synthesis": {"NUMBERS", "numbers", "row", "rows"},
    "probe_format.write": {"FORMAT_VERSION", "RankWriter", "documents_bytes", "write_documents"},
}  # fmt: skip

LISTED = {**PACKAGE_NAMES, **MODULE_NAMES}
EVERY = {name: path for package in MEMBERS for name, path in modules(package).items()}

# No environment has both frameworks: MindSpore wants another numpy. Each part runs where its framework is.
FRAMEWORK = {"probe_torch": "torch", "probe_mindspore": "mindspore"}


def load(module: str) -> ModuleType:
    """The module; skips where the framework of its package is not installed."""
    framework = FRAMEWORK.get(module.partition(".")[0])
    if framework is not None and importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not in this environment")
    return importlib.import_module(module)


def literal_all(path: Path) -> set[str]:
    """``__all__`` as the source says it, without importing."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and "__all__" in [
            t.id for t in node.targets if isinstance(t, ast.Name)
        ]:
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{path} has no __all__")


def test_every_package_is_listed() -> None:
    assert set(PACKAGE_NAMES) == set(MEMBERS)


@pytest.mark.parametrize("module", sorted(LISTED))
def test_the_names_are_those_listed(module: str) -> None:
    assert literal_all(EVERY[module]) == LISTED[module]
    assert set(load(module).__all__) == LISTED[module]


@pytest.mark.parametrize("module", sorted(m for m in EVERY if not m.endswith("__main__")))
def test_all_is_true(module: str) -> None:
    """Every module has ``__all__``: no doubles, each name there, and nothing public left out."""
    loaded = load(module)
    names = loaded.__all__
    assert len(set(names)) == len(names)
    assert not [n for n in names if not hasattr(loaded, n)]
    defined = {
        node.name
        for node in ast.parse(EVERY[module].read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
    }
    assert defined <= set(names), f"public but not in __all__: {sorted(defined - set(names))}"


@pytest.mark.parametrize("module", sorted(LISTED))
def test_public_things_have_a_docstring(module: str) -> None:
    loaded = load(module)
    things = {name: getattr(loaded, name) for name in loaded.__all__}
    code = {n: t for n, t in things.items() if inspect.isclass(t) or inspect.isroutine(t)}
    assert not [name for name, thing in code.items() if not (thing.__doc__ or "").strip()]


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_an_unknown_name_is_an_ordinary_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = load(package).nonsense
