"""Select the calls of a step that are recorded, by parts of their names and by a first and a last call.

The configuration gives both (its keys `list` and `scope`), and the records whose tensors get files (`tensor_list`).
What of these matched nothing in a step is told as well. spec/config.md has the rules.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence

from attrs import define, frozen
from probe_format.names import ModuleName, parsed, with_direction
from probe_format.suggest import nearest_names

from probe_runtime.config.config import Config


@frozen
class _Directions:
    forward: bool
    backward: bool


_ALL = _Directions(True, True)


@define
class _Window:
    """A part of a step, from the entry of one call to the exit of another, once per step.

    begin: the forward name of the first call.
    end: the forward name of the last call; None until the step ends.
    forward: whether forward records of the calls entered inside are wanted.
    backward: whether their backward records are.
    begin_at: the index of ``begin`` in the configuration's `scope`.
    end_at: the index of ``end`` there.
    state: ``before``, ``inside`` or ``after``.
    end_seen: whether ``end`` was entered.
    """

    begin: str
    end: str | None
    forward: bool
    backward: bool
    begin_at: int
    end_at: int
    state: str = "before"
    end_seen: bool = False

    def enter(self, name: str) -> bool:
        """Note that a call begins. Return whether it is inside."""
        if self.state == "before" and name == self.begin:
            self.state = "inside"
        self.end_seen |= name == self.end
        return self.state == "inside"

    def leave(self, name: str) -> None:
        if self.state == "inside" and name == self.end:
            self.state = "after"

    def missing(self) -> Iterator[tuple[str, int]]:
        """Yield (name for a message, index in `scope`) of each end that did not come, or came in the wrong order."""
        if self.state == "before":
            yield f"scope[{self.begin_at}]", self.begin_at
        if self.end is not None and self.state != "after":
            if not self.end_seen:
                yield f"scope[{self.end_at}]", self.end_at
            elif self.state == "inside":
                yield f"scope[{self.end_at}], which came before scope[{self.begin_at}]", self.end_at


def _windows(scope: tuple[str, ...]) -> tuple[_Window, ...]:
    """Return the windows of a scope of two names (or of no names), as `NameFilter` defines them.

    A backward pass runs through the calls in the opposite order, so a part of it is known while the forward pass
    runs: the part begins there where it ends in the backward pass.
    """
    if not scope:
        return ()
    first, last = (with_direction(name, "forward") for name in scope)
    first_is_forward, last_is_forward = first == scope[0], last == scope[1]
    if first_is_forward and last_is_forward:
        return (_Window(first, last, True, True, 0, 1),)
    if first_is_forward:
        return (_Window(first, None, True, False, 0, 0), _Window(last, None, False, True, 1, 1))
    return (_Window(last, first, False, True, 1, 0),)


class NameFilter:
    """Decide which calls of a step are recorded, by `scope` and `list` (by both, where both are given).

    Call `enter` when a call begins, `leave` when it ends (raised or not), and `backward` to learn whether the gradients
    of that call are wanted. Make one for each step. Safe to use from many threads, which share one scope.

    `list`: a call is wanted when an entry is part of its name; the backward record when an entry is part of
    the backward name. At level mix, what runs inside a wanted module is wanted too.

    `scope` [begin, end] is a part of the forward pass, in three states:

    - *before*: no call is wanted, until the begin is entered: *inside*.
    - *inside*: every call that is entered is wanted, begin and end and what runs inside them included,
      until the end is left: *after*.
    - *after*: no call is wanted, until the next step.

    Two forward names select the calls inside, forward and backward. Two backward names select only the backward
    records of the calls that run backward from the begin to the end. A forward begin and a backward end select the
    forward records of every call from the begin on, and the backward records of every call until the end's.
    The decision on a call holds for the step: running it again (recomputation) does not open the scope again.
    """

    def __init__(self, config: Config) -> None:
        self._list = config.list
        # The full name of a module's call selects that call alone: as a part, forward.1 would select forward.10 too.
        self._full = frozenset(name for name in config.list if isinstance(parsed(name), ModuleName))
        self._tensor_list = config.tensor_list
        self._expand = config.level == "mix"
        self._scope = config.scope
        self._windows = _windows(config.scope)
        self.active = bool(config.list or config.scope)
        """False when every call is wanted."""
        self._lock = threading.RLock()
        self._verdicts: dict[str, _Directions] = {}
        self._matched: set[tuple[str, str]] = set()

    def enter(self, name: str, ancestors: Sequence[str] = ()) -> bool:
        """Return whether to record the forward of ``name``, a call that begins now.

        ancestors: the names of all calls around it, in any order.

        Call it for every call, wanted or not: the scope depends on it.
        """
        if not self.active:
            return True
        with self._lock:
            verdict = self._verdicts.get(name)
            if verdict is None:
                verdict = self._verdicts[name] = self._judge(name, ancestors)
        return verdict.forward

    def leave(self, name: str) -> None:
        """Note that the call has ended, by return or by exception."""
        if self._windows:
            with self._lock:
                for window in self._windows:
                    window.leave(name)

    def backward(self, forward_name: str) -> bool:
        """Return whether to record the backward of a call that was entered, and a module's parameters_grad with it."""
        if not self.active:
            return True
        with self._lock:
            if verdict := self._verdicts.get(forward_name):
                return verdict.backward
            # The call began before the step did: it is in no scope, and only the list decides.
            return not self._windows and self._listed(forward_name, ()).backward

    def tensors(self, record_name: str) -> bool:
        """Return whether `tensor_list` asks for the tensor files of this record (task statistics)."""
        hits = [("tensor_list", entry) for entry in self._tensor_list if entry in record_name]
        self._matched.update(hits)
        return bool(hits)

    def _judge(self, name: str, ancestors: Sequence[str]) -> _Directions:
        scoped = self._scoped(name) if self._windows else _ALL
        listed = self._listed(name, ancestors) if self._list else _ALL
        return _Directions(scoped.forward and listed.forward, scoped.backward and listed.backward)

    def _scoped(self, name: str) -> _Directions:
        inside = [window for window in self._windows if window.enter(name)]
        return _Directions(any(w.forward for w in inside), any(w.backward for w in inside))

    def _listed(self, name: str, ancestors: Sequence[str]) -> _Directions:
        names = [name, *ancestors] if self._expand else [name]
        # Check all names: every entry that matches is to be remembered.
        forward = [self._hit(n) for n in names]
        backward = [self._hit(with_direction(n, "backward")) for n in names]
        return _Directions(any(forward), any(backward))

    def _hit(self, name: str) -> bool:
        hits = [("list", e) for e in self._list if (e == name if e in self._full else e in name)]
        self._matched.update(hits)
        return bool(hits)

    def unmatched(self, all_names: Iterable[str]) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return (filter, value, nearest names) of each entry that matched nothing.

        filter: "list", "tensor_list", "scope[0]" or "scope[1]", with a remark where the end came before the begin.
        all_names: the names of all calls of the step, forward ones at least.
        """
        entries = [("list", e) for e in self._list] + [("tensor_list", e) for e in self._tensor_list]
        with self._lock:
            missing = [entry for entry in dict.fromkeys(entries) if entry not in self._matched]
            missing += [(what, self._scope[i]) for w in self._windows for what, i in w.missing()]
        if not missing:
            return []
        names = dict.fromkeys(all_names)
        names.update(dict.fromkeys([with_direction(name, "backward") for name in names]))
        return [(what, value, nearest_names(value, names)) for what, value in missing]
