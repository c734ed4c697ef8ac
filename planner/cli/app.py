"""The command line: ``planner`` with its commands, and ``plan`` for the one used most.

Commands are thin: parse, call a library function, print. Data goes to standard output, words
and progress to standard error. Whatever is slow to import is imported inside the command that
needs it, so that ``--help`` stays fast. This module only puts the commands together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from planner.cli.check import check
from planner.cli.doctor import doctor
from planner.cli.explain import explain
from planner.cli.first_run import init
from planner.cli.gap import gap
from planner.cli.imports import (
    FormatGroup,
    import_generic_log,
    import_philly_log,
    import_verl_logs,
)
from planner.cli.options import VersionOption
from planner.cli.parsing import Command, Group
from planner.cli.plan import plan
from planner.cli.repack import repack
from planner.cli.report import report
from planner.cli.reproduce import profile, reproduce
from planner.cli.simulate import simulate
from planner.cli.size import size
from planner.cli.snapshot import export, snapshot
from planner.cli.sweep import sweep
from planner.cli.traces import generate

__all__ = ["app", "plan_app"]

_SETTINGS: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110},
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}

_HELP = "How many GPUs an RL post-training cluster must own, what they cost, how far from least."

app = typer.Typer(name="planner", cls=Group, help=_HELP, no_args_is_help=True, **_SETTINGS)
plan_app = typer.Typer(name="plan", **_SETTINGS)
import_app = typer.Typer(
    cls=FormatGroup,
    help="Make a trace from a log: of arrivals (philly, generic) or of step timings (verl).",
    no_args_is_help=True,
    **_SETTINGS,
)


@app.callback()
def _root(version: VersionOption = False) -> None:
    pass


# The order of ``planner --help``. A new command is one line here: its short help, and an example
# that runs in the project's folder as it stands.
_PLAN_EXAMPLE = "plan --trace production-200 --baselines solo,colocated"
_COMMANDS: dict[Callable[..., None], tuple[str, str, str]] = {
    plan: ("plan", "Replay a trace by a policy: nodes, cost, SLO, savings.", _PLAN_EXAMPLE),
    report: (
        "report",
        "One page with everything about a trace, offline.",
        "planner report --trace production-200 --out answer",
    ),
    snapshot: (
        "snapshot",
        "The least-cost plan of one moment, with its proof.",
        "planner snapshot --trace production-200 --at-hours 20",
    ),
    gap: (
        "gap",
        "How far a replay is from the least cost, over time.",
        "planner gap --trace tiny-gang",
    ),
    repack: (
        "repack",
        "Which running jobs to move now, and what it earns.",
        "planner snapshot --trace production-200 --at-hours 20 --out now\n"
        "planner repack --plan now/plan.json",
    ),
    size: (
        "size",
        "How many nodes to own, how many to rent.",
        "planner size --trace production-200 --only alternatives,fleet",
    ),
    simulate: (
        "simulate",
        "Run plans with sampled lengths, failures and drift.",
        "planner simulate --trace tiny-gang --only runtime",
    ),
    sweep: (
        "sweep",
        "Many replays in one table: a study.",
        "planner init study\nplanner sweep study/study.toml --dry-run",
    ),
    check: (
        "check",
        "Check a plan against every rule.",
        "planner snapshot --trace tiny-gang --out checked\nplanner check checked/plan.json",
    ),
    generate: (
        "generate",
        "Make a synthetic trace.",
        "planner generate production --jobs 50 --seed 1 --out jobs.csv",
    ),
    profile: (
        "profile",
        "Estimate the phases of a job never measured.",
        "planner profile --model-b 7 --max-tokens 8192 \\\n"
        "    --prompts-per-step 256 --samples-per-prompt 8",
    ),
    reproduce: (
        "reproduce",
        "Set published figures beside ours.",
        "planner reproduce --seeds 2",
    ),
    export: (
        "export",
        "Write the least-cost problem as MPS or LP.",
        "planner export --trace tiny-gang --out tiny.mps",
    ),
    doctor: ("doctor", "Check this installation.", "planner doctor"),
    init: ("init", "Write files to start from.", "planner init fleet"),
    explain: (
        "explain",
        "What a column, key, rule, method or word means.",
        "planner explain slo tightest",
    ),
}

plan_app.command(cls=Command, epilog=_PLAN_EXAMPLE)(plan)
for _function, (_name, _short, _example) in _COMMANDS.items():
    app.command(_name, cls=Command, short_help=_short, epilog=_example)(_function)

_FORMATS: dict[Callable[..., None], tuple[str, str]] = {
    import_philly_log: ("philly", "planner import philly philly.csv --hours 168 --out trace.csv"),
    import_generic_log: ("generic", "planner import generic arrivals.csv --out trace.csv"),
    import_verl_logs: (
        "verl",
        "planner import verl run-1.jsonl --slo 1.5 --model-b 7 --out trace.csv",
    ),
}
for _function, (_name, _example) in _FORMATS.items():
    import_app.command(_name, cls=Command, epilog=_example)(_function)
app.add_typer(import_app, name="import", short_help="Make a trace from a log.")
