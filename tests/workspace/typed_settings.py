"""What mypy says of arguments, which `hatch run lint:types` checks: an error that is gone leaves its comment unused."""

from probe_save import Saver
from probe_torch import PrecisionDebugger


def right() -> None:
    PrecisionDebugger(
        "config.yaml", level="mix", step=[0, "4-6"], list=["linear"], keep={"last": 5}, overwrite=True
    )
    Saver(dump_path="x", task="tensor", step=3, summary_mode="md5")


def wrong() -> None:
    PrecisionDebugger(stpe=[0])  # type: ignore[call-arg]
    PrecisionDebugger(step=[0.5])  # type: ignore[list-item]
    PrecisionDebugger(risk_level="focus")  # type: ignore[arg-type]
    Saver(overwrite="yes")  # type: ignore[arg-type]
