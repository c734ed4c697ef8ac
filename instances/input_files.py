"""Which paths are read at all: files, and pipes, but no device that never ends."""

from __future__ import annotations

import os
import stat

from instances.errors import InputError

__all__ = ["refuse_device"]


def refuse_device(path: str | os.PathLike[str]) -> None:
    """Refuse a character device such as /dev/zero, whose bytes never end.

    Raises
    ------
    InputError
        Naming the path. Whatever else is wrong with it is left to who opens it.
    """
    try:
        device = stat.S_ISCHR(os.stat(path).st_mode)
    except (OSError, ValueError):
        return
    if device:
        raise InputError(f"{path}: Expected a file, got a device.")
