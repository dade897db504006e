"""The public names, listed by hand: adding or losing one is a decision and shows in this file's diff."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from members import EVERY, MEMBERS, tree

# What `from PACKAGE import NAME` offers.
PACKAGE_NAMES: dict[str, set[str]] = {
    "probe_analysis": {
        "Check", "Diff", "Exported", "Mapping", "NonFinite", "Ranks", "Report", "Trend", "__version__",
        "check", "diff", "export", "first_non_finite", "in_processes", "load_mapping", "on_dask", "ranks", "report",
        "trend",
    },
    "probe_fast": {"KINDS", "WAY", "Measured", "__version__", "four", "numbers", "take_floats"},
    "probe_format": {
        "DamagedError", "Dump", "FormatError", "ProbeError", "Rank", "Record", "Records", "Step", "Tensor",
        "__version__", "open",
    },
    "probe_runtime": {"__version__"},
    "probe_torch": {"PrecisionDebugger", "__version__", "perturb", "plan", "seed_all"},
    "probe_save": {"Saver", "__version__", "configure", "save", "step"},
    "probe_kernel": {
        "BACKENDS", "AclDump", "AclModel", "ControlFile", "Dump", "KernelDump", "__version__", "acl_settings",
        "load_settings", "mindspore", "open", "settings", "torch",
    },
    "probe_mindspore": {
        "MsprobeInitStep", "MsprobeStep", "PrecisionDebugger", "ProbeInitStep", "ProbeStep", "__version__", "perturb",
        "plan", "save", "save_grad", "seed_all", "step",
    },
}  # fmt: skip

# Doors: the rooms, and modules beside them, that other packages and analysis tools build on. Whatever is not listed
# is private to its package (test_boundary.py). A room has ``__all__``; a module offers what it defines without an
# underscore.
MODULE_NAMES: dict[str, set[str]] = {
    "probe_format.cli": {"Command", "add_dump", "add_part", "run_one_of", "shown", "whole_number"},
    "probe_format.errors": {
        "ConfigError", "DamagedError", "FormatError", "NonFiniteError", "ProbeError", "Problem",
        "refuse_other_version", "TooLargeError", "UsageError",
    },
    "probe_format.excerpts": {
        "NotAnException", "PassesThrough", "asked", "brief", "cut", "error_text", "from_signal", "text", "unsignalled",
    },
    "probe_format.journal": {
        "Count", "events", "Fold", "folded", "HOLE", "hole", "JournalContents", "JournalWriter", "lost", "MAGIC",
        "Pages", "read_journal", "Slot",
    },
    "probe_format.journal.events": {
        "back", "enter", "Event", "exit", "fault", "fill", "Form", "frames", "grad", "head", "LATER_PASS",
        "NODE", "opens", "over", "pgrad", "redo", "redone", "save", "Slot", "STRUCTURE", "tally",
    },
    "probe_format.json_floats": {"by_pattern", "take_floats"},
    "probe_format.jsonio": {
        "INFINITY", "MINUS_INFINITY", "decode", "dumps", "encode", "finite", "inert", "loads", "meant", "members",
        "number", "texts",
    },
    "probe_format.layout": {
        "CONSTRUCT", "DEBUG", "DUMP", "ERRORS", "JOURNAL", "MODES", "Mode", "RANK_DIR", "REPORT", "STACK", "STEP_DIR",
        "ROWS", "SMALLEST_TABLES", "StepDir", "TENSORS", "WATCH", "dump_path_of", "existing_dump", "find_steps",
        "holds_data", "is_dump_dir", "mode_of", "rank_dir", "watch_file",
    },
    "probe_format.names": {
        "ApiName", "BETWEEN_RANKS", "CLIP_GRAD", "DebugName", "Direction", "MAX_BYTES", "ModuleName", "Name",
        "NodeName", "OPTIMIZER", "ParamsGradName", "as_optimizer_gets", "first_forward",
        "parse_debug_name", "parse_name", "parsed", "safe_file_name", "tensor_file_name", "with_direction",
    },
    "probe_format.on_demand": {"on_demand"},
    "probe_format.own_code": {"FRAMEWORKS", "OWN_MODULES", "RUNNER", "is_own"},
    "probe_format.plain_files": {"in_memory", "is_file", "read_file", "read_plain", "refuse_link"},
    "probe_format.task": {"DUMPING", "TASKS", "Task"},
    "probe_format.terminal": {"ProgressLine", "printable", "say", "tell"},
    "probe_format.read": {
        "begins", "Dump", "journal_fold", "Loss", "Lost", "none_begins", "open", "Origin", "origins", "Progress",
        "Rank", "Record", "Records", "State", "STATES", "Step", "Suspect", "suspect_of", "suspects", "Tensor",
        "Verdict", "verify", "verify_rank",
    },
    "probe_format.safe_files": {
        "Descriptor", "FILE_MODE", "FOLDER_MODE", "Folder", "locked", "make_folder", "naming", "replace_file",
    },
    "probe_format.schema": {
        "broken", "Construct", "Document", "is_tensor", "kinds_asked_for", "kinds_of", "MASK", "may_begin",
        "non_finite", "only_views", "others", "parse_object", "parse_report", "Parts", "parts_of", "path_text",
        "Report", "Side", "Stack", "Suspect", "suspect_of", "tensors", "Value", "walk", "why_lost", "writes_into",
    },
    "probe_format.statistics": {
        "BROKEN", "COUNTS", "KEYS", "NOT_FINITE", "NUMBERS", "SKETCH_SUMS", "Statistic", "TABLE", "WHOLE",
    },
    "probe_format.suggest": {"did_you_mean", "nearest", "nearest_names"},
    "probe_format.tensors": {
        "NO_STATS", "PT_DTYPES", "Entry", "Place", "Stats", "array_at", "array_object", "blocks", "byte_count",
        "checksum_of", "crc32", "distinct", "entries", "entry_head", "file_crc32", "flushed", "load_npy",
        "load_pt", "map_npy", "memory_at", "narrow_name", "not_finite", "npy_bytes", "npy_head", "npy_header",
        "numbers_at", "opened", "parts_crc32", "pt_bytes", "pt_frame", "put_parts", "repeated", "rounded",
        "sketch_of", "stats_at", "stats_in", "stats_json", "stats_of", "stored", "widen", "with_denormals",
        "write_parts", "xor_hex",
    },
    "probe_format.values": {
        "CONTAINERS", "Describe", "Described", "Form", "MAX_DEPTH", "MAX_LEAVES", "TABLE", "UNKNOWN", "ValuePath",
        "ValueWalk", "first_met", "is_leaf", "json_key", "plain", "remembering", "unsupported",
    },
    "probe_format.watch": {
        "ABSENT", "Column", "KINDS", "Kind", "Row", "WatchFile", "WatchWriter", "free_place", "watch_files",
    },
    "probe_format.write": {
        "amend_report", "check_writable", "clear", "Claim", "Count", "Coverage", "discard", "Documents",
        "explain", "FORMAT_VERSION", "in_use", "Look", "NoRoom", "RankWriter", "reason", "recover",
        "recover_rank", "Recovery", "remains", "slot_of", "Summary", "Tally", "write_documents",
    },
    "probe_runtime.collect": {
        "AnyModuleTable", "Autograd", "Call", "Collectives", "Collector", "Emit", "EventStream", "faults_reported",
        "Gradients", "GradientTap", "guard", "guarded", "header_of", "kind_of", "models_of", "GradientTexts",
        "other_threads", "Part", "PendingWork", "Plan", "plan_of", "Recorder", "Segment", "SegmentState", "sheltered",
        "Target", "tracked_parameters", "TrackedModule", "TrackedParameter", "untold", "UNTOLD", "Walk",
    },
    "probe_runtime.auto": {"AutoSteps", "Containment", "Scene", "named_by_job", "search"},
    "probe_runtime.config": {
        "AllSettings", "Check", "Checked", "Condition", "Config", "ConfigEntry", "ConfigFile", "Findings", "Settings",
        "StepNumbers", "StepRule", "Then", "choice", "compact", "declared_keys", "flag", "key", "load",
        "parse_init_step", "path_problem", "resolve",
    },
    "probe_runtime.demo": {"WARM_UP", "bar", "demo_arguments", "summary", "timed_steps"},
    "probe_runtime.describe": {
        "FileNames", "LARGE", "Leaf", "Placement", "RunError", "StepFiles", "TensorOptions", "array_json",
        "is_handed_on", "options_of", "run_both", "summarise",
    },
    "probe_runtime.earlier_dump": {"EarlierDump"},
    "probe_runtime.environment": {"environment_number"},
    "probe_runtime.frameworks": {"framework_of", "frameworks", "packages"},
    "probe_runtime.notice": {"Notices", "log", "log_once", "notice", "user_frame"},
    "probe_runtime.patching": {
        "Apis", "Function", "Held", "Label", "Listed", "NEVER_SCANNED", "Nested", "Patches", "Place", "Prepared",
        "RISK_LEVELS", "Regions", "Scan", "Switch", "Tap", "api_list", "attributes_of", "bound_elsewhere",
        "function_of", "go_down", "guards", "is_function", "is_muted", "listening", "muted", "name_of",
        "original_of", "patches", "place",
        "quiet", "replaced", "resolve_owner", "stand_in", "suspended", "thread", "without_ours",
    },
    "probe_runtime.planning": {"CountedFiles", "DumpPlan", "loss_in", "outcome", "typical_numbers", "wanted"},
    "probe_runtime.select": {"NameFilter"},
    "probe_runtime.session": {
        "AnySession", "Debugger", "DumpingStep", "Framework", "Install", "JointStep", "KernelSession", "Move", "Opened",
        "SavingSession", "RunningStep", "Seeded", "Session", "TokenGate", "class_or_instance", "kernel_package",
        "Watch", "WatchSession", "WatchedStep", "Watcher", "perturbed",
        "preflight", "seed_process", "set_variable",
    },
    "probe_runtime.watch": {
        "Allowance", "Budget", "Columns", "Norms", "ParameterNames", "Ring", "StepSeen", "Trigger", "Triggers",
        "WatchedRow", "tensors_in",
    },
    "probe_kernel.cli": {"COMMANDS", "main"},
    "probe_kernel.convert": {
        "TYPES", "Conversion", "ConvertOutcome", "bin_files", "convert_all",
        "convert_file",
    },
    "probe_kernel.export": {"Exported", "export"},
    "probe_kernel.files": {
        "TARGETS", "BinFile", "Section", "Tensor", "convert", "open_bin",
    },
    "probe_kernel.graph": {"Frame", "Graph", "Operator", "Type", "read_ir"},
    "probe_kernel.level2": {
        "MindSporeKernels", "TorchKernels", "description_of", "find_npu", "mindspore_notes",
        "mindspore_problems", "torch_notes", "torch_problems",
    },
    "probe_kernel.mindspore": {"KernelRun", "dump", "find_backend"},
    "probe_kernel.read": {
        "Dump", "FileName", "Iteration", "Kernel", "KernelFolder", "KernelId", "LazyGraph",
        "Overflow", "Part", "Rank", "Row", "Table", "TensorSlot", "open",
    },
    "probe_kernel.torch": {"Patch", "dump", "replaced"},
    "probe_kernel.trace": {"Hit", "Line", "find", "parse_line"},
}  # fmt: skip

LISTED = {**PACKAGE_NAMES, **MODULE_NAMES}
ROOT = Path(__file__).resolve().parents[2]
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

# No environment has both frameworks: MindSpore wants another numpy. Each part runs where its framework is.
FRAMEWORK = {"probe_torch": "torch", "probe_mindspore": "mindspore"}


def load(module: str) -> ModuleType:
    """The module; skips where the framework of its package is not installed."""
    framework = FRAMEWORK.get(module.partition(".")[0])
    if framework is not None and importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not in this environment")
    return importlib.import_module(module)


def offered(path: Path) -> list[str]:
    """``__all__``, as the source says it; of a module without one, what it defines without an underscore."""
    found = []
    for node in tree(path).body:
        if isinstance(node, DEFINITIONS):
            found.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
            if names == ["__all__"]:
                assert node.value is not None
                return list(ast.literal_eval(node.value))
            found += names
    return [name for name in found if not name.startswith("_")]


def defined_in(path: Path, *kinds: type) -> set[str]:
    """The public functions and classes that a module defines."""
    nodes = [n for n in tree(path).body if isinstance(n, kinds or DEFINITIONS)]
    return {node.name for node in nodes if not node.name.startswith("_")}


def test_every_package_is_listed() -> None:
    assert set(PACKAGE_NAMES) == set(MEMBERS)


@pytest.mark.parametrize("module", sorted(LISTED))
def test_the_names_are_those_listed(module: str) -> None:
    names = offered(EVERY[module])
    assert set(names) == LISTED[module]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("module", sorted(LISTED))
def test_all_is_true(module: str) -> None:
    """What a door offers is there, and nothing public is left out."""
    loaded = load(module)
    assert set(getattr(loaded, "__all__", LISTED[module])) == LISTED[module]
    assert not [n for n in LISTED[module] if not hasattr(loaded, n)]
    assert (left_out := defined_in(EVERY[module]) - LISTED[module]) == set(), (
        f"public, not offered: {left_out}"
    )


def test_only_what_hands_names_on_has_all() -> None:
    """A module's public names are those without an underscore; ``__all__`` is for what hands on others' names."""
    having = {m for m, path in EVERY.items() if "__all__" in path.read_text() and path.name != "__init__.py"}
    # The first is what users import, the others are found by entry points.
    assert having == {"probe_kernel.mindspore", "probe_torch.saving", "probe_mindspore.saving"}


def test_a_function_without_an_underscore_is_used_elsewhere() -> None:
    """What no other module, no test and no table of entry points names is private to its module, or dead."""
    private = {m: defined_in(path, ast.FunctionDef) for m, path in EVERY.items() if m not in LISTED}
    users = [*EVERY.values(), *(p for d in ("tests", "bench") for p in (ROOT / d).rglob("*.py"))]
    users += [p for end in ("toml", "yaml") for p in (ROOT / "packages").rglob(f"*.{end}")]
    named = Counter(word for p in users for word in set(re.findall(r"\w+", p.read_text())))
    assert [f"{m}.{name}" for m, names in private.items() for name in names if named[name] == 1] == []


@pytest.mark.parametrize("module", sorted(LISTED))
def test_public_things_have_a_docstring(module: str) -> None:
    loaded = load(module)
    things = {name: getattr(loaded, name) for name in LISTED[module]}
    code = {n: t for n, t in things.items() if inspect.isclass(t) or inspect.isroutine(t)}
    assert not [name for name, thing in code.items() if not (thing.__doc__ or "").strip()]


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_an_unknown_name_is_an_ordinary_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = load(package).nonsense
