"""Write a file whole, or leave what was there: a temporary file takes its name once all is written."""

import contextlib
import os
from pathlib import Path


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file; what it was stays until all of it is written. A pipe or a device is written to as it is.

    Half of a surrogate pair, which a name can hold and UTF-8 cannot, is written as ``\\ud800``, as on a terminal.
    Raises OSError, with ``path`` in it, when it cannot be written.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    target = Path(os.path.realpath(path))
    direct = target.exists() and not target.is_file()
    draft = target if direct else target.with_name(f".{target.name[:200]}.{os.urandom(4).hex()}.tmp")
    try:
        draft.write_bytes(data)
        if not direct:
            os.replace(draft, target)
    except BaseException as error:
        if not direct:
            with contextlib.suppress(OSError):
                draft.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)
            del error.filename2
        raise
