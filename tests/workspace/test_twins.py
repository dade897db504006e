"""The packages of the two frameworks: the same job has the same room and the same file name in both."""

from __future__ import annotations

from members import TWINS, modules

# Modules that both packages have.
PAIRS = {
    "auto", "callbacks", "debugger", "demo", "demo_model", "dropout", "perturb", "ranks", "replay", "saving", "seed",
    "hooks", "hooks.collector", "hooks.gradients", "hooks.modules",
    "hooks.nodes", "hooks.parameter_gradients", "hooks.scalers",
    "loop", "loop.scene", "loop.taps",
    "patching", "patching.apis", "patching.callers", "patching.introspection", "patching.patches",
    "patching.regions", "patching.wrappers",
    "planning", "planning.planned_leaf", "planning.planner", "planning.training",
    "session", "session.session", "session.step",
    "tensors", "tensors.leaf", "tensors.objects", "tensors.tensor_view",
    "watch", "watch.norms", "watch.updates", "watch.watcher",
}  # fmt: skip

# Modules that one of them has alone, and why the other has nothing of the kind.
ONLY_TORCH = {
    "aside": "MindSpore has no modes and no __torch_function__ that would see what Probe computes",
    **dict.fromkeys(("callbacks.lightning", "callbacks.transformers"), "trainers for torch"),
    "compiling": "PyNative code never runs while MindSpore compiles: graphs are the room `graph` there",
    "hooks.leaf_gradients": "hooks.gradients watches leaves like any other tensor on MindSpore",
    "hooks.recompute": "what Cell.recompute() runs again on MindSpore is counted as further calls",
    "hooks.swaps": "MindSpore has no swap_tensors",
    "hooks.written_views": "MindSpore's tensors do not show the base of a view",
    "hooks.updates": "an optimizer of MindSpore is called with the gradients",
    "optimizer_hooks": "MindSpore keeps no table of hooks on optimizers",
    "training_threads": "MindSpore hands a gradient to its hook: none is read from a parameter",
    "patching.operators": "what Python calls as an operator in MindSpore is a Primitive, and is in its lists",
    "patching.fakes": "MindSpore has no fake tensors",
    "patching.torch_tables": "MindSpore keeps no tables of its functions by identity",
    "planning.stand_ins": "MindSpore has no tensors without memory, so the step is planned on the net itself",
    "session.level2": "probe_kernel does all of level L2 on MindSpore: no single call is watched for",
    "submodules": "patching.primitives walks MindSpore's Cells, and those of a torch built on it",
    **dict.fromkeys(("tensors.device_table", "tensors.partials"), "MindSpore here runs on the CPU alone"),
    "tensors.inflight": "MindSpore's collectives are complete when their handle was waited for: hooks.collector",
    "tensors.statistics": "the numbers of an accelerator come late, and MindSpore's tensors are read on the CPU alone",
    "tensors.plain": "a tensor of MindSpore is read in one way only",
    "tensors.sums": "hooks.autograd adds any two gradients of MindSpore",
}
ONLY_MINDSPORE = {
    "graph": "torch has no mode in which whole steps are compiled without Python",
    "hooks.autograd": "torch shows its autograd graph; MindSpore's shows less, and differently in each version",
    "hooks.uncompiled_hooks": "MindSpore compiles the hooks of an argument into the graph that gets it",
    "hooks.tensor_hooks": "MindSpore 2.7 shows no graph, so hooks are put on whole tensors there",
    "module_kind": "torch has one class of modules; mindtorch's come beside MindSpore's Cells",
    "patching.bytecode_jit": "torch.compile is seen by is_compiling; MindSpore's jit must be guarded",
    "patching.compile_hook": "the same",
    "patching.jit_guard": "the same",
    "patching.reach": "torch calls Python when it compiles a step, so that its updates are seen from inside",
    "patching.primitives": "torch has no operators as objects in the attributes of modules",
    "patching.traced_jit": "torch.compile is seen by is_compiling; MindSpore's jit must be guarded",
    "planning.kept_state": "torch plans on a copy; MindSpore's net makes a step, and is put back as it was",
    "tensors.forms": "tensors.plain has it for torch, whose plain tensors take another way",
}


def names_in(package: str) -> set[str]:
    """Return the modules of a package without the package's name; those of the room `graph` count as one."""
    names = {m.partition(".")[2] for m in modules(package)} - {""}
    return {"graph" if name.startswith("graph.") else name for name in names}


def test_the_same_job_has_the_same_file_name() -> None:
    torch, mindspore = (names_in(package) for package in TWINS)
    assert torch & mindspore == PAIRS
    assert torch - mindspore == set(ONLY_TORCH)
    assert mindspore - torch == set(ONLY_MINDSPORE)
