"""``planner explain``: one word, several, none, and one that nobody knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import invoke, ok, refused, run
from planner.first_run.entry import KINDS
from planner.first_run.explaining import listed, said
from planner.first_run.glossary import documented, every_entry, find


def test_a_word_with_unit_default_source_and_place() -> None:
    out = ok("explain", "rollout_state_gb").out
    assert "rollout_state_gb (input, GB a node)" in out
    for label in ("Default: ", "Source: ", "Where: "):
        assert f"  {label}" in out


@pytest.mark.parametrize("word", ["rollout_s", "ROLLOUT_S", "Rollout-S", "rollout s"])
def test_case_dashes_and_underscores_do_not_matter(word: str) -> None:
    assert ok("explain", word).out == ok("explain", "rollout_s").out


def test_every_meaning_of_a_word_is_given() -> None:
    """slo is a column of the trace and a rule of the checker."""
    kinds = {entry.kind for entry in find("slo")}
    assert {"input", "rule"} <= kinds


def test_several_words_in_the_order_asked() -> None:
    out = ok("explain", "weave", "farley").out
    assert out.index("weave (policy)") < out.index("farley (term)")


def test_a_column_for_one_policy_pool_or_end_is_explained_through_its_figure() -> None:
    assert "Of policy colocated: " in ok("explain", "colocated_usd_total").out
    assert "rollout pool that are enough for 95 %" in ok("explain", "p95_rollout_nodes").out
    high = ok("explain", "availability_high").out
    assert "Upper end of the interval" in high
    assert find("availability")[0].text in " ".join(high.split())


def test_a_misspelt_word_gets_the_nearest_and_exit_code_2() -> None:
    refused(invoke("explain", "roleout_s"), "Unknown word 'roleout_s'", "'rollout_s'")
    refused(invoke("explain", "weave", "zzzzqqq", "slos"), "'zzzzqqq'", "'slos'", "'slo'")


def test_without_a_word_all_but_the_outputs_are_listed_by_kind() -> None:
    out = ok("explain").out
    for kind in KINDS:
        assert f"\n{kind} (" in f"\n{out}"
    assert "planner explain --kind output lists them." in out
    words = set(out.split())
    names = {e.name for e in every_entry() if " " not in e.name and e.kind != "output"}
    assert names <= words
    assert "usd_per_hour_mean" not in words


def test_the_list_is_short_enough_to_be_read() -> None:
    assert len(listed(80, [kind for kind in KINDS if kind != "output"]).splitlines()) < 120


def test_all_and_kinds_list_what_was_asked_for() -> None:
    words = set(ok("explain", "--all").out.split())
    assert {entry.name for entry in every_entry() if " " not in entry.name} <= words
    assert ok("explain", "--kind", "rules").out == ok("explain", "--kind", "rule").out
    assert (
        ok("explain", "--kind", "columns,policy").out
        == ok("explain", "--kind", "input,policies").out
    )
    shown = ok("explain", "--kind", "convention").out
    assert "wallclock" in shown
    assert "tightest" not in shown
    kinds = {entry["kind"] for entry in ok("explain", "--kind", "rule", "--json").json["entries"]}
    assert kinds == {"rule"}
    refused(invoke("explain", "--kind", "ruels"), "got 'ruels'. Did you mean 'rules'?")
    refused(invoke("explain", "--kind", ","), "Expected --kind in input,", "got ','")
    refused(invoke("explain", "slo", "--all"), "Expected words, or --kind or --all")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("idle", "Share of the paid node time"),
        ("h20", "GPU of the rollout pool"),
        ("H800", "GPU of the train pool"),
        ("valid plan", "keeps every rule of planner check"),
        ("valid", "see valid plan"),
        ("cost/bound", "see ratio"),
        ("own", "newsvendor is the rule"),
        ("owned", "see own"),
        ("rented", "only while they are needed"),
        ("async", "dedicated nodes"),
        ("p95", "95 % of values do not exceed"),
        ("colocated_factor", "Option --colocated-factor"),
    ],
)
def test_words_that_the_first_answers_print(word: str, said: str) -> None:
    assert said in " ".join(ok("explain", word).out.split())


def test_a_word_may_end_in_its_kind() -> None:
    assert find("work convention") == find("work")
    assert [entry.kind for entry in find("slo rule")] == ["rule"]
    refused(invoke("explain", "work rule"), "Unknown word 'work rule'")


@pytest.mark.parametrize("width", [40, 80, 160])
def test_everything_fits_the_terminal(width: int) -> None:
    assert max(map(len, listed(width).splitlines())) <= max(width, 80)
    longest = max(len(word) for e in every_entry() for word in e.text.split()) + 2
    for entry in every_entry():
        lines = said(entry, width).splitlines()[1:]
        assert max(map(len, lines)) <= max(width, longest), entry.name


def test_the_document_has_every_field() -> None:
    found = ok("explain", "gang", "milp", "--json").json
    assert found["command"] == "explain"
    assert [entry["name"] for entry in found["entries"]] == ["gang", "milp"]
    assert set(found["entries"][0]) == {
        "name", "kind", "text", "unit", "default", "source", "where",
    }  # fmt: skip
    everything = ok("explain", "--json").json["entries"]
    assert len(everything) == len(every_entry())


def test_it_works_as_a_process_of_its_own(tmp_path: Path) -> None:
    outcome = run("explain", "bubble", "--json", cwd=tmp_path)
    assert outcome.code == 0
    assert json.loads(outcome.out)["entries"][0]["kind"] == "term"


def test_attributes_are_read_from_a_docstring() -> None:
    class Thing:
        """One line.

        Attributes
        ----------
        one, two : int
            First line
            and second.
        three : str

        Raises
        ------
        ValueError
            Never.
        """

    assert documented(Thing) == {"one": "First line and second.", "two": "First line and second."}
