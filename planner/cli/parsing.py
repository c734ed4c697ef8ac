"""How commands are read: help in panels that ends in an example, and errors in one voice."""

from __future__ import annotations

import re
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from instances.errors import did_you_mean
from planner.cli.options import OUTPUT_PANEL
from planner.output.terminal import EXIT_BAD_INPUT, fail

__all__ = ["Command", "Group"]

#: The base of all faults of usage; its home differs between versions of typer.
_UsageError: Final[Any] = typer.BadParameter.__mro__[1]
_NOT_ONE_OF: Final = re.compile(r"'(?P<got>.*)' is not one of (?P<known>'.*')\.?$", re.DOTALL)
_GOT: Final = re.compile(r"'(?P<got>.*)' is not ", re.DOTALL)
_NOT_NUMBER: Final = re.compile(r"\bvalid (?P<kind>integer|int|number|float)\b")
_RANGE: Final = re.compile(
    r"\b(?P<side>greater|less) than (?P<equal>or equal to )?(?P<limit>-?[\d.]+)$"
)
#: A type as typer writes it (``<int range>``, ``INTEGER RANGE``), and a shorter word for it.
_TYPE: Final = re.compile(r"(?<= )<?(int|integer|float|str|text)(?: range)?>?$", re.IGNORECASE)
_TYPE_WORDS: Final = {"int": "N", "integer": "N", "float": "X", "str": "NAME", "text": "NAME"}
#: A hyphen that no line ends after.
_NO_BREAK: Final = "\u2011"
#: A short option wider than this starts its help on the next line.
_FIRST_COLUMN: Final = 28


class Command(TyperCommand):
    """A command whose plain ``--help`` has panels and an example."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; what cannot be read is said as all our errors are."""
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            if ctx.resilient_parsing:  # shell completion: half a line is no fault
                raise
            fail(_words(error, self, ctx), EXIT_BAD_INPUT)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options without a panel, then panel by panel; the general ones last."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                usual = f"{param.param_type_name.capitalize()}s"
                name = getattr(param, "rich_help_panel", None) or usual
                first = _plain(record[0]) if name != "Arguments" else record[0].split(" <")[0]
                panels.setdefault(name, []).append((first, _unbroken(record[1])))
        if OUTPUT_PANEL in panels:
            panels[OUTPUT_PANEL] = panels.pop(OUTPUT_PANEL)  # last
        for name, records in panels.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records, col_max=_FIRST_COLUMN)

    def get_help(self, ctx: Any) -> str:
        """Return the help; words with a hyphen are in one piece."""
        return super().get_help(ctx).replace(_NO_BREAK, "-")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example as it is typed: its lines are never wrapped."""
        if self.epilog:
            with formatter.section("Example"):
                for line in self.epilog.splitlines():
                    formatter.write(f"  {line}\n")


class Group(TyperGroup):
    """Commands under one name; a misspelt one is answered with the nearest."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command."""
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            if ctx.resilient_parsing or type(error).__name__ == "NoArgsIsHelpError":
                raise
            fail(_words(error, self, ctx), EXIT_BAD_INPUT)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of that name."""
        try:
            return super().resolve_command(ctx, args)
        except _UsageError:
            if ctx.resilient_parsing:
                raise
            known = self.list_commands(ctx)
            fail(
                f"Unknown command '{args[0]}'.{did_you_mean(args[0], known)} Known commands: "
                f"{', '.join(known)}.",
                EXIT_BAD_INPUT,
            )


def _plain(option: str) -> str:
    """Return an option as help shows it, with a short word for its type."""
    return _TYPE.sub(lambda found: _TYPE_WORDS.get(found[1].lower(), found[0]), option)


def _unbroken(text: str) -> str:
    """Return words whose hyphens no line ends after."""
    return re.sub(r"(?<=\w)-(?=\w)", _NO_BREAK, text)


def _options(command: Any, ctx: Any) -> list[str]:
    """Return the long names of all options."""
    names = (n for p in command.get_params(ctx) for n in (*p.opts, *p.secondary_opts))
    return [name for name in names if name.startswith("--")]


def _words(error: Any, command: Any, ctx: Any) -> str:
    """Return a fault of usage as one line that says what to do next."""
    kind = type(error).__name__
    more = f" {ctx.command_path} -h explains every option."
    if kind == "NoSuchOption":
        name = error.option_name
        known = _options(command, ctx)
        longer = [option for option in known if len(name) > 3 and option.startswith(name)]
        guess = f" Did you mean '{longer[0]}'?" if longer else did_you_mean(name, known)
        return f"Unknown option '{name}'.{guess}{more}"
    param = getattr(error, "param", None)
    if param is None:
        return f"{error.format_message().rstrip('.')}.{more}"
    name = param.opts[0] if param.param_type_name == "option" else param.metavar or param.name
    if kind == "MissingParameter":
        metavar = param.metavar if param.param_type_name == "option" else None
        return f"Expected {name}{f' {metavar}' if metavar else ''}, got nothing.{more}"
    choice = _NOT_ONE_OF.search(str(error.message))
    if choice is not None:
        known = re.findall(r"'([^']*)'", choice["known"])
        return (
            f"Expected {name} in {', '.join(known)}, got '{choice['got']}'."
            f"{did_you_mean(choice['got'], known)}"
        )
    number = _number_words(error, name)
    if number:
        # The help of an option says what the number is of, before the first semicolon.
        return f"{number} {str(param.help or more).partition(';')[0].strip().rstrip('.')}."
    return f"{name}: {str(error.message).rstrip('.')}.{more}"


def _number_words(error: Any, name: str) -> str:
    """Return what was expected of a number and what was given, empty for other faults.

    Newer versions of typer have the words of pydantic, without the value; older ones those of
    click, with it.
    """
    text, cause = str(error.message), error.__cause__
    given = [found["input"] for found in cause.errors()] if hasattr(cause, "errors") else []
    if got := _GOT.match(text):
        given = [got["got"]]
    if not given:
        return ""
    if kind := _NOT_NUMBER.search(text):
        whole = "whole " if kind["kind"].startswith("int") else ""
        return f"Expected {name} to be a {whole}number, got '{given[0]}'."
    if limit := _RANGE.search(text):
        sign = {"greater": ">", "less": "<"}[limit["side"]] + ("=" if limit["equal"] else "")
        return f"Expected {name} {sign} {limit['limit']}, got '{given[0]}'."
    return ""
