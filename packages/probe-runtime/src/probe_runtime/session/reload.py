"""Take a configuration file's new content between two steps of a running job, and say what changed (key `reload`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import fields
from probe_format.errors import ProbeError
from probe_format.excerpts import brief, error_text, unsignalled

from probe_runtime.config.config import Config
from probe_runtime.config.source import ConfigSource
from probe_runtime.notice import notice

if TYPE_CHECKING:
    from .session import Session


class Reload:
    """Follow the file of a session's configuration.

    source: the file, and the arguments that win over it.
    """

    def __init__(self, source: ConfigSource) -> None:
        self.source = source
        self._complaint = ""
        if source.path is None:
            notice("Probe: reload and dump_enable are for a configuration file; there is none to read again.")
        elif source.arguments.get("dump_enable") is False:
            notice("Probe: dump_enable=False is an argument, and wins over the file: nothing will be dumped.")

    def look(self, session: Session) -> None:
        """Have the session take what the file has by now, if it has changed. Never raises."""
        if not self.source.changed():
            return
        before = session.config
        try:
            config = self.source.read_again(before)
            if changes := _changes(before, config):
                session.reconfigure(config)
        except unsignalled(Exception) as error:
            complaint = str(error) if isinstance(error, ProbeError) else error_text(error)
            if complaint != self._complaint:
                notice(
                    f"Probe: the settings stay as they are, as the configuration cannot be taken: {complaint}"
                )
            self._complaint = complaint
            return
        self._complaint = ""
        if changes:
            said = [text for text in config.warnings if text not in before.warnings]
            at = f"from step {session.step_number} on"
            notice("\n".join([f"Probe: {self.source.path} was read again; {at}: {changes}.", *said]))


def _changes(before: Config, after: Config) -> str:
    """Return the keys that differ in words; of a long value (a list, ranges) there is only the key."""
    told = []
    for name in (each.name for each in fields(Config) if each.eq):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            is_short = isinstance(old, str | int) and isinstance(new, str | int)
            told.append(f"{name} {brief(new)} (was {brief(old)})" if is_short else name)
    return ", ".join(told)
