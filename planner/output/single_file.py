"""Single files that commands write: whole or not at all, and never over others unless asked."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from instances.errors import InputError
from planner.output.folder import exists

__all__ = ["require_new_file", "write_file"]


def require_new_file(path: Path, option: str, *, force: bool) -> None:
    """Refuse a file that is there, a folder, or a file in a folder that is not.

    Called before long work, so that nobody waits for a refusal.

    Raises
    ------
    InputError
        Naming what is in the way, and the flag that allows to replace a file.
    """
    if path.is_dir():
        raise InputError(f"Expected {option} to name a file, but {path} is a folder.")
    if exists(path) and not force:
        raise InputError(f"{path} is already there. Give --force to replace it.")
    parent = path.absolute().parent
    if not parent.is_dir():
        raise InputError(f"Expected the folder {parent} of {option} to exist. Create it first.")


def write_file(path: Path, option: str, write: Callable[[Path], None], *, force: bool) -> None:
    """Write one file: under another name beside it first, then moved into place.

    Parameters
    ----------
    write : callable
        Writes to the path it is given, which ends as ``path`` does.

    Raises
    ------
    InputError
        When something is in the way (see :func:`require_new_file`) or the disk refuses.
    """
    require_new_file(path, option, force=force)
    temporary = path.with_name(f".{secrets.token_hex(4)}{path.suffix}")
    try:
        try:
            write(temporary)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        raise InputError(f"{path}: Cannot write: {error.strerror or error}.") from error
