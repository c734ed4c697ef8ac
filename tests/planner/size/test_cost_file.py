"""The cost file: what it changes, round trips, and faults that name file, table, key and unit."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER
from planner.size import cost_file
from planner.size.cost_file import costs_from_dict, costs_to_dict, read_costs
from planner.size.pool_costs import Period, default_costs

ALL_KEYS = """
[site]
pue = 1.2
usd_per_kwh = 0.08
[rollout]
rent_usd_per_gpu_hour = 2
usd_per_node = 150_000
depreciation_years = 5
interest = 0.05
residual_share = 0.2
watts_per_gpu = 500
watts_per_node = 2000
hosting_usd_per_node_month = 300
staff_usd_per_node_year = 1000
max_rented_nodes = 20
max_owned_nodes = 50
lease_block_h = 168
[rollout.sources]
usd_per_node = "quote of 2026-10"
interest = "guess of the bank"
[train]
own_usd_per_gpu_hour = 2.5
usd_per_kwh = 0.12
[[period]]
years = 1
capex_usd = 5e6
[[period]]
years = 2
growth = 1.5
own_price_factor = 0.9
rent_price_factor = 0.8
"""


def costs(text: str, cluster: Any = DEFAULT_CLUSTER) -> Any:
    return costs_from_dict(tomllib.loads(text), cluster, "C.toml")


def test_an_empty_file_is_the_defaults() -> None:
    assert costs("") == default_costs(DEFAULT_CLUSTER)


def test_every_key_arrives() -> None:
    found = costs(ALL_KEYS)
    rollout = found.rollout
    assert (rollout.rent_usd_per_gpu_hour, rollout.usd_per_node) == (2.0, 150_000.0)
    assert (rollout.depreciation_years, rollout.interest, rollout.residual_share) == (5, 0.05, 0.2)
    assert (rollout.watts_per_gpu, rollout.watts_per_node) == (500.0, 2000.0)
    assert (rollout.hosting_usd_per_node_month, rollout.staff_usd_per_node_year) == (300, 1000)
    assert (rollout.max_rented_nodes, rollout.max_owned_nodes) == (20, 50)
    assert rollout.lease_block_h == 168.0
    assert (rollout.pue, rollout.usd_per_kwh) == (1.2, 0.08)
    assert (found.train.pue, found.train.usd_per_kwh) == (1.2, 0.12)  # a pool goes before the site
    assert found.train.own_usd_per_node_hour == 20.0
    assert found.periods == (
        Period(years=1.0, capex_usd=5e6),
        Period(years=2.0, growth=1.5, own_price_factor=0.9, rent_price_factor=0.8),
    )


def test_the_file_is_tested_whole() -> None:
    """Every key of a pool that exists is in ALL_KEYS."""
    assert all(f"{key} =" in ALL_KEYS for key in cost_file._POOL_KEYS)


def test_a_number_given_is_a_guess_no_more_unless_it_says_so() -> None:
    found = costs(ALL_KEYS)
    assert found.rollout.sources["usd_per_node"] == "quote of 2026-10"
    assert found.rollout.sources["watts_per_node"] == "C.toml"
    assert found.guesses() == {"rollout.interest": "guess of the bank"}


def test_a_budget_is_that_of_the_only_period() -> None:
    assert costs("[budget]\ncapex_usd = 1e6").capex_budget_usd == 1e6


@pytest.mark.parametrize("text", ["", ALL_KEYS, "[budget]\ncapex_usd = 0"])
def test_what_is_written_is_read_back_unchanged(text: str) -> None:
    found = costs(text)
    assert costs_from_dict(costs_to_dict(found), DEFAULT_CLUSTER) == found


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "C.toml"
    path.write_text(ALL_KEYS)
    assert read_costs(path, DEFAULT_CLUSTER) == costs(ALL_KEYS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[rollout]\nusd_per_nod = 1",
            r"C.toml: Unknown key '\[rollout\] usd_per_nod'. Did you mean 'usd_per_node'\?",
        ),
        ("[trian]\nusd_per_node = 1", r"C.toml: Unknown key 'trian'. Did you mean 'train'\?"),
        (
            "[rollout]\ninterest = -1",
            r"Expected \[rollout\] interest \(a year, 0.08 is 8 %\) >= 0, got -1",
        ),
        ("[site]\npue = 0.5", r"Expected \[site\] pue \(power of the site .*\) >= 1, got 0.5"),
        (
            "[train]\nwatts_per_gpu = '700 W'",
            r"Expected \[train\] watts_per_gpu \(W\) to be a number, got '700 W'",
        ),
        (
            "[train]\nmax_rented_nodes = 1.5",
            r"Expected \[train\] max_rented_nodes \(nodes\) to be a whole number, got 1.5",
        ),
        ("[budget]", r"Missing \[budget\] capex_usd \(\$\)"),
        (
            "[[period]]\nyears = 1\n[[period]]\nyears = 0",
            r"Expected \[period #2\] years \(years\) > 0, got 0",
        ),
        (
            "[[period]]\ngrowht = 2",
            r"Unknown key '\[period #1\] growht'. Did you mean 'growth'\?",
        ),
        (
            "[budget]\ncapex_usd = 1\n[[period]]\nyears = 1",
            r"Expected \[budget\] or \[\[period\]\], got both",
        ),
        (
            "[rollout.sources]\ninterst = 'x'",
            r"Unknown key '\[rollout sources\] interst'. Did you mean 'interest'\?",
        ),
        ("period = []", "C.toml: Expected period to be not empty"),
    ],
)
def test_a_fault_names_file_table_key_and_unit(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        costs(text)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(InputError) as caught:
        costs("[site]\npue = 0\n[rollout]\ninterest = -1\n[train]\nusd = 1")
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["C.toml"] * 3


def other_gpu() -> Any:
    old = DEFAULT_CLUSTER.train
    return DEFAULT_CLUSTER.replace(train=replace(old, gpu=replace(old.gpu, name="B200")))


def test_a_price_of_another_gpu_asks_for_its_power() -> None:
    text = "[train]\nusd_per_node = 500_000"
    with pytest.raises(InputError, match=r"C.toml: Missing \[train\] watts_per_gpu \(W\)"):
        costs(text, other_gpu())
    found = costs(f"{text}\nwatts_per_gpu = 1000", other_gpu())
    assert found.train.can_own


def test_a_budget_of_another_gpu_asks_for_its_price() -> None:
    text = "[train]\nown_usd_per_gpu_hour = 2\n[budget]\ncapex_usd = 1"
    with pytest.raises(InputError, match=r"C.toml: Missing \[train\] usd_per_node \(\$\)"):
        costs(text, other_gpu())


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_costs(tmp_path / "none.toml", DEFAULT_CLUSTER)
