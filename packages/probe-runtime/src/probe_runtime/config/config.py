"""Declare every key of the configuration once, with its check, default and meaning (spec/config.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import attrs
from probe_format.task import TASKS, Task

from .condition import Condition, conditions
from .keys import IDLE_SECTIONS, Key, declared_keys, key, own_key
from .mapping_keys import Keep, Then, kept_steps, reaction
from .number_ranges import Numbers, parse_numbers
from .step_rule import first_number, step_rule
from .value_checks import (
    choice,
    choices,
    flag,
    names,
    one_or_names,
    output_path,
    positive,
    source_file,
    tables_address,
)

TensorFiles = Literal["one", "packed"]
Level = Literal["L0", "L1", "mix", "debug", "L2"]
Precision = Literal["low", "high"]
RiskLevel = Literal["ALL", "FOCUS", "CORE"]
SummaryMode = Literal["statistics", "md5", "xor"]
Device = Literal["host", "device"]
FileFormat = Literal["npy", "bin"]
Compiled = Literal["not_seen", "eager"]
GraphTaps = Literal["beside", "always"]
RecordWhen = Literal["training", "grad"]
OnNonFinite = Literal["record", "raise", "break"]

SECTIONS = tuple(TASKS)
"""The tasks. Each may have a section of its own in the file."""


@attrs.frozen(kw_only=True)
class Config:
    """What to dump, and how. `resolve` makes it with checks; this class checks nothing.

    An empty rank, step, scope or list means all.
    """

    task: str = key(
        SECTIONS[0],
        "; ".join(f"`{task.name}`: {task.says}" for task in TASKS.values()),
        choice(*SECTIONS, known=IDLE_SECTIONS),
    )
    level: Level = key(
        "L1",
        "`L0` modules, `L1` functions, `mix` both; `debug` single-point save and `L2` kernels are read here and "
        "done by other packages",
        choice(*get_args(Level)),
    )
    dump_path: Path = key(
        attrs.Factory(lambda: Path("dump_path").absolute()),
        "a directory; made when it is not there",
        output_path,
        fixed=True,
    )
    rank: Numbers = key(
        Numbers(),
        'list of numbers and ranges, `[1, "4-6", "8-64/8"]`: both ends included, every 8th',
        parse_numbers,
    )
    step: Numbers = key(Numbers(), "as `rank`", parse_numbers)
    precision: Precision = key(
        "low", "`low`, `high`", choice(*get_args(Precision)), kernel_check=choice(*get_args(Precision))
    )
    extra_info: bool = key(True, "true, false: write stack.json and construct.json", flag)
    async_dump: bool = key(
        False,
        "true, false: put statistics and tensor files off, so that the step waits less. A file counts when a later "
        "event confirms it; after a kill an unconfirmed one is marked `lost`",
        flag,
    )
    dump_enable: bool | None = key(
        None,
        "true, false: whether steps are dumped now; the file is read again when it changes, as with `reload`",
        flag,
    )
    risk_level: RiskLevel = key(
        "ALL", "`ALL`, `FOCUS`, `CORE`: which functions at L1 and mix", choice(*get_args(RiskLevel))
    )
    scope: tuple[str, ...] = key((), "two full names of calls, `[begin, end]`", names, section=True)
    list: tuple[str, ...] = key(
        (), "parts of names; a call is recorded when one of them is in its name", names, section=True
    )
    tensor_list: tuple[str, ...] = key(
        (), "parts of names whose tensors get files too (task `statistics`)", names, section=True
    )
    data_mode: frozenset[str] = key(
        frozenset({"all"}),
        "`all` alone, or any of `forward`, `backward`, `input`, `output`",
        choices("forward", "backward", "input", "output", alone="all"),
        section=True,
    )
    summary_mode: SummaryMode = key(
        "statistics",
        "`statistics`; `md5`: CRC-32 too, 8 hex digits under the key `md5`; `xor`: instead of statistics the XOR "
        "of the 64-bit words, `0x` and 16 hex digits under `md5`",
        choice(*get_args(SummaryMode)),
        section=True,
        kernel_check=one_or_names(*get_args(SummaryMode)),
    )
    async_bytes: int = own_key(1 << 30, "whole number above 0: bytes that may wait to be written", positive)
    views: bool = own_key(
        False,
        "true, false: also record pure views and factories (view, clone, zeros, ...) at L1 and mix",
        flag,
        section=True,
    )
    apis: Path | None = own_key(None, "a file: your own list of functions", source_file, section=True)
    zero_count: bool = own_key(False, "true, false: also count zeros", flag, section=True)
    sketch: bool = own_key(
        False,
        "true, false: also a sketch of each tensor of floats, by which `probe diff` sees smaller differences",
        flag,
        section=True,
    )
    overwrite: bool = own_key(False, "true, false: write over an earlier dump in `dump_path`", flag)
    max_faults: int = own_key(
        100,
        "whole number above 0: after so many faults of Probe's own at one place, that place is switched off",
        positive,
    )
    share: bool = own_key(
        True, "true, false: tensor files of equal bytes are one file with several names; see below", flag
    )
    tensor_files: TensorFiles = own_key(
        "one",
        "`one`: each tensor has a file; `packed`: a step's files are appended to a few packs, which costs far less "
        "where tensors are small; see below",
        choice(*get_args(TensorFiles)),
    )
    compiled: Compiled = own_key(
        "not_seen",
        "`not_seen`: a region of torch.compile is recorded as one call; `eager`: it runs uncompiled while a step "
        "is dumped, and is seen; see below",
        choice(*get_args(Compiled)),
    )
    graph_taps: GraphTaps = own_key(
        "beside",
        "`beside`: what MindSpore compiles is read from a copy that runs beside it; `always`: where that cannot "
        "be, the run itself has taps, and its last bits may change; see below",
        choice(*get_args(GraphTaps)),
    )
    optimizer_grad: bool = own_key(
        False,
        "true, false: at L0 and mix, also record the gradients that an optimizer's step gets (after DDP or FSDP "
        "averaged them, after clipping), as `optimizer_grad`",
        flag,
    )
    step_ends: str = own_key(
        "update",
        "`update`, `all`, `last:<optimizer>` or `calls:<package.module:function>`: when a step ends under `probe run`; "
        "see below",
        step_rule,
        fixed=True,
    )
    first_step: int | str = own_key(
        0,
        "a whole number, or `auto` (the optimizers' own count): the number of the first step under `probe run`",
        first_number,
        fixed=True,
    )
    record_when: RecordWhen = own_key(
        "training",
        "`training`: under `probe run`, forwards in training mode begin a step; `grad`: all that have gradients",
        choice(*get_args(RecordWhen)),
        fixed=True,
    )
    keep: Keep | None = own_key(
        None, "`{last: K}`: only the last K steps that were dumped stay; see below", kept_steps
    )
    on_non_finite: OnNonFinite = own_key(
        "record",
        "`record`, `raise` or `break`: what happens at the call where values begin that are not finite; see below",
        choice(*get_args(OnNonFinite)),
    )
    max_bytes: int | None = own_key(
        None,
        "whole number above 0: bytes that the processes of the run may have in `dump_path` together; see below",
        positive,
    )
    min_free_bytes: int | None = own_key(
        None,
        "whole number above 0: bytes that stay free on the file system of `dump_path`; see below",
        positive,
    )
    export: str | None = own_key(
        None,
        "`parquet`, or the address of a folder: each step that has ended is also written as tables, to "
        "`<dump_path>/parquet` or there; see below",
        tables_address,
        fixed=True,
    )
    when: tuple[Condition, ...] = own_key(
        (),
        "list of conditions: `non_finite`, `norm(parameters_grad) > 1e3`, `spike(loss) > 5`, `SIGUSR1`, `file: PATH`, "
        "a function or `package.module:function`: the steps around one that meets any are kept; see below",
        conditions,
        fixed=True,
    )
    then: Then | None = own_key(
        None,
        "`{level: mix, task: tensor, steps: 1, times: 1}`: how the steps after such a one are dumped, and how often "
        "that happens; see below",
        reaction,
        fixed=True,
    )
    moments: bool = own_key(
        False, "true, false: task `watch` also has the norms of the optimizers' moments", flag, section=True
    )
    updates: bool = own_key(
        False,
        "true, false: task `watch` also has the norms of what updates changed, for which it keeps a second copy of the "
        "weights",
        flag,
        section=True,
    )
    models: tuple[str, ...] = own_key(
        (),
        "names of classes: the models, where `probe run` is not to take what optimizers train",
        names,
        fixed=True,
    )
    reload: bool = own_key(
        False,
        "true, false: read the file again at each step() when it has changed; see below",
        flag,
        fixed=True,
    )
    device: Device = key(
        "host", "where statistics are computed", choice(*get_args(Device)), section=True, kernel_only=True
    )
    file_format: FileFormat = key(
        "npy",
        "what tensors are saved as, on O2",
        choice(*get_args(FileFormat)),
        section=True,
        kernel_only=True,
    )
    statistic_category: tuple[str, ...] = ()
    """The statistics that `summary_mode` lists at level "L2", as MindSpore and msprobe name them."""
    warnings: tuple[str, ...] = attrs.field(default=(), eq=False)
    """Sentences for the user: keys without effect, settings that hinder each other."""

    @property
    def kind(self) -> Task:
        """Return what the task records, keeps and writes."""
        return TASKS[self.task]

    @property
    def tables(self) -> str | None:
        """Return the address of the tables that steps become while the run goes on; None where they do not."""
        where = str(self.dump_path / "parquet") if self.export == "parquet" else self.export
        return where if self.kind.calls else None

    @property
    def wants_files(self) -> bool:
        """Return whether tensors get files, all or some."""
        return self.kind.files or bool(self.tensor_list)

    def wants_step(self, step: int) -> bool:
        """Return whether a step is dumped: those in `step`, all without it, and none where `dump_enable` is false."""
        return self.dump_enable is not False and (not self.step or step in self.step)

    def wants_rank(self, rank: int | None) -> bool:
        """Return whether a process is dumped. One without a rank (None) counts as rank 0."""
        return not self.rank or (rank or 0) in self.rank


_DECLARED = declared_keys(Config)

KEYS: Mapping[str, Key] = {name: declared for name, declared in _DECLARED.items() if not declared.kernel_only}
"""The keys at every level."""

_KERNEL_KEYS: Mapping[str, Key] = {
    # A key with other values at level "L2" belongs to MindSpore's kernel dump there, which has only a section.
    name: attrs.evolve(declared, check=declared.kernel_check, section=True)
    if declared.kernel_check
    else declared
    for name, declared in _DECLARED.items()
}


def keys_of(level: object) -> Mapping[str, Key]:
    return _KERNEL_KEYS if level == "L2" else KEYS
