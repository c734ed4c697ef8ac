"""Read a TOML file, or say in one line why it cannot be read."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from instances.errors import InputError
from instances.input_files import refuse_device

__all__ = ["read_toml"]


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises
    ------
    InputError
        When the file cannot be read or is not TOML.
    """
    source = Path(path).name
    refuse_device(path)
    try:
        with open(path, "rb") as handle:
            return tomllib.load(handle)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.") from error
    except RecursionError as error:
        raise InputError(f"{source}: Not valid TOML: nested too deeply.") from error
    except ValueError as error:  # TOML and UTF-8 errors, too many digits, a NUL in the path
        raise InputError(f"{source}: Not valid TOML: {error}.") from error
