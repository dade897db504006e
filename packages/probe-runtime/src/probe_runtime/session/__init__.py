"""Run a debugger from start to stop: its steps, the levels of other packages, and the checks before the run."""

from .any_session import AnySession
from .current import class_or_instance
from .debugger import Debugger
from .delegated_levels import KernelSession, SavingSession, kernel_package
from .framework import Framework, Opened
from .joint_step import JointStep
from .perturb import Move, perturbed
from .preflight import preflight
from .seed import Seeded, seed_process, set_variable
from .session import Session
from .step import DumpingStep, Install, RunningStep
from .token_gate import TokenGate
from .watcher import Watch, Watcher
from .watching import WatchedStep, WatchSession

__all__ = [
    "AnySession", "Debugger", "DumpingStep", "Framework", "Install", "JointStep", "KernelSession", "Move",
    "Opened", "RunningStep", "SavingSession", "Seeded", "Session", "TokenGate", "Watch", "WatchSession",
    "WatchedStep", "Watcher", "class_or_instance", "kernel_package", "perturbed", "preflight",
    "seed_process", "set_variable",
]  # fmt: skip
