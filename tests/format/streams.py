"""Streams of journal events as a run makes them: nested calls, gradients, late numbers, kills; in version 1."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Event = dict[str, Any]

_SCALARS = st.sampled_from(
    [None, {"type": "int", "value": 5}, {"type": "int", "value": 2**70}, {"type": "str", "value": "\udc80"}]
)
_APIS = ("Torch.add", "Functional.linear", "Tensor.__mul__")
_MODULES = ("Module.fc.Linear", "Module.0.act.ReLU")
_NUMBERS = {"Max": 1.0, "Min": -1.0, "Mean": "NaN", "Norm": 2.0}
_LATE = {"Max": 3.0, "Min": 3, "Mean": 3.0, "Norm": "inf", "nan_count": 0}


class _Maker:
    """Draws one stream; counts calls and the refs of tensors whose rest comes later."""

    def __init__(self, draw: Any, deferred: bool) -> None:
        self.draw = draw
        self.deferred = deferred
        self.refs: list[int] = []
        self.files: list[int] = []
        self.counts: dict[str, int] = {}
        self.calls: list[tuple[str, str, str | None]] = []
        self.events: list[Event] = []

    def tensor(self) -> Event:
        out: Event = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], **_NUMBERS}
        if self.deferred and self.draw(st.booleans()):
            ref = len(self.refs) + len(self.files) + 1
            if self.draw(st.booleans()):
                self.refs.append(ref)
                out = {**out, **dict.fromkeys(_NUMBERS), "$": ref}
            else:
                self.files.append(ref)
                out = {**out, "$f": ref, "data_name": f"f{ref}.pt"}
        return out

    def value(self, depth: int = 0) -> Any:
        kind = self.draw(st.integers(0, 4 if depth < 2 else 2))
        if kind < 2:
            return self.tensor()
        if kind == 2:
            return self.draw(_SCALARS)
        if kind == 3:
            return [self.value(depth + 1) for _ in range(self.draw(st.integers(0, 2)))]
        keys = self.draw(st.lists(st.sampled_from(["a", "$", "$f", "k", "type"]), max_size=2, unique=True))
        return {key: self.value(depth + 1) for key in keys}

    def values(self) -> list[Any]:
        return [self.value() for _ in range(self.draw(st.integers(0, 2)))]

    def call(self, parent: str | None, depth: int) -> None:
        draw = self.draw
        module = draw(st.booleans())
        base = draw(st.sampled_from(_MODULES if module else _APIS))
        n = self.counts.get(base, 0)
        self.counts[base] = n + 1
        forward = f"{base}.forward.{n}" if module else f"{base}.{n}.forward"
        backward = f"{base}.backward.{n}" if module else f"{base}.{n}.backward"
        event: Event = {"k": "enter", "n": forward, "u": parent}
        if draw(st.booleans()):
            event["s"] = draw(st.integers(0, 2))
        if draw(st.integers(0, 4)) == 0:
            event["r"] = draw(st.sampled_from([0, 2]))
        elif draw(st.integers(0, 4)):
            event["a"], event["w"] = self.values(), {"k": self.value()}
            if module:
                event["p"] = {"weight": self.tensor()}
            if draw(st.booleans()):
                event["x"] = draw(st.sampled_from([{"in_backward": True}, {"label": "a"}, {"label": "b"}]))
        self.events.append(event)
        if depth < 2:
            for _ in range(draw(st.integers(0, 2))):
                self.call(forward, depth + 1)
        end = draw(st.integers(0, 5))
        if end == 0:
            self.events.append({"k": "exit", "n": forward, "e": "ValueError: \udc80"})
        elif end < 5:  # else: killed inside, or another thread's
            event = {"k": "exit", "n": forward, "o": self.values()}
            if draw(st.booleans()):
                event["g"] = [draw(st.sampled_from([1, 2, [None, [None, None]], None])) for _ in range(2)]
            self.events.append(event)
            self.calls.append((forward, backward, parent))

    def after(self) -> None:
        draw = self.draw
        kind = draw(st.integers(0, 6))
        if kind < 3 and self.calls:
            forward, backward, parent = draw(st.sampled_from(self.calls))
            if kind < 2:
                event: Event = {
                    "k": "back",
                    "n": backward,
                    "u": parent and parent.replace("forward", "backward"),
                }
                event["t"] = draw(st.integers(0, 2))
                for key in draw(st.sampled_from(["i", "o", "io"])):
                    paths = st.sampled_from([[0], [1], [3], [1, 0], [1, 1], [2, "a"]])
                    event[key] = [[draw(paths), self.tensor()]]
                if draw(st.integers(0, 3)) == 0:
                    event["partial"] = True
                self.events.append(event)
            else:
                self.events.append({"k": "redo", "n": forward, "a": self.values(), "w": {}})
                if draw(st.booleans()):
                    self.events.append({"k": "redone", "n": forward, "o": self.values(), "g": [1, 1]})
        elif kind == 3:
            name = f"{draw(st.sampled_from(_MODULES))}.parameters_grad"
            self.events.append(
                {"k": "pgrad", "n": name, "q": draw(st.sampled_from("wb")), "v": self.tensor()}
            )
        elif kind == 4:
            self.events.append({"k": "fault", "w": draw(st.sampled_from("xy")), "m": "E: \udc80"})
        elif kind == 5:
            self.events.append({"k": "tally", "d": {"counts": {"seen": {"calls": draw(st.integers(0, 9))}}}})
        else:
            self.events.append({"k": "frames", "i": draw(st.integers(0, 2)), "f": ["File a.py, line 1"]})

    def late(self) -> None:
        """Numbers and confirmed files, anywhere: other threads write them."""
        for refs, make in (
            (self.refs, lambda ref: {"k": "stat", "r": [[ref, dict(_LATE)]]}),
            (self.files, lambda ref: {"k": "file", "r": [ref]}),
        ):
            for ref in refs:
                if self.draw(st.integers(0, 2)):
                    self.events.insert(self.draw(st.integers(0, len(self.events))), make(ref))


@st.composite
def streams(draw: Any, deferred: bool | None = None) -> list[Event]:
    """The events, of which the first is the head."""
    late = draw(st.booleans()) if deferred is None else deferred
    header: Event = {"task": "statistics", "level": draw(st.sampled_from(["L0", "L1", "mix"]))}
    header |= {"framework": "pytorch", "dump_data_dir": None}
    if late:
        header["deferred"] = True
    maker = _Maker(draw, late)
    for _ in range(draw(st.integers(0, 2))):
        maker.call(None, 0)
    for _ in range(draw(st.integers(0, 5))):
        maker.after()
    maker.late()
    return [{"k": "head", "header": header}, *maker.events]
