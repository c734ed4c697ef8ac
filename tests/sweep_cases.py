"""Small studies, and what is done with them in tests of sweeps."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
from pathlib import Path

from planner.sweep.expand import Study, TraceSource, expand
from planner.sweep.study import study_from_dict

#: Twelve runs of some milliseconds: 2 traces x 3 sizes x 2 policies.
SMALL = """\
name = "small"
policies = ["weave", "solo"]
[[trace]]
generator = "production"
jobs = 12
seeds = [0, 1]
[axes]
max_group_size = [1, 2, 5]
"""

#: One job that fits nodes of 1,000 GB and one that needs 1,500 GB of rollout state.
LARGE_STATE = """\
job_id,arrival_s,duration_s,slo,rollout_s,train_s,sync_s,rollout_state_gb,train_state_gb,\
rollout_switch_s,train_switch_s
a,0,1000,1.5,30,40,0,100,100,0,0
b,50,1000,1.5,30,40,0,1500,100,0,0
"""


def study_of(folder: Path, **tables: object) -> Study:
    """Return a study made of tables: weave on one tiny trace where they say nothing else."""
    base: dict[str, object] = {"policies": "weave", "trace": [{"generator": "tiny-open-shop"}]}
    return expand(study_from_dict({**base, **tables}, "study.toml", folder))


class DeadlyTrace(TraceSource):
    """A trace that kills whatever worker process looks at it."""

    def __hash__(self) -> int:
        if multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


def with_deadly_trace(study: Study, index: int) -> Study:
    """Return a study one trace of which kills workers."""
    traces = list(study.inputs.traces)
    old = traces[index]
    traces[index] = DeadlyTrace(**{f.name: getattr(old, f.name) for f in dataclasses.fields(old)})
    inputs = dataclasses.replace(study.inputs, traces=tuple(traces))
    return dataclasses.replace(study, inputs=inputs)
