"""plan.json from outside: whatever is wrong, one line names file, place and value."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.checker import check_plan
from instances.errors import InputError
from instances.plan_file import (
    plan_from_dict,
    plan_to_dict,
    read_plan,
)
from plan_cases import PLAN, assert_same_plan

Edit = Callable[[dict[str, Any]], object]


def put(*path: Any) -> Edit:
    """Return an edit that sets the value at a path; the last item is the value."""
    *keys, last, value = path

    def edit(data: dict[str, Any]) -> None:
        inner: Any = data
        for key in keys:
            inner = inner[key]
        inner[last] = value

    return edit


def drop(*path: Any) -> Edit:
    """Return an edit that removes the value at a path."""
    *keys, last = path

    def edit(data: dict[str, Any]) -> None:
        inner: Any = data
        for key in keys:
            inner = inner[key]
        del inner[last]

    return edit


PLACE = ("groups", 0, "placements")
MALFORMED: dict[str, tuple[Edit, str]] = {
    # Keys.
    "missing key": (drop("limits"), "Missing limits."),
    "missing column": (drop("jobs", "slo"), "Missing jobs.slo."),
    "missing inner key": (drop(*PLACE, 1, "rate"), "Missing groups.0.placements.1.rate."),
    "unknown key": (put("polcy", "x"), "Unknown key 'polcy'. Did you mean 'policy'?"),
    "unknown limit": (
        put("limits", "max_group_sizes", 3),
        "Unknown key 'limits.max_group_sizes'. Did you mean 'max_group_size'?",
    ),
    "unknown column": (
        put("jobs", "rollout_sec", []),
        "Unknown key 'jobs.rollout_sec'. Did you mean 'rollout_s'?",
    ),
    "unknown in placement": (
        put(*PLACE, 0, "rates", 3),
        "Unknown key 'groups.0.placements.0.rates'. Did you mean 'rate'?",
    ),
    "unknown in group": (
        put("groups", 1, "period", 3),
        "Unknown key 'groups.1.period'. Did you mean 'period_s'?",
    ),
    "unknown in dedicated": (
        put("dedicated", 0, "to", 3),
        "Unknown key 'dedicated.0.to'. Did you mean 'to_s'?",
    ),
    "nothing like it": (put("x\ny", 3), "Unknown key 'x\\ny'."),
    # Kinds: nothing is read as what it is not.
    "other version": (put("schema_version", 2), "Expected schema_version 1, got 2."),
    "version true": (
        put("schema_version", True),
        "Expected schema_version to be a whole number, got True.",
    ),
    "policy": (put("policy", 3), "Expected policy to be text, got 3."),
    "convention": (
        put("durations", "hours"),
        "Expected durations to be 'work', 'wallclock' or 'snapshot', got 'hours'.",
    ),
    "flag": (put("pins_fixed", 1), "Expected pins_fixed to be true or false, got 1."),
    "money as text": (put("usd_total", "3"), "Expected usd_total to be a number, got '3'."),
    "money true": (put("usd_total", True), "Expected usd_total to be a number, got True."),
    "money null": (put("usd_total", None), "Expected usd_total to be a number, got None."),
    "no number": (
        put("usd_total", float("nan")),
        "Expected usd_total to be a finite number, got nan.",
    ),
    "beyond floats": (put("usd_total", 10**400), "Expected usd_total to be a number, got 1000"),
    "no object": (put("limits", [3]), "Expected limits to be a table of keys, got [3]."),
    "no list": (put("groups", {}), "Expected groups to be a list, got {}."),
    "no column": (put("jobs", "slo", 3), "Expected jobs.slo to be a list, got 3."),
    "no optional": (
        put("jobs", "optional", 3),
        "Expected jobs.optional to be a table of keys, got 3.",
    ),
    # Numbers.
    "limit": (put("limits", "max_rate", 0), "Expected limits.max_rate >= 1, got 0."),
    "limit true": (
        put("limits", "max_group_size", True),
        "Expected limits.max_group_size to be a whole number, got True.",
    ),
    "period": (
        put("groups", 0, "period_s", float("inf")),
        "Expected groups.0.period_s to be a finite number, got inf.",
    ),
    "interval": (
        put("groups", 1, "to_s", None),
        "Expected groups.1.to_s to be a number, got None.",
    ),
    "node": (
        put("groups", 0, "rollout_nodes", 1, -1),
        "Expected groups.0.rollout_nodes.1 >= 0, got -1.",
    ),
    "node kind": (
        put("groups", 0, "train_nodes", 0, 2.0),
        "Expected groups.0.train_nodes.0 to be a whole number, got 2.0.",
    ),
    "pin as text": (
        put(*PLACE, 0, "rollout_pins", ["5"]),
        "Expected groups.0.placements.0.rollout_pins.0 to be a whole number, got '5'.",
    ),
    "pins as text": (
        put(*PLACE, 0, "rollout_pins", "5"),
        "Expected groups.0.placements.0.rollout_pins to be a list, got '5'.",
    ),
    "rate": (
        put(*PLACE, 0, "rate", 0),
        "Expected groups.0.placements.0.rate >= 1, got 0.",
    ),
    "half a pair": (
        put(*PLACE, 1, "starts_s", 0, [1.0]),
        "Missing groups.0.placements.1.starts_s.0.1.",
    ),
    "three starts": (
        put(*PLACE, 1, "starts_s", 0, [1.0, 2, 3]),
        "Expected groups.0.placements.1.starts_s.0 to be a list of 2, got [1.0, 2, 3].",
    ),
    "start true": (
        put(*PLACE, 1, "starts_s", 0, [True, 2.0]),
        "Expected groups.0.placements.1.starts_s.0.0 to be a number, got True.",
    ),
    "no pair": (
        put(*PLACE, 1, "starts_s", 3),
        "Expected groups.0.placements.1.starts_s to be a list, got 3.",
    ),
    "dedicated": (
        put("dedicated", 0, "train_nodes", -1),
        "Expected dedicated.0.train_nodes >= 0, got -1.",
    ),
    "dedicated beyond int64": (
        put("dedicated", 0, "train_nodes", 2**63),
        "Expected dedicated.0.train_nodes <= 9223372036854775807, got 9223372036854775808.",
    ),
    "pause": (
        put("pauses", 1, "to_s", float("inf")),
        "Expected pauses.1.to_s to be a finite number, got inf.",
    ),
    "pause of a number": (
        put("pauses", 0, "job_id", 7),
        "Expected pauses.0.job_id to be text, got 7.",
    ),
    "pause without end": (drop("pauses", 1, "to_s"), "Missing pauses.1.to_s."),
    "pause, near key": (
        put("pauses", 0, "job", "a"),
        "Unknown key 'pauses.0.job'. Did you mean 'job_id'?",
    ),
    "no pauses": (put("pauses", None), "Expected pauses to be a list, got None."),
    "held": (
        put("held", 0, "rollout_nodes", -1),
        "Expected held.0.rollout_nodes >= 0, got -1.",
    ),
    "held in part": (
        put("held", 0, "train_nodes", 0.5),
        "Expected held.0.train_nodes to be a whole number, got 0.5.",
    ),
    "held, near key": (
        put("held", 0, "group", "g0"),
        "Unknown key 'held.0.group'. Did you mean 'group_id'?",
    ),
    "fleet": (
        put("fleet", "rollout_nodes", -1),
        "Expected fleet.rollout_nodes >= 0, got -1.",
    ),
    "fleet in part": (
        put("fleet", "train_nodes", 1.5),
        "Expected fleet.train_nodes to be a whole number, got 1.5.",
    ),
    "fleet of one pool": (drop("fleet", "train_nodes"), "Missing fleet.train_nodes."),
    "fleet, near key": (
        put("fleet", "train_node", 1),
        "Unknown key 'fleet.train_node'. Did you mean 'train_nodes'?",
    ),
    "start": (
        put("starts", 1, "at_s", float("nan")),
        "Expected starts.1.at_s to be a finite number, got nan.",
    ),
    "start of a number": (
        put("starts", 0, "job_id", 7),
        "Expected starts.0.job_id to be text, got 7.",
    ),
    "start, near key": (
        put("starts", 0, "job", "a"),
        "Unknown key 'starts.0.job'. Did you mean 'job_id'?",
    ),
    "no starts": (put("starts", None), "Expected starts to be a list, got None."),
    # Columns.
    "restart": (
        put("jobs", "optional", "restart_s", 2, -0.5),
        "Expected jobs.optional.restart_s.2 >= 0, got -0.5.",
    ),
    "phase": (put("jobs", "rollout_s", 1, 0.0), "Expected jobs.rollout_s.1 > 0, got 0.0."),
    "slo": (put("jobs", "slo", 2, 0.5), "Expected jobs.slo.2 >= 1, got 0.5."),
    "infinite": (
        put("jobs", "slo", 2, float("inf")),
        "Expected jobs.slo.2 to be a finite number, got inf.",
    ),
    "width": (
        put("jobs", "rollout_nodes", 0, 1.5),
        "Expected jobs.rollout_nodes.0 to be a whole number, got 1.5.",
    ),
    "width beyond int64": (
        put("jobs", "rollout_nodes", 0, 2**63),
        "Expected jobs.rollout_nodes.0 <= 9223372036854775807, got 9223372036854775808.",
    ),
    "mode": (
        put("jobs", "mode", 0, "asynch"),
        "Expected jobs.mode.0 to be 'sync', 'one-step' or 'async', got 'asynch'.",
    ),
    "short column": (
        put("jobs", "train_s", [1.0]),
        "Expected 3 values in jobs.train_s, one per job_id, got 1.",
    ),
    "short optional": (
        put("jobs", "optional", "model_b", []),
        "Expected 3 values in jobs.optional.model_b, one per job_id, got 0.",
    ),
    "short extra": (
        put("jobs", "extra", "team", ["x"]),
        "Expected 3 values in jobs.extra.team, one per job_id, got 1.",
    ),
    "job twice": (
        put("jobs", "job_id", ["a", "a", "c"]),
        "Expected distinct jobs.job_id, got 'a' 2 times.",
    ),
    "infinite optional": (
        put("jobs", "optional", "model_b", 1, float("inf")),
        "Expected jobs.optional.model_b.1 to be a finite number, got inf.",
    ),
    "optional as text": (
        put("jobs", "optional", "model_b", 1, "7"),
        "Expected jobs.optional.model_b.1 to be a number, got '7'.",
    ),
    "unknown optional": (
        put("jobs", "optional", "modelb", [None] * 3),
        "Unknown column 'jobs.optional.modelb'. Did you mean 'model_b'?",
    ),
    "column of another table": (
        put("jobs", "optional", "slo", [None] * 3),
        "Unknown column 'jobs.optional.slo'.",
    ),
    "extra as number": (
        put("jobs", "extra", "team", 1, 3),
        "Expected jobs.extra.team.1 to be text, got 3.",
    ),
    "estimated": (
        put("jobs", "estimated", {"slo": ["a", "z"]}),
        "Unknown job 'z' in jobs.estimated.slo.",
    ),
    "unknown estimated": (
        put("jobs", "estimated", {"syncgb": ["a"]}),
        "Unknown column 'jobs.estimated.syncgb'. Did you mean 'sync_gb'?",
    ),
    # The cluster, in the words of its own file.
    "cluster": (
        put("cluster", "rollout", "gpus", 1),
        "cluster: Unknown key '[rollout] gpus'. Did you mean 'gpu'?",
    ),
    "cluster price": (
        put("cluster", "train", "usd_per_gpu_hour", -1),
        "cluster: Expected [train] usd_per_gpu_hour >= 0, got -1.",
    ),
    "cluster price as text": (
        put("cluster", "train", "usd_per_gpu_hour", "5"),
        "cluster: Expected [train] usd_per_gpu_hour to be a number, got '5'.",
    ),
}


@pytest.mark.parametrize(("edit", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_plan_names_place_and_value(edit: Edit, message: str, tmp_path: Path) -> None:
    data = json.loads(json.dumps(plan_to_dict(PLAN)))
    plan_from_dict(copy.deepcopy(data))  # sound before the edit
    edit(data)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_plan(path)
    text = str(caught.value)
    assert "\n" not in text  # one fault, one line
    assert text.startswith(f"broken.json: {message}")
    if message.endswith("."):
        assert re.fullmatch(r"( Known keys: .*)?", text.removeprefix(f"broken.json: {message}"))


def test_whole_seconds_and_money_are_numbers(tmp_path: Path) -> None:
    data = json.loads(json.dumps(plan_to_dict(PLAN)))
    data["usd_total"] = 3
    data["jobs"]["train_s"] = [2, 3, 1]
    data["groups"][0]["placements"][0]["starts_s"] = [[0, 4], [6, 13.0]]
    plan = plan_from_dict(data)
    assert plan.usd_total == 3.0
    assert plan.jobs.train_s.tolist() == [2.0, 3.0, 1.0]
    starts = plan.groups[0].placements[0].starts_s
    assert all(isinstance(second, float) for pair in starts for second in pair)
    assert starts == ((0.0, 4.0), (6.0, 13.0))


@pytest.mark.parametrize(
    "value",
    ["x" * 5000, [[[[["deep"]]]]] * 500, {str(i): i for i in range(500)}, 10**3000, "\n" * 500],
    ids=["text", "list", "object", "number", "lines"],
)
def test_long_values_are_shortened(value: Any) -> None:
    for place in (("usd_total",), ("jobs", "slo", 0), ("groups", 0, "group_id"), ("dedicated",)):
        data = plan_to_dict(PLAN)
        data = json.loads(json.dumps(data))
        put(*place, value)(data)
        if place[-1] == "group_id" and isinstance(value, str):
            continue  # any text is a name
        with pytest.raises(InputError) as caught:
            plan_from_dict(data)
        first = str(caught.value).splitlines()[0]
        assert len(first) < 140
        assert len(first.partition(", got ")[2]) in range(1, 62)


def test_a_number_of_more_digits_than_python_prints_is_refused_too() -> None:
    data = plan_to_dict(PLAN)
    data["usd_total"] = 10**5000
    with pytest.raises(InputError, match="usd_total to be a number, got a number of very many"):
        plan_from_dict(data)


def test_faults_between_columns_are_all_named() -> None:
    data = json.loads(json.dumps(plan_to_dict(PLAN)))
    data["jobs"]["train_s"].pop()
    data["jobs"]["extra"]["team"].append("x")
    data["jobs"]["optional"]["modelb"] = [None] * 3
    data["jobs"]["estimated"] = {"slo": ["z"]}
    with pytest.raises(InputError) as caught:
        plan_from_dict(data, "p")
    assert str(caught.value).splitlines() == [
        "p: Expected 3 values in jobs.train_s, one per job_id, got 2.",
        "p: Expected 3 values in jobs.extra.team, one per job_id, got 4.",
        "p: Unknown column 'jobs.optional.modelb'. Did you mean 'model_b'?",
        "p: Unknown job 'z' in jobs.estimated.slo.",
    ]


@pytest.mark.parametrize("data", [None, 3, "plan", [], {}])
def test_not_a_plan_at_all(data: object) -> None:
    with pytest.raises(InputError, match=r"^here: "):
        plan_from_dict(data, "here")


def test_every_fault_is_counted_and_twenty_are_shown() -> None:
    data = plan_to_dict(PLAN)
    data["jobs"]["extra"] = {}
    data["groups"] = [{"group_id": "g", "nonsense": 1}] * 5  # 6 keys missing, 1 unknown, each
    with pytest.raises(InputError) as caught:
        plan_from_dict(data)
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "plan: ... 35 faults in all."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Not valid JSON"),
        (b'{"schema_version": 1,\n "policy": }', "line 2, column 12"),
        (b"\xff\xfe{}", "Not UTF-8"),
        (b"[1, 2]", r"Expected the plan to be a table of keys, got \[1, 2\]"),
        (b"[1, 2", "Not valid JSON"),
        (b"{'policy': 1}", "line 1, column 2"),
    ],
)
def test_files_that_are_not_plans(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_plan(path)
    assert str(caught.value).startswith("x.json: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"/absent\.json: No such file or directory\.$"):
        read_plan(tmp_path / "absent.json")
    with pytest.raises(InputError) as caught:
        read_plan(tmp_path)
    assert str(caught.value) == f"{tmp_path}: Is a directory."
    with pytest.raises(InputError, match=r"^'a\\x00b\.json': Not the path of a file: .*null"):
        read_plan("a\0b.json")
    with pytest.raises(InputError, match=r"Not the path of a file"):
        read_plan("half a character \ud800.json")
    with pytest.raises(InputError, match=r"File name too long"):
        read_plan(tmp_path / ("x" * 5000))


EXTREME: dict[str, tuple[str, str]] = {
    "more digits than int() takes": (
        "9" * 5000,
        f"Expected numbers of fewer digits, got {'9' * 27}...{'9' * 28} (5000 digits, line 1).",
    ),
    "the line of a long number": ('{"a":\n' + "7" * 4301 + "}", "(4301 digits, line 2)."),
    "nested too deeply": ("[" * 100_000, "lists or objects nested too deeply."),
    "balanced, nested too deeply": ("[" * 100_000 + "]" * 100_000, "nested too deeply."),
    "objects nested too deeply": ('{"a":' * 100_000, "nested too deeply."),
    "node count beyond int64": (
        json.dumps(plan_to_dict(PLAN)).replace(
            '"rollout_nodes": [1, 1, 2]', f'"rollout_nodes": [1, 1, {10**30}]'
        ),
        f"Expected jobs.rollout_nodes.2 <= {2**63 - 1}, got {10**30}.",
    ),
    "a number beyond floats": (
        json.dumps(plan_to_dict(PLAN)).replace('"usd_total": ', '"usd_total": 1e999, "x": '),
        "Expected usd_total to be a finite number, got inf.",
    ),
    "half a character": (
        json.dumps(plan_to_dict(PLAN)).replace('"weave"', r'"\ud800"'),
        r"Not valid text: half a character, '\ud800'.",
    ),
    "half a character in a key": (
        r'{"\uDC00": 1}',
        r"Not valid text: half a character, '\udc00'.",
    ),
    "key twice": (
        json.dumps(plan_to_dict(PLAN)).replace("{", '{"policy": "x", ', 1),
        "Expected key 'policy' once, got it 2 times.",
    ),
    "byte order mark": ("\ufeff{}", "Unexpected UTF-8 BOM"),
}


@pytest.mark.parametrize(("content", "message"), EXTREME.values(), ids=EXTREME.keys())
def test_extreme_input_is_an_input_error(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_plan(path)
    assert str(caught.value).startswith("x.json: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


def test_values_nested_nearly_too_deeply_are_refused_as_well(tmp_path: Path) -> None:
    # Depths around the limit of the reader, where what comes after it may fail instead.
    path = tmp_path / "x.json"
    text = json.dumps(plan_to_dict(PLAN))
    for depth in (*range(10, 1000, 90), *range(900, 1100, 9)):
        deep = "[" * depth + "]" * depth
        for name in ("usd_total", "gpu"):
            path.write_text(re.sub(rf'"{name}": [^,]*,', f'"{name}": {deep},', text, count=1))
            with pytest.raises(InputError, match=r"^x\.json: "):
                read_plan(path)


def test_pairs_of_escapes_are_one_character(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(plan_to_dict(dataclasses.replace(PLAN, policy="\U0001f600"))))
    assert r"\ud83d\ude00" in path.read_text()
    assert read_plan(path).policy == "\U0001f600"


# Anything JSON may hold, put anywhere in a sound plan, is either read or refused by name.
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**62, 2**70)
    | st.floats()
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)


@settings(max_examples=300)
@given(st.data())
def test_anything_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    plan = json.loads(json.dumps(plan_to_dict(PLAN)))
    inner: Any = plan
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = data.draw(st.sampled_from(keys))
        deeper = isinstance(inner[key], (dict, list)) and len(inner[key])
        if not deeper or data.draw(st.booleans()):
            break
        inner = inner[key]
    inner[key] = data.draw(anything)
    faults: list[str] = []
    try:
        read = plan_from_dict(plan, "p")
    except InputError as error:
        faults = str(error).split("\n")
    assert all(fault.startswith("p: ") for fault in faults)
    if not faults:
        check_plan(read)
        assert_same_plan(plan_from_dict(plan_to_dict(read)), read)
