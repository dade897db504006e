"""Hold files and folders open and write into them, so that no write goes astray in the middle of a run.

A link may be put in a folder's place, and the run may close every descriptor of its process: neither changes where
something is written. A file that is replaced is whole at any time: the old one or the new one.
"""

import contextlib
import errno
import fcntl
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

#: The permissions of new files and folders; the umask may take some away.
FILE_MODE = 0o640
FOLDER_MODE = 0o750
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HIGH = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextlib.contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Put ``path`` into an OSError of the block that names no file, as one of a write, or no folder.

    One with a text and no errno, as a library in C++ raises it, gets EIO, without which the text would not be shown.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise OSError(errno.EIO, " ".join(map(str, error.args)), str(path)) from error
        if not (isinstance(error.filename, str) and os.sep in error.filename):
            error.filename = str(path)
            del error.filename2
        raise


class Descriptor:
    """Hold one file or folder open, and open it again where somebody else in the process closed it.

    The run may close every descriptor (`os.closerange`) and get the same number for a file of its own. The system gives
    the lowest number that is free, so ours is a high one, which no file of the run's gets before it has opened that
    many; and `fd` looks each time whether the number still means what was opened.

    number: the number without that look, for calls that are made too often for one.
    closed: whether `close` was called.
    """

    def __init__(self, opened: Callable[[], int]) -> None:
        """Open nothing yet. opened: opens it, and returns the number; called again after somebody else closed it."""
        self._opened = opened
        self.number = self._inode = self._device = -1
        self.closed = False

    @property
    def fd(self) -> int:
        """Return the number, after opening the file or folder again where somebody else closed it.

        Raises OSError when it cannot be opened: EBADF after `close`, ESTALE when its path leads to another by now.
        """
        if not self._is_ours():
            if self.closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self))
            self._hold(self._opened())
        return self.number

    def _is_ours(self) -> bool:
        try:
            found = os.fstat(self.number)
        except OSError:
            return False
        return found.st_ino == self._inode and found.st_dev == self._device

    def _hold(self, fd: int) -> None:
        found = os.fstat(fd)
        if self._inode not in (-1, found.st_ino):
            _close(fd)
            raise OSError(errno.ESTALE, "another one is in its place by now", str(self))
        self.number, self._inode, self._device = _raised(fd), found.st_ino, found.st_dev

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it where it is open; more calls do nothing."""
        if self._is_ours():
            _close(self.number)
        self.number, self.closed = -1, True
        vars(self).pop("_opened", None)  # it may refer to this object's owner, and is called no more


class Folder(Descriptor):
    """Hold a folder: a link that is put in its place later leads no write astray.

    path: where it was when it was opened.
    """

    def __init__(self, path: Path, below: Path | None = None) -> None:
        """Open nothing yet.

        below: the folder that the user chose, which may be a link, or lie behind one; what is under it may not.
        """
        super().__init__(lambda: self._walk(make=False))
        self.path = path
        self._below = path if below is None else below

    def __str__(self) -> str:
        return str(self.path)

    def make(self) -> Self:
        """Make the folder, with those missing above it, and open it. Raises OSError: ELOOP where one is a link."""
        make_folder(self._below)
        try:
            fd = self._walk(make=True)
        except FileNotFoundError:  # another process has just removed a folder above, empty by then (`keep`)
            fd = self._walk(make=True)
        self._hold(fd)
        return self

    def _walk(self, *, make: bool) -> int:
        fd, at = os.open(self._below, _FOLDER), self._below
        for name in self.path.relative_to(self._below).parts:
            at /= name
            try:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, FOLDER_MODE, dir_fd=fd)
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
            except OSError as error:
                if at.is_symlink():
                    why = "it is a link, and nothing is written through one"
                    raise OSError(errno.ELOOP, why, str(at)) from None
                raise OSError(error.errno, error.strerror, str(at)) from None
            finally:
                _close(fd)
            fd = inner
        return fd

    def new_file(self, name: str) -> int:
        """Make a file that is not there yet, and return its descriptor. Raises OSError (FileExistsError)."""
        try:
            return os.open(name, _NEW, FILE_MODE, dir_fd=self.fd)
        except OSError as error:
            error.filename = str(self.path / name)
            raise

    def remove(self, name: str) -> None:
        """Remove a file, if it is there. Raises OSError when it cannot."""
        with contextlib.suppress(FileNotFoundError), naming(self.path / name):
            os.unlink(name, dir_fd=self.fd)

    def replace(self, name: str, content: bytes | Iterable[bytes | memoryview]) -> None:
        """Write a file so that its name always refers to a complete one.

        content: all of it, or its pieces, which are written one by one.

        Raises OSError when it cannot, and what making the content raises, changing nothing. The content is first
        written to a new file with an unpredictable name. A link under the name is replaced, not followed.
        """
        with self.replacing(name) as fd:
            for piece in (content,) if isinstance(content, bytes) else content:
                rest = memoryview(piece)
                rest = rest.cast("B") if rest.nbytes else rest[:0]
                while rest:
                    rest = rest[os.write(fd, rest) :]

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[int]:
        """Yield a new file to write, which has the name once the block is left: see `replace`."""
        temporary = f".{name[:200]}.{os.urandom(8).hex()}.tmp"
        fd = self.new_file(temporary)
        try:
            with naming(self.path / name):
                try:
                    yield fd
                finally:
                    os.close(fd)
                os.replace(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(temporary)
            raise


def _raised(fd: int) -> int:
    """Return the same file under a number that is high, where the limit on open files leaves room for one."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH if limit < 0 else min(limit // 2, _HIGH))
    except OSError:
        return fd
    _close(fd)
    return high


def _close(fd: int) -> None:
    """Close a descriptor that is not written to any more: its number is free even if the system gives an error."""
    with contextlib.suppress(OSError):
        os.close(fd)


def locked(fd: int) -> bool:
    """Lock an open file or folder. Return False where somebody else has locked it; True where there are no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def replace_file(path: Path, content: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file as `Folder.replace` does, in a folder that is not held."""
    with Folder(path.parent) as folder:
        folder.replace(path.name, content)


def make_folder(path: Path) -> None:
    """Make ``path`` and what is missing above it. Raises OSError when it cannot."""
    missing = []
    folder = path
    while not folder.is_dir():
        missing.append(folder)
        if folder.parent == folder:
            break
        folder = folder.parent
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(folder, FOLDER_MODE)
    if missing and not path.is_dir():
        raise FileExistsError(errno.EEXIST, "there is a file in the way", str(path))
