"""The dump format of Probe: names, statistics, journal, writer, reader, and the probe command."""

__version__ = "0.1.0"
__all__ = ["__version__"]
