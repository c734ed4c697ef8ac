"""A project to start from: a trace, a cluster, costs and a study to edit, and what to run next.

Everything but the trace is made from what reads it: keys and defaults from the schemas, words from
the glossary. The jobs of the trace are typed by hand, to be edited; nobody measured them.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

from instances.errors import InputError
from planner.first_run.commented_toml import cluster_toml, costs_toml
from planner.first_run.glossary_trace import INPUTS
from planner.output.folder import Writer, exists, refuse_no_folder, write_files

__all__ = ["COMMANDS", "FILES", "JOBS", "project_files", "write_project"]

#: Twelve jobs of two days, all present for some hours: phases given for most, and estimated where
#: they are left empty. Runs of like length start near each other, so that jobs have partners.
JOBS: Final = """\
job_id,arrival_s,duration_s,slo,rollout_s,train_s,sync_s,rollout_nodes,train_nodes,\
model_b,max_tokens,prompts_per_step,samples_per_prompt,team
math-7b,0,118800,1.6,240,190,8,1,1,7,8192,128,8,reasoning
code-7b,3600,108000,1.8,225,205,8,1,1,7,8192,128,8,code
math-14b,7200,129600,1.5,330,290,,1,1,14,8192,128,8,reasoning
tools-14b,10800,122400,1.6,310,240,14,1,1,14,8192,128,8,agents
agent-32b,18000,136800,1.5,520,190,21,2,1,32,16384,64,8,agents
code-32b,25200,118800,1.6,470,210,22,2,1,32,8192,64,8,code
chat-7b,32400,100800,2.0,130,105,7,1,1,7,4096,256,4,chat
chat-14b,39600,93600,1.8,190,180,13,1,1,14,4096,256,4,chat
code-14b,46800,108000,1.6,,,,1,1,14,8192,128,8,code
tools-7b,57600,86400,1.7,260,150,8,1,1,7,8192,128,8,agents
math-32b,68400,97200,1.5,,,,1,1,32,8192,64,8,reasoning
chat-3b,82800,64800,2.0,110,70,,1,1,3,4096,256,4,chat
"""
_STUDY: Final = """\
# Many replays in one table, one row a run. Run it with:
#   planner sweep study.toml --out results.csv
# The same command goes on where an earlier one ended.
name = "first study"
cluster = "cluster.toml"        # relative to this file, as every path here
policies = ["weave", "solo"]    # planner explain names them all
conventions = ["work"]          # what ends a stay: work, wallclock or both

[[trace]]
file = "jobs.csv"

# One value or a list for each axis; all are combined: 2 x 2 x 2 policies = 8 runs.
[axes]
max_group_size = [2, 5]         # jobs; 0: no limit
slo_scale = [0.5, 1.0]          # scales the tolerated slack: 1 + f (slo - 1)
#price_ratio = [2.0, 2.85]      # price of a train GPU over that of a rollout GPU
#host_dram_gb = [1000, 2000]    # GB a node, of both pools
#fleet = ["none", "4,4"]        # rollout and train nodes that there are; jobs wait
"""
#: What to run next, in this order, with what it answers; each works in the folder as it is.
COMMANDS: Final = {
    "plan --trace jobs.csv --cluster cluster.toml --baselines solo,colocated,repack --out replay": (
        "What do these jobs cost when they share nodes, against each alone?"
    ),
    "planner size --trace jobs.csv --cluster cluster.toml --costs costs.toml "
    "--only alternatives,fleet": "How many nodes to own, and how many to rent?",
    "planner gap --trace jobs.csv --cluster cluster.toml": (
        "How far is that from the least any valid plan can cost?"
    ),
    "planner snapshot --trace jobs.csv --cluster cluster.toml --gantt group.svg": (
        "What is the least-cost plan of the busiest moment, and who runs when?"
    ),
    "planner sweep study.toml --out results.csv": "What changes with the limits in study.toml?",
}
_STEPS: Final = "NEXT_STEPS.md"
FILES: Final = ("jobs.csv", "cluster.toml", "costs.toml", "study.toml", _STEPS)
_WIDTH: Final = 96


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _columns() -> str:
    """Return what the columns of ``jobs.csv`` mean, as a list."""
    names = JOBS.partition("\n")[0].split(",")
    known = {entry.name: entry for entry in INPUTS}
    lines = []
    for name in names:
        if name not in known:
            lines.append(f"* `{name}`: unknown to the planner, so carried along to the outputs.")
            continue
        entry = known[name]
        unit = f" ({entry.unit})" if entry.unit else ""
        lines.append(_wrapped(f"* `{name}`{unit}: {entry.text}", "  "))
    return "\n".join(lines)


_FIRST: Final = (
    "Run these here, in this order. The jobs are an example typed by hand, nobody measured them: "
    "replace them by your own, then put your prices in `cluster.toml` and `costs.toml`."
)
_MORE: Final = (
    "Then `planner COMMAND --help` for options, and `planner explain WORD` for any column, key, "
    "rule or word."
)
_EMPTY: Final = (
    "One row a job. Cells left empty are estimated from `model_b` and the columns after it, and "
    "labelled estimated in every answer: the phases of `code-14b` and `math-32b`, some `sync_s`, "
    "and the columns that are not here, such as `rollout_state_gb`. Three measured numbers of a "
    "job beat any estimate."
)


def _next_steps() -> str:
    parts = ["# Next steps", _wrapped(_FIRST)]
    for number, (command, question) in enumerate(COMMANDS.items(), start=1):
        parts += [f"{number}. {question}", f"   ```bash\n   {command}\n   ```"]
    parts += [_wrapped(_MORE), "## The columns of jobs.csv", _wrapped(_EMPTY), _columns()]
    return "\n\n".join(parts) + "\n"


def project_files() -> dict[str, str]:
    """Return every file of a new project, by name."""
    return {
        "jobs.csv": JOBS,
        "cluster.toml": cluster_toml(),
        "costs.toml": costs_toml(),
        "study.toml": _STUDY,
        _STEPS: _next_steps(),
    }


def write_project(directory: Path, *, force: bool) -> None:
    """Write the files of a new project, all or none.

    Raises
    ------
    InputError
        When one of them is there and ``force`` is not set, the folder above is missing, or the
        disk refuses.
    """
    refuse_no_folder(directory, "DIR")
    there = [name for name in FILES if exists(directory / name)]
    if there and not force:
        raise InputError(
            f"{directory} already holds {', '.join(there)}. Give --force to replace them, or "
            "another DIR."
        )
    parent = directory.absolute().parent
    if not parent.is_dir():
        raise InputError(f"Expected the folder {parent} above DIR to exist. Create it first.")
    writers = {name: _writer(text) for name, text in project_files().items()}
    write_files(directory, writers, force=True)


def _writer(text: str) -> Writer:
    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8", newline="\n")

    return write
