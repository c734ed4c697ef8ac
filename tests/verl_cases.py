"""Logs of verl, written by hand in the formats of its trackers, and the seconds they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

#: One line of a Ray driver's standard output, as verl's console tracker prints it: validation
#: before the first step, and three steps. Seconds of rollout (gen + reward) are 45, 25, 23; of
#: train (old_log_prob + ref + adv + update_actor) 60.2, 40.2, 41.2.
CONSOLE = """\
\x1b[36m(TaskRunner pid=71)\x1b[0m step:0 - val-core/gsm8k/acc/mean@1:0.508
Training Progress:   0%|          | 0/3 [00:00<?, ?it/s]
\x1b[36m(TaskRunner pid=71)\x1b[0m step:1 - actor/lr:0.000 - training/global_step:1.000 - \
response_length/mean:500.000 - response_length/max:1024.000 - response_length/clip_ratio:0.070 - \
prompt_length/mean:100.000 - timing_s/start_profile:0.000 - \
timing_s/agent_loop/num_preempted/min:-1.000 - timing_s/agent_loop/generate_sequences/max:20.618 - \
timing_s/gen:44.500 - timing_s/reward:0.500 - timing_s/old_log_prob:13.000 - timing_s/ref:12.000 - \
timing_s/adv:0.200 - timing_s/update_actor:35.000 - timing_s/update_weights:5.400 - \
timing_s/step:111.000 - timing_per_token_ms/gen:0.007
(TaskRunner pid=71) INFO:epoch 0, step 2
Training Progress:  33%|###       | 1/3 [01:51<03:42]\r(TaskRunner pid=71) step:2 - \
training/global_step:2 - response_length/mean:512.0 - response_length/max:1024.0 - \
response_length/clip_ratio:0.0625 - prompt_length/mean:100.0 - timing_s/gen:24.5 - \
timing_s/reward:0.5 - timing_s/old_log_prob:3.0 - timing_s/ref:2.0 - timing_s/adv:0.2 - \
timing_s/update_actor:np.float64(35.0) - timing_s/update_weights:5.0 - timing_s/step:72.0
(TaskRunner pid=71) step:3 - training/global_step:3 - response_length/mean:512.0 - \
response_length/max:1000.0 - response_length/clip_ratio:0.0 - prompt_length/mean:100.0 - \
timing_s/gen:22.5 - timing_s/reward:0.5 - timing_s/old_log_prob:3.0 - timing_s/ref:2.0 - \
timing_s/adv:0.2 - timing_s/update_actor:36.0 - timing_s/update_weights:4.6 - timing_s/step:70.0
"""


def step_of(gen: float, update: float, **more: float) -> dict[str, float]:
    """Return the timings of a step of which nothing else takes time; ``__`` stands for ``/``."""
    cells = {"timing_s/gen": gen, "timing_s/update_actor": update, "timing_s/step": gen + update}
    return cells | {name.replace("__", "/"): value for name, value in more.items()}


def jsonl(steps: Sequence[tuple[int, Mapping[str, object]]]) -> str:
    """Return what the file tracker writes: one object a step."""
    return "".join(json.dumps({"step": n, "data": dict(cells)}) + "\n" for n, cells in steps)


def csv_of(steps: Sequence[tuple[int, Mapping[str, float]]], run: str = "") -> str:
    """Return the history of a run as CSV; cells of a key that a step lacks are empty."""
    keys = list(dict.fromkeys(key for _, cells in steps for key in cells))
    head = ["Step", *(f"{run} - {key}" if run else key for key in keys)]
    lines = [",".join(f'"{name}"' for name in head)]
    for number, cells in steps:
        values = [repr(cells[key]) if key in cells else "" for key in keys]
        lines.append(",".join([str(number), *values]))
    return "\n".join(lines) + "\n"


def put(path: Path, text: str) -> Path:
    """Write a text file, and return its path."""
    path.write_text(text, encoding="utf-8")
    return path
