"""Which timings of verl make which phase, and which steps count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from instances.errors import UnsupportedError
from instances.trace_table import TraceError
from instances.verl_log import VerlLog, read_verl_log
from instances.verl_phases import Phases, chosen_keys, read_phases, step_ranges
from verl_cases import CONSOLE, jsonl, put, step_of

Steps = Sequence[tuple[int, Mapping[str, object]]]


def log_of(tmp_path: Path, steps: Steps) -> VerlLog:
    return read_verl_log(put(tmp_path / "a.jsonl", jsonl(steps)))


def phases_of(tmp_path: Path, steps: Steps, skip: int = 0, **keys: Sequence[str]) -> Phases:
    log = log_of(tmp_path, steps)
    return read_phases(log, chosen_keys(log, **keys), skip)


def test_the_defaults_on_a_console_log(tmp_path: Path) -> None:
    log = read_verl_log(put(tmp_path / "a.log", CONSOLE))
    keys = chosen_keys(log)
    assert keys.mode == "sync"
    assert keys.rollout == ("gen", "reward")
    assert keys.train == ("old_log_prob", "ref", "adv", "update_actor")
    assert keys.sync == ()  # update_weights is logged, and used only when asked for
    phases = read_phases(log, keys, 1)
    assert [(s.step, s.rollout_s, s.generation_s, s.train_s) for s in phases.steps] == [
        (2, 25.0, 24.5, 40.2),  # 24.5 + 0.5; 3 + 2 + 0.2 + 35
        (3, 23.0, 22.5, 41.2),  # 22.5 + 0.5; 3 + 2 + 0.2 + 36
    ]
    assert [s.rollout_s for s in phases.warm_up] == [45.0]
    assert phases.untimed == (0,)
    assert phases.logged == 3
    # Phases and weight transfer over step time, warm-up included:
    # (45 + 60.2 + 5.4 + 25 + 40.2 + 5 + 23 + 41.2 + 4.6) / (111 + 72 + 70) = 249.6 / 253
    assert phases.share == pytest.approx(249.6 / 253)
    # In no phase: update_weights, (5.4 + 5 + 4.6) / 3. Parts of gen are not listed.
    assert phases.neither == {"update_weights": pytest.approx(5.0)}


def test_keys_asked_for_are_taken_from_the_other_phase(tmp_path: Path) -> None:
    steps = [(1, step_of(10, 20, timing_s__reward=3, timing_s__ref=2, timing_s__update_weights=1))]
    by_default = phases_of(tmp_path, steps).steps[0]
    assert (by_default.rollout_s, by_default.train_s, by_default.sync_s) == (13, 22, 0)
    asked = phases_of(
        tmp_path,
        steps,
        train=["reward", "timing_s/ref", "update_actor"],
        sync=["update_weights"],
    ).steps[0]
    assert (asked.rollout_s, asked.train_s, asked.sync_s) == (10, 25, 1)


def test_a_one_step_job_rolls_out_while_it_trains(tmp_path: Path) -> None:
    # gen is the wait for a rollout that began a step earlier: 2 s of its 14 s.
    newer = step_of(2, 12, timing_s__generate_async=14, timing_s__sync_rollout_weights=1)
    phases = phases_of(tmp_path, [(1, newer)])
    assert phases.keys.mode == "one-step"
    assert phases.keys.rollout == ("generate_async",)
    assert phases.steps[0].rollout_s == 14
    assert phases.share is None  # the phases overlap
    older = {
        "timing_s/wait_prev_gen": 2.0,
        "timing_s/generate_sequences": 13.0,
        "timing_s/update_actor": 12.0,
    }
    phases = phases_of(tmp_path, [(1, older)])
    assert (phases.keys.mode, phases.steps[0].rollout_s) == ("one-step", 13)


@pytest.mark.parametrize("key", ["fully_async/total_wait_time", "training/off_policy/dropped"])
def test_an_asynchronous_job_is_refused_unless_keys_are_named(key: str, tmp_path: Path) -> None:
    log = log_of(tmp_path, [(1, step_of(10, 20) | {key: 1.0})])
    with pytest.raises(UnsupportedError, match=f"synchronous or one-step job, .*'{key}'"):
        chosen_keys(log)
    assert chosen_keys(log, rollout=["gen"], train=["update_actor"]).rollout == ("gen",)


def test_a_misspelt_key_names_the_nearest(tmp_path: Path) -> None:
    log = log_of(tmp_path, [(1, {"timing_s/gne": 1.0, "timing_s/update_actr": 2.0})])
    with pytest.raises(TraceError) as caught:
        chosen_keys(log)
    assert caught.value.total == 2
    words = str(caught.value)
    assert "Missing timing_s/gen or timing_s/generate_sequences (rollout)." in words
    assert "Found: timing_s/gne, timing_s/update_actr. Did you mean 'timing_s/gne'?" in words
    assert "Did you mean 'timing_s/update_actr'?" in words
    with pytest.raises(TraceError, match=r"Expected timing_s/ref in the log, got no such key\."):
        chosen_keys(log, rollout=["gne"], train=["ref"])


def test_a_log_without_timings_says_what_it_has(tmp_path: Path) -> None:
    log = log_of(tmp_path, [(1, {"actor/lr": 1e-6, "critic/score/mean": 0.5})])
    with pytest.raises(TraceError) as caught:
        chosen_keys(log)
    words = "No key begins with timing_s/. Found: actor/lr, critic/score/mean."
    assert words in str(caught.value)


def test_nothing_is_counted_twice(tmp_path: Path) -> None:
    log = log_of(tmp_path, [(1, step_of(10, 20, timing_s__reshard=2))])
    with pytest.raises(TraceError, match="no part of timing_s/gen beside it, got timing_s/reshard"):
        chosen_keys(log, sync=["reshard"])
    with pytest.raises(TraceError, match="each key once, got timing_s/gen twice"):
        chosen_keys(log, rollout=["gen"], train=["gen", "update_actor"])
    other = log_of(
        tmp_path, [(1, step_of(9, 20, timing_s__reshard=2, timing_s__generate_sequences=7))]
    )
    keys = chosen_keys(other, rollout=["generate_sequences"], sync=["reshard"])
    assert keys.used == ("generate_sequences", "update_actor", "reshard")


def test_a_restart_repeats_steps_and_warms_up_again(tmp_path: Path) -> None:
    # Killed after step 4, on again from a checkpoint of step 2: steps 3 and 4 come twice, and
    # the first step after each start (1 and the second 3) is warm-up.
    gens = [(1, 90), (2, 10), (3, 11), (4, 12), (3, 80), (4, 14), (5, 13)]
    phases = phases_of(tmp_path, [(n, step_of(gen, 20)) for n, gen in gens], skip=1)
    assert [(s.step, s.rollout_s) for s in phases.steps] == [(2, 10), (4, 14), (5, 13)]
    assert [(s.step, s.rollout_s) for s in phases.warm_up] == [(1, 90), (3, 80)]
    assert phases.superseded == (3, 4)
    assert phases.logged == 5
    kept = phases_of(tmp_path, [(n, step_of(gen, 20)) for n, gen in gens], skip=0)
    assert [s.rollout_s for s in kept.steps] == [90, 10, 80, 14, 13]


def test_steps_that_lack_a_key_and_numbers_that_lack_a_step(tmp_path: Path) -> None:
    # A critic warms up for two steps: no update_actor there. Steps 5 and 6 are not in the log.
    warm = {"timing_s/gen": 9.0, "timing_s/update_critic": 4.0}
    full = warm | {"timing_s/update_actor": 20.0}
    phases = phases_of(tmp_path, [(1, warm), (2, warm), (3, full), (4, full), (7, full)])
    assert [s.step for s in phases.steps] == [3, 4, 7]
    assert phases.lacking == {"timing_s/update_actor": (1, 2)}
    assert phases.gaps == (5, 6)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1.5", '"12 s"', "true", "[3]"])
def test_values_that_are_no_seconds(value: str, tmp_path: Path) -> None:
    good = '{"step": 1, "data": {"timing_s/gen": 9, "timing_s/update_actor": 5}}\n'
    bad = good.replace(": 9", f": {value}").replace('"step": 1', '"step": 2')
    log = read_verl_log(put(tmp_path / "a.jsonl", good + bad))
    with pytest.raises(TraceError) as caught:
        read_phases(log, chosen_keys(log), 0)
    assert caught.value.total == 1
    (fault,) = caught.value.faults
    assert (fault.row, fault.column) == (2, "timing_s/gen")
    assert fault.rule == "timing_s/gen to be a finite number >= 0"


def test_a_negative_number_that_no_phase_uses_is_no_fault(tmp_path: Path) -> None:
    # verl logs counts under timing_s/ too: -1 where an engine does not report preemptions.
    steps = [(1, step_of(9, 5) | {"timing_s/agent_loop/num_preempted/min": -1})]
    assert phases_of(tmp_path, steps).steps[0].rollout_s == 9


def test_a_phase_that_takes_no_time_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"Expected rollout seconds > 0, got '0' \(line 1"):
        phases_of(tmp_path, [(1, step_of(0, 5))])


def test_the_share_leaves_validation_and_checkpoints_out(tmp_path: Path) -> None:
    # Step 2 spent 100 s on validation: only step 1 tells, (10 + 20) / 40.
    bare = step_of(10, 20) | {"timing_s/step": 40.0}
    heavy = step_of(10, 20, timing_s__testing=100) | {"timing_s/step": 140.0}
    assert phases_of(tmp_path, [(1, bare), (2, heavy)]).share == pytest.approx(30 / 40)
    # Where every step has one, it is taken off the step: 30 / (140 - 100).
    assert phases_of(tmp_path, [(1, heavy)]).share == pytest.approx(30 / 40)
    # Where the step's time never held it, the phases explain all that is left.
    beside = step_of(10, 20, timing_s__testing=100)
    assert phases_of(tmp_path, [(1, beside)]).share == 1.0
    assert phases_of(tmp_path, [(2, heavy)]).neither == {"testing": 100.0}
    without = {"timing_s/gen": 1.0, "timing_s/update_actor": 1.0}
    assert phases_of(tmp_path, [(1, without)]).share is None


def test_ranges_in_words() -> None:
    assert step_ranges([7, 1, 2, 3]) == "1-3, 7"
    assert step_ranges(range(0, 20, 2), most=2) == "0, 2 and 8 more"


def test_two_runs_in_one_log_are_told_from_a_restart(tmp_path: Path) -> None:
    """A restart goes back to steps that were logged; a second run brings numbers of its own."""

    def of(*numbers: int) -> tuple[int, ...]:
        return phases_of(tmp_path, [(n, step_of(10, 20)) for n in numbers]).belated

    assert of(1, 2, 3, 4, 3, 4, 5) == ()
    assert of(1, 2, 5, 6) == ()
    assert of(1, 101, 2, 102, 3, 103) == (2, 3)


def test_a_key_of_another_phase_is_no_guess(tmp_path: Path) -> None:
    log = log_of(tmp_path, [(1, {"timing_s/gen": 10, "timing_s/step": 30})])
    with pytest.raises(TraceError) as error:
        chosen_keys(log)
    assert "Missing timing_s/update_actor (train)" in str(error.value)
    assert "Did you mean" not in str(error.value)
