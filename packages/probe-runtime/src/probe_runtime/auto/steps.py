"""Call start, stop and step for a script that does not: find its steps by calls of models and optimizers' updates.

A step begins with the first training forward (an outermost call of a trained model, with gradients, in training mode,
not inside a backward pass), and ends with the update. Collecting stops as soon as the update is over, so what the run
does between two steps (evaluation, logging, saving) is in no step; what it does without gradients in the middle of a
step is left out as well.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any

from attrs import define, field
from probe_format.errors import NonFiniteError, ProbeError
from probe_format.excerpts import error_text, unsignalled
from probe_format.terminal import tell

from probe_runtime.config.step_rule import StepRule
from probe_runtime.session import Session

from .scene import Scene


def _sheltered(event: Callable[..., None]) -> Callable[..., None]:
    """Return an event's method such that a fault in it ends the finding of steps, and not the run."""

    @functools.wraps(event)
    def method(self: AutoSteps, *args: Any, **kwargs: Any) -> None:
        if self.over or os.getpid() != self.pid:  # a data loader's worker
            return
        regions, calls = self._regions, self._calls
        try:
            with self._lock:  # threads may train at once
                regions, calls = self._regions, self._calls
                try:
                    event(self, *args, **kwargs)
                except NonFiniteError:  # it is for the run (`on_non_finite`)
                    raise
                except unsignalled(Exception) as e:
                    self.met(e)
        except BaseException:
            # It is of the run: the update or call does not begin then, and no event will tell its end.
            self._regions, self._calls = min(regions, self._regions), min(calls, self._calls)
            raise

    return method


@define(eq=False)
class AutoSteps:
    """Find the steps of a run, and have them dumped.

    session: gets start, stop and step.
    scene: what trains.
    rule: when a step ends.
    first: the number of the first step; None until it is taken from the optimizers' own count.
    in_any_mode: whether a forward in evaluation mode counts as training if it has gradients.
    is_child: whether another process of the run started this one, which may have nothing to train.
    say: takes a line for the user.
    look: looks for the function that the rule names; called at each event that may have brought it.
    over: whether nothing is looked at any more.
    found: {"models": ..., "optimizers": ..., "step_ends": ...} of the first step; None before it.
    """

    session: Session
    scene: Scene
    rule: StepRule
    first: int | None = 0
    in_any_mode: bool = False
    is_child: bool = False
    say: Callable[[str], None] = lambda text: tell(f"Probe: {text}")
    look: Callable[[], None] = lambda: None
    over: bool = False
    found: dict[str, Any] | None = None
    pid: int = field(factory=os.getpid)
    _lock: Any = field(factory=RLock)
    _calls: int = 0
    _open: bool = False
    _collecting: bool = False
    _regions: int = 0
    _marked: list[int] = field(factory=list)
    _stepped: set[int] = field(factory=set)
    _turns: list[set[int]] = field(factory=list)
    _waiting: bool = False
    _grad_in_evaluation: bool = False
    _is_forward_seen: bool = False
    _follows_on: bool = False
    _has_begun: bool = False
    _told: set[str] = field(factory=set)
    _ready_for: list[int] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        if self.first:
            self.session.set_init_step(self.first)

    @property
    def updating(self) -> bool:
        """Return whether an update is going on."""
        return self._regions > 0

    # -- what is seen ---------------------------------------------------------------------------------

    @_sheltered
    def called(self, module: Any, *, differentiated: bool = False) -> None:
        """Take the beginning of an outermost call of a module.

        differentiated: whether it is known to have gradients, where the framework does not show it yet.
        """
        self.look()
        if self.rule.kind == "calls" or not self.scene.optimizers() or self.scene.in_backward():
            return
        has_gradients = differentiated or self.scene.takes_gradients()
        if not has_gradients and not self._collecting:
            return
        root = self.scene.root_of(module)
        if root is None:
            return
        trains = self.scene.is_training(module, root)
        if has_gradients and (trains or self.in_any_mode):
            self._forward()
            return
        self._grad_in_evaluation |= has_gradients
        if not has_gradients and not trains:  # an evaluation in the middle of a step
            self._rest()

    @_sheltered
    def optimizer_made(self, optimizer: Any) -> None:
        """Take an optimizer that has just been made, or that trains more than before."""
        self.scene.add(optimizer)
        self.look()
        if not self._open:
            self._make_ready()

    @_sheltered
    def update_begins(self, may_start: bool = True) -> None:
        """Take the beginning of an optimizer's step, or of what calls one (a scaler, which may skip it).

        may_start: whether hooks on optimizers can be added now.
        """
        self._regions += 1
        if self._regions == 1:
            self._marked = []
            # Another optimizer of the same step, or one whose closure runs the forward, or no forward was seen.
            if may_start and not self._collecting and self.rule.kind != "calls":
                self._is_forward_seen |= self._open
                self._begin()

    @_sheltered
    def whole_step_begins(self, optimizers: Sequence[Any]) -> None:
        """Take the beginning of a call that is forward, backward and update; `update_ends` takes its end.

        optimizers: the optimizers that the call may update with.
        """
        self.look()
        if not self._regions and self.rule.kind != "calls":
            self._forward()
        self.update_begins()
        self._marked += map(id, optimizers)

    @_sheltered
    def stepping(self, optimizer: Any) -> None:
        """Take the optimizer whose step has begun."""
        self._marked.append(id(optimizer))

    @_sheltered
    def update_ends(self) -> None:
        """Take the end of what `update_begins` took the beginning of."""
        self._regions -= 1
        if self._regions or self.rule.kind == "calls":
            return
        self._stepped.update(self._marked)
        if not self.scene.in_backward():
            self._updated()
        elif not self._waiting:  # an optimizer in the backward pass: the update is over when the pass is
            self._waiting = True
            self.scene.after_backward(self.backward_ended)

    @_sheltered
    def backward_ended(self) -> None:
        """Take the end of a backward pass that has updated."""
        self._waiting = False
        self._updated()

    @_sheltered
    def function_begins(self) -> None:
        """Take the beginning of a call that is a step by the rule."""
        self.look()
        self._calls += 1
        if self._calls == 1:
            self._begin()

    @_sheltered
    def function_ended(self) -> None:
        """Take the end of a call that is a step by the rule."""
        self._calls -= 1
        if not self._calls:
            self._end()

    def function_runs(self) -> None:
        """Take note that a call which is a step by the rule had begun before its function was found."""
        self._once(
            f"{self.rule.which} was found in the middle of its first call (it was made after the optimizer, or there "
            f"is none): step {self.session.step_number} has what ran from there until the next call began."
        )
        self.function_begins()

    @_sheltered
    def finish(self) -> None:
        """Close what is open, and say what was found: the run is over."""
        self._follows_on = False
        if self._stepped or self.rule.kind == "calls":
            self._end()
        self.session.close()
        self.over = True
        if self.found is None and (self.scene.optimizers() or not self.is_child):
            self.say(f"no step was found, so nothing is recorded: {self._why_none()}.")

    def met(self, error: Exception) -> None:
        """Give up because of an error of ours."""
        fault = "" if isinstance(error, ProbeError) else " (a fault of Probe's; please report it)"
        self.give_up(f"{error_text(error) if fault else error}{fault}")

    def give_up(self, why: str) -> None:
        """Look at nothing any more. why: for the user."""
        self.over = True
        self.say(f"looking for steps ended: {why}")
        try:
            self.session.close()
        except unsignalled(Exception) as e:
            self.say(error_text(e))

    # -- what is done ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        models = list(self.scene.models())
        self._has_begun = True
        wants_model = not models and self.session.config.level != "L1"
        if not models and self.scene.named:
            self._once(f"no module is of a class that models names: {', '.join(self.scene.named)}.")
        elif wants_model:
            self._once("there is no model yet; where no optimizer trains it, name its class: models: [Net].")
        if wants_model:
            return
        if self.found is None:
            self._introduce(models)
        if self.first is None:
            self.first = self.scene.steps_taken()
            self.session.set_init_step(self.first)
        if self._ready_for != list(map(id, models)):
            self.session.unready()
        self._open = self._collecting = True
        try:
            self.session.start(models[0] if len(models) == 1 else models or None, None)
        except BaseException:  # a signal's handler has raised: the next forward tries again
            self._collecting = False
            raise

    def _forward(self) -> None:
        # Not every optimizer has stepped, and the next forward begins.
        if self._stepped and self.rule.is_lazy:
            self._turn()
            self._end()
        if not self._collecting:
            self._begin()
        self._is_forward_seen = True

    def _rest(self) -> None:
        if self._collecting:
            self._collecting = False
            self.session.stop()

    def _end(self) -> None:
        try:
            self._rest()
        finally:
            self._stepped, self._open, self._is_forward_seen = set(), False, False
            self.session.step()  # step n is the nth update, recorded or not
        if self._follows_on:
            self._begin()
        else:
            self._make_ready()

    def _make_ready(self, ahead: int = 0) -> None:
        models = self.scene.models()
        self._ready_for = list(map(id, models))
        self.session.make_ready(*models, ahead=None if self.first is None else ahead)

    def _updated(self) -> None:
        self._rest()
        if not (self._is_forward_seen or self._follows_on):
            self._find_forwards()
            self._end()
        elif self.rule.ends(self.scene.optimizers(), self._stepped):
            self._end()
        elif self.rule.is_lazy:
            self._make_ready(ahead=1)  # the next forward tells whether it is of another step

    def _find_forwards(self) -> None:
        """Change what is looked for: an optimizer has stepped, and no forward of its model was seen before."""
        lost = "All that is recorded of step {} is the update."
        if not self._open:
            lost = "Step {} has no record."
        if self._grad_in_evaluation and not self.in_any_mode:
            self.in_any_mode = True
            why = (
                "its model was called in evaluation mode only: such calls count as training from now on (record_when: "
                "grad)."
            )
        elif self.scene.models():
            self._follows_on = True
            why = (
                "no call of its model was seen (a compiled training function?): from now on a step begins where the "
                "last one ended."
            )
        else:
            why = "no model was found that holds its parameters."
        self._once(f"an optimizer has stepped, and {why}", f" {lost.format(self.session.step_number)}")

    def _turn(self) -> None:
        """Say once that optimizers take turns, where they do."""
        if len(self._turns) < 3 and self._stepped not in self._turns:
            self._turns.append(set(self._stepped))
        if len(self._turns) == 2:
            live = self.scene.optimizers()
            last = f"last:{len(live) - 1}"
            self._once(
                f"the {len(live)} optimizers take turns, and each turn counts as a step. For one step from the first "
                f"to the last of them, set step_ends: all, or step_ends: {last}."
            )

    def _introduce(self, models: list[Any]) -> None:
        optimizers = self.scene.optimizers()
        self.found = {
            "models": [type(one).__name__ for one in models],
            "optimizers": [type(one).__name__ for one in optimizers],
            "step_ends": str(self.rule),
        }
        self.session.about["found"] = self.found
        rule = {
            "update": "a step ends with an update",
            "all": "a step ends when every optimizer has stepped",
            "last": f"a step ends when optimizer {self.rule.which} has stepped",
            "calls": f"each call of {self.rule.which} is a step",
        }[self.rule.kind]
        self.say(
            f"found the model {', '.join(self.found['models']) or '(none)'} and the optimizer "
            f"{', '.join(self.found['optimizers']) or '(none)'}; {rule} (step_ends: {self.rule})."
        )

    def _once(self, text: str, of_this_time: str = "") -> None:
        if text not in self._told:
            self._told.add(text)
            self.say(text + of_this_time)

    def _why_none(self) -> str:
        if self.rule.kind == "calls":
            called = "was called, but there was no model" if self._has_begun else "was never called"
            return f"{self.rule.which} {called}"
        if not self.scene.optimizers():
            return (
                "no optimizer was there (a loop that changes weights by itself is not seen; name its function: "
                'step_ends: "calls:package.module:function")'
            )
        return "no model of an optimizer was called with gradients"
