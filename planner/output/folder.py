"""Files that commands write: whole or not at all, and never over others unless asked."""

from __future__ import annotations

import contextlib
import csv
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from instances.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Writer", "csv_writer", "exists", "refuse_no_folder", "require_writable", "write_files"]


Writer = Callable[[Path], None]


def exists(path: Path) -> bool:
    """Return whether a path exists; one the system refuses to look up is bad input.

    Raises
    ------
    InputError
        When the name is too long, say.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}.") from error
    return True


def refuse_no_folder(path: Path, option: str) -> None:
    """Refuse what is there and is no folder.

    Raises
    ------
    InputError
        Naming the option, and what it names.
    """
    if exists(path) and not path.is_dir():
        what = "a file" if path.exists() else "a link to nothing"
        raise InputError(f"Expected {option} to name a folder, but {path} is {what}.")


def require_writable(directory: Path, names: tuple[str, ...], *, force: bool) -> None:
    """Refuse a directory that holds one of these files, or that is not a directory.

    Called before long work, so that nobody waits for a refusal.

    Raises
    ------
    InputError
        Naming the files in the way and the flag that allows to replace them.
    """
    refuse_no_folder(directory, "--out")
    there = [name for name in names if exists(directory / name)]
    if there and not force:
        raise InputError(
            f"{directory} already holds {', '.join(there)}. Give --force to replace them, or "
            f"another --out."
        )
    parent = directory.absolute().parent
    if not parent.is_dir():
        raise InputError(f"Expected the folder {parent} of --out to exist. Create it first.")


def write_files(directory: Path, writers: Mapping[str, Writer], *, force: bool) -> None:
    """Write all files, or none: into a hidden folder first, then moved into place at once.

    A folder that is not there yet appears by one rename. In one that is, the hidden folder is
    inside (it may be a mount point), and signals wait while the files are moved.

    Raises
    ------
    InputError
        When a file is in the way (see :func:`require_writable`) or the disk refuses.
    """
    directory = directory.absolute()
    require_writable(directory, tuple(writers), force=force)
    token = f".{secrets.token_hex(4)}"
    there = directory.exists()
    staging = directory / token if there else directory.parent / token
    try:
        try:
            staging.mkdir(mode=0o755)
            for name, write in writers.items():
                write(staging / name)
            with _signals_wait():
                if there:
                    for name in writers:
                        os.replace(staging / name, directory / name)
                else:
                    os.rename(staging, directory)
        finally:
            with _signals_wait(), contextlib.suppress(FileNotFoundError):
                shutil.rmtree(staging)
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror or error}.") from error


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Hold back Ctrl-C, SIGTERM and SIGHUP, where the system can, until the block is done."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def csv_writer(frame: pd.DataFrame) -> Writer:
    """Return what writes a table as CSV, quoting where a cell would end a record."""
    # a lone CR ends a record for many readers, and the writer quotes it only when told to
    text = frame.select_dtypes(exclude=["number", "bool"]).astype(str)
    odd = any(text[name].str.contains("\r", regex=False).any() for name in text)
    odd = odd or any("\r" in str(name) for name in frame.columns)
    quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL
    return lambda path: frame.to_csv(path, index=False, lineterminator="\n", quoting=quoting)
