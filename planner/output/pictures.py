"""Picture files: SVG, PNG or PDF without a browser or a window, equal input giving equal bytes.

Only matplotlib's figure objects are used, never pyplot: nothing global changes. Defaults stand in
place of the user's settings, ids of an SVG have a fixed salt, and no date is written.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from instances.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "FORMATS", "drawing", "require_format", "save_picture"]

#: File names end in one of these; the metadata leaves out dates and versions.
FORMATS: Final[dict[str, dict[str, Any]]] = {
    "svg": {"Date": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}

#: Eight colours that stay apart for most colour-blind readers (Okabe and Ito, 2008).
COLOURS: Final = (
    "#56B4E9", "#E69F00", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999",
)  # fmt: skip
_DPI: Final = 150
#: Whether :func:`drawing` holds: to set all defaults again costs as much as a few axes.
_HOLDS: Final = ContextVar("_HOLDS", default=False)


def require_format(path: Path) -> str:
    """Return the format that a file name asks for.

    Raises
    ------
    InputError
        When it is none of ``FORMATS``.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(
            f"Expected a picture's name to end in .{', .'.join(FORMATS)}, got '{path.name}'."
        )
    return suffix


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Draw within this context: defaults, a fixed salt, and no words about missing letters.

    Within another one nothing is to be done.
    """
    if _HOLDS.get():
        yield
        return
    import matplotlib as mpl

    token = _HOLDS.set(True)
    with mpl.rc_context(), warnings.catch_warnings():
        # a letter that the font lacks is drawn as a box
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams["svg.hashsalt"] = "rl-fleet-planner"
        # the font it ships; matplotlib looks for each of a dozen others at every text
        mpl.rcParams["font.family"] = ["DejaVu Sans"]
        try:
            yield
        finally:
            _HOLDS.reset(token)


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure drawn within :func:`drawing`; the file's name says the format.

    Raises
    ------
    InputError
        When the format is none of ``FORMATS``.
    """
    suffix = require_format(path)
    figure.savefig(
        path,
        format=suffix,
        dpi=_DPI,
        bbox_inches="tight",
        pad_inches=0.15,
        metadata=FORMATS[suffix],
    )
