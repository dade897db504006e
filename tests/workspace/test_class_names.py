"""One class name, one meaning: the same name stands twice only where the job is the same, or both are public."""

from __future__ import annotations

import ast
from collections import defaultdict

from members import EVERY, TWINS, tree

_KERNEL = "probe_kernel offers for MindSpore's own dumps what probe_format has for Probe's"
#: Names of several classes, but for the twins' -> why.
SHARED = {
    "Call": "probe_runtime.collect numbers it, and probe_analysis.calls reads it: the same call",
    "Dump": _KERNEL,
    "Exported": "what probe_analysis.export and probe_kernel.export have written",
    "Form": "what tensors of one dtype and shape have in common: probe_torch.tensors.plain, its twin tensors.forms",
    "Part": "public in two packages: of a record while it is made, and of a tensor's files in a kernel dump",
    "Patches": "that of probe_runtime, and the twins' from it",
    "ProbeCallback": "one for each trainer",
    "Rank": _KERNEL,
    "Report": "public in two packages: report.json, and the page that `probe report` makes",
    "Row": "public in two packages: of a watch file, and of a statistic.csv",
    "Tensor": _KERNEL,
    "Trigger": "what probe_runtime.watch holds of a condition that was met, and what report.json has of it",
    "Verdict": "what a check (probe_format.read) and a comparison (probe_analysis.diff) say of the whole",
}


def classes() -> dict[str, set[str]]:
    """Return for each class name, without underscore, the modules that define one."""
    found = defaultdict(set)
    for module, path in EVERY.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].add(module)
    return found


def test_a_class_name_has_one_meaning() -> None:
    several = {name: where for name, where in classes().items() if len(where) > 1}
    twins = {
        name for name, where in several.items()
        if {module.partition(".")[0] for module in where} == set(TWINS)
        and len({module.partition(".")[2] for module in where}) == 1
    }  # fmt: skip
    assert several.keys() - twins == SHARED.keys()
