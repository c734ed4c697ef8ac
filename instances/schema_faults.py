"""What is wrong with a table read from outside, in this project's voice.

Pydantic finds the faults; here each becomes one line that names the place, the rule and the
value, shortened.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from instances.errors import InputError, did_you_mean

__all__ = ["MAX_SHOWN", "refuse", "say", "shown"]

#: Faults shown; all are counted.
MAX_SHOWN: Final = 20
_MAX_VALUE: Final = 60
_KINDS: Final[Mapping[str, str]] = {
    "bool_type": "true or false",
    "dict_type": "a table of keys",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a table of keys",
    "string_type": "text",
    "tuple_type": "a list",
}
_COMPARISONS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than": (">", "gt"),
    "greater_than_equal": (">=", "ge"),
    "less_than_equal": ("<=", "le"),
}


class _Shown(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxlong = self.maxother = _MAX_VALUE


def shown(value: Any) -> str:
    """Return a wrong value for a message, shortened."""
    try:
        text = _Shown().repr(value)
    except ValueError:  # a whole number with more digits than Python prints
        text = "a number of very many digits"
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 3]}..."


def _one_line(text: str) -> str:
    """Return a key as one line of a message, whatever is in it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(error: Any, place: Callable[[Sequence[int | str]], str], known: Sequence[str]) -> str:
    """Turn one pydantic error into one line.

    Parameters
    ----------
    error : dict
        One of ``ValidationError.errors()``.
    place : callable
        From a location (keys and positions) to words, ``[rollout] gpu`` say.
    known : sequence of str
        Keys known at that place, for the nearest one to an unknown key.
    """
    kind, value, context = error["type"], shown(error["input"]), error.get("ctx", {})
    where = _one_line(place(error["loc"]))
    if kind == "missing":
        return f"Missing {where}."
    if kind == "extra_forbidden":
        return f"Unknown key '{where}'.{did_you_mean(str(error['loc'][-1]), known)}"
    if kind == "value_error":
        return f"{context['error']}."
    if kind in _COMPARISONS:
        sign, limit = _COMPARISONS[kind]
        number = str(context[limit]).removesuffix(".0")
        return f"Expected {where} {sign} {number}, got {value}."
    if kind in _KINDS:
        return f"Expected {where} to be {_KINDS[kind]}, got {value}."
    rule = error["msg"].removeprefix("Input should be ")
    if kind == "too_long":
        rule = f"a list of {context['max_length']}"
    if kind in ("too_short", "string_too_short"):
        rule = "not empty"
    return f"Expected {where} to be {rule}, got {value}."


def refuse(faults: Sequence[str], total: int, source: str) -> NoReturn:
    """Raise one InputError for ``faults``, of ``total`` in all, each behind the source's name."""
    lines = [f"{source}: {fault}" for fault in faults[:MAX_SHOWN]]
    if total > len(lines):
        lines.append(f"{source}: ... {total} faults in all.")
    raise InputError("\n".join(lines))
