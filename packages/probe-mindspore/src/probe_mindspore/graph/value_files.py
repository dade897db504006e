"""Write values to files and map them into memory again, to share them with the process that evaluates graphs."""

import mmap
import pickle
from pathlib import Path
from typing import Any

_ALIGNED = 64  # bytes, as MindSpore's own memory is


def write_values(path: Path, value: Any) -> None:
    """Write a value to a file, with the elements of its arrays as they lie in memory."""
    with path.open("wb") as file:
        places: list[tuple[int, int]] = []

        def put(elements: pickle.PickleBuffer) -> None:
            file.write(bytes(-file.tell() % _ALIGNED))
            places.append((file.tell(), elements.raw().nbytes))
            file.write(elements.raw())

        rest = pickle.dumps(value, 5, buffer_callback=put)
        end = file.tell()
        pickle.dump((rest, places), file)
        file.write(end.to_bytes(8, "little"))


def read_values(path: Path) -> Any:
    """Return the value of a file. Its arrays are the file itself, mapped: what is written to them stays here."""
    with path.open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    rest, places = pickle.loads(whole[int.from_bytes(whole[-8:], "little") :])
    return pickle.loads(rest, buffers=[whole[at : at + size] for at, size in places])
