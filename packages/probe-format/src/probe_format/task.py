"""List the tasks that a configuration can name, and what each records and writes (spec/dump.md, spec/watch.md)."""

from collections.abc import Mapping

from attrs import frozen


@frozen
class Task:
    """Describe one task.

    says: what it gives, for the page on the configuration.
    calls: whether steps are dumped, with a record for each call; else each step is one row of a watch file.
    values: whether values are looked at.
    files: whether every recorded tensor gets a file.
    """

    name: str
    says: str
    calls: bool = True
    values: bool = True
    files: bool = False

    @property
    def picks_files(self) -> bool:
        """Return whether tensors get a file where they are asked for by name (`tensor_list`)."""
        return self.calls and self.values and not self.files


_TABLE = (
    Task("statistics", "numbers about every tensor"),
    Task("tensor", "those and the tensors as files", files=True),
    Task("structure", "which call runs inside which, with stacks, no values", values=False),
    Task("watch", "a few norms of every step, in one file (see below)", calls=False),
)
"""The first is the default."""

TASKS: Mapping[str, Task] = {task.name: task for task in _TABLE}
DUMPING = tuple(task.name for task in _TABLE if task.calls)
"""Those that may be in a dump.json."""
