"""Hardware: the default numbers, prices and links, and the cluster file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.cluster_file import cluster_from_dict, cluster_to_dict, read_cluster
from instances.errors import InputError
from instances.hardware import (
    DEFAULT_CLUSTER,
    DEFAULT_MODELS,
    H20,
    H800,
    Cluster,
    GpuType,
    Links,
    ModelDefaults,
    NodeType,
)

# --- The default numbers -----------------------------------------------------------


def test_the_gpus_are_those_of_the_design() -> None:
    assert dataclasses.astuple(H20) == ("H20", 96.0, 4.0, 148.0, 1.85)
    assert dataclasses.astuple(H800) == ("H800", 80.0, 3.35, 989.0, 5.28)
    # "2.85 x H20", to the cent.
    assert round(H800.usd_per_gpu_hour / H20.usd_per_gpu_hour, 2) == 2.85


def test_the_default_cluster_is_that_of_the_design() -> None:
    assert Cluster() == DEFAULT_CLUSTER
    assert DEFAULT_CLUSTER.rollout == NodeType(gpu=H20, gpus_per_node=8, host_dram_gb=2000.0)
    assert DEFAULT_CLUSTER.train == NodeType(gpu=H800, gpus_per_node=8, host_dram_gb=2000.0)
    assert DEFAULT_CLUSTER.links == Links(intra_gbps=400.0, inter_gbps=20.0, links=None)
    assert DEFAULT_CLUSTER.models == DEFAULT_MODELS


#: model_b: rollout state, train state, rollout switch, train switch. Stated (s) or by the line
#: between the stated points, constant outside: 3B has the train numbers of 7B.
MODELS = {
    3.0: (200.0, 240.0, 0.9, 4.1),  # rollout state: a guess
    7.0: (275.7, 240.0, 0.9, 4.1),  # s
    14.0: (350.0, 240 + 280.4 * 7 / 25, 0.9 + 7 / 63, 4.1 + 1.8 * 7 / 63),  # rollout: a guess
    32.0: (490.3, 520.4, 0.9 + 25 / 63, 4.1 + 1.8 * 25 / 63),  # states: s
    70.0: (490.3, 520.4, 1.9, 5.9),  # switches: s; rollout state no more than 32B
}


def test_the_models_are_those_of_the_design() -> None:
    assert [m.model_b for m in DEFAULT_MODELS] == sorted(MODELS)
    for model in DEFAULT_MODELS:
        assert dataclasses.astuple(model)[1:] == pytest.approx(MODELS[model.model_b], abs=1e-4)


def test_two_to_five_jobs_of_every_size_fit_a_node() -> None:
    # The paper: 2-5 resident jobs on 1-2 TB. Ours holds at least 3 of any size (520.4 x 3).
    for model in DEFAULT_MODELS:
        most = max(model.rollout_state_gb, model.train_state_gb)
        assert 3 <= DEFAULT_CLUSTER.train.host_dram_gb // most <= 8


# --- Prices, counts and links ---------------------------------------------------------------


def test_a_node_costs_its_gpus() -> None:
    assert DEFAULT_CLUSTER.rollout.usd_per_hour == pytest.approx(14.80)  # 8 x 1.85
    assert DEFAULT_CLUSTER.train.usd_per_hour == pytest.approx(42.24)  # 8 x 5.28
    assert NodeType(gpu=H20, gpus_per_node=4).usd_per_hour == pytest.approx(7.4)


def test_the_papers_peak_costs_what_its_prices_say() -> None:
    # 216 H20 and 152 H800 are 27 and 19 nodes: 27 x 14.8 + 19 x 42.24.
    assert DEFAULT_CLUSTER.usd_per_hour(27, 19) == pytest.approx(1202.16)
    assert DEFAULT_CLUSTER.gpus(27, 19) == {"H20": 216, "H800": 152}
    assert DEFAULT_CLUSTER.usd_per_hour(0, 0) == 0.0
    assert DEFAULT_CLUSTER.usd_per_hour(0.5, 0.25) == pytest.approx(7.4 + 10.56)  # node-hours


def test_pools_of_one_kind_are_counted_together() -> None:
    both = DEFAULT_CLUSTER.replace(rollout=NodeType(gpu=H800, gpus_per_node=4))
    assert both.gpus(3, 2) == {"H800": 3 * 4 + 2 * 8}


@pytest.mark.parametrize(
    ("rollout", "train", "links"),
    [(0, 0, 1), (1, 1, 1), (16, 16, 1), (17, 1, 2), (1, 17, 2), (32, 33, 3), (1000, 160, 63)],
)
def test_one_link_per_16_nodes_of_the_larger_pool(rollout: int, train: int, links: int) -> None:
    assert Links().count(rollout, train) == links
    assert Links(links=7).count(rollout, train) == 7


def test_hardware_is_frozen_and_changed_by_replace() -> None:
    for item, name in (
        (H20, "usd_per_gpu_hour"),
        (NodeType(gpu=H20), "host_dram_gb"),
        (Links(), "links"),
        (DEFAULT_MODELS[0], "model_b"),
        (DEFAULT_CLUSTER, "links"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(item, name, 1)
    changed = DEFAULT_CLUSTER.replace(links=Links(links=2))
    assert changed.links.links == 2
    assert changed.rollout is DEFAULT_CLUSTER.rollout
    assert DEFAULT_CLUSTER.links.links is None
    assert hash(changed) != hash(DEFAULT_CLUSTER)


# --- The cluster file -------------------------------------------------------------------------


def read(text: str, folder: Path) -> Cluster:
    path = folder / "c.toml"
    path.write_text(text, encoding="utf-8", newline="")
    return read_cluster(path)


def toml(tables: dict[str, Any]) -> str:
    """Write tables as TOML; JSON's text and numbers are TOML's, too."""
    lines = []
    for name, table in tables.items():
        for part in table if isinstance(table, list) else [table]:
            lines.append(f"[[{name}]]" if isinstance(table, list) else f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in part.items()]
    return "\n".join(lines)


EVERY = Cluster(
    rollout=NodeType(
        gpu=GpuType(
            name="A1 é", hbm_gb=1.5, hbm_tb_per_s=2.5, bf16_tflops=3.5, usd_per_gpu_hour=0.0
        ),
        gpus_per_node=4,
        host_dram_gb=0.1 + 0.2,
    ),
    train=NodeType(gpu=H20, gpus_per_node=16, host_dram_gb=1234.5),
    links=Links(intra_gbps=1.0, inter_gbps=2.0, links=3, flat_over_hierarchical=2.7),
    models=(
        ModelDefaults(
            model_b=0.5,
            rollout_state_gb=0.0,
            train_state_gb=1.0,
            rollout_switch_s=0.0,
            train_switch_s=2.0,
        ),
    ),
)


@pytest.mark.parametrize("cluster", [EVERY, DEFAULT_CLUSTER], ids=["every field", "defaults"])
def test_round_trip(cluster: Cluster, tmp_path: Path) -> None:
    tables = cluster_to_dict(cluster)
    assert cluster_from_dict(tables) == cluster
    assert cluster_from_dict(json.loads(json.dumps(tables))) == cluster
    assert read(toml(tables), tmp_path) == cluster


numbers = st.floats(1e-3, 1e6)


@given(numbers, st.floats(0, 1e3), st.integers(1, 64), st.none() | st.integers(1, 99))
def test_any_cluster_survives(gb: float, usd: float, gpus: int, links: int | None) -> None:
    node = NodeType(
        gpu=dataclasses.replace(H800, hbm_gb=gb, usd_per_gpu_hour=usd), gpus_per_node=gpus
    )
    cluster = Cluster(train=node, links=Links(inter_gbps=gb, links=links))
    assert cluster_from_dict(json.loads(json.dumps(cluster_to_dict(cluster)))) == cluster


def test_what_is_left_out_keeps_its_default(tmp_path: Path) -> None:
    assert read("", tmp_path) == DEFAULT_CLUSTER
    got = read("[train]\nusd_per_gpu_hour = 3\n\n[links]\nlinks = 4\n", tmp_path)
    gpu = dataclasses.replace(H800, usd_per_gpu_hour=3.0)
    assert got == Cluster(train=NodeType(gpu=gpu), links=Links(links=4))
    # Another GPU keeps the pool's other numbers: only what is written changes.
    got = read('[rollout]\ngpu = "L40"\nhost_dram_gb = 500\n', tmp_path)
    assert got.rollout == NodeType(gpu=dataclasses.replace(H20, name="L40"), host_dram_gb=500.0)


def test_numbers_arrive_in_the_units_of_their_keys(tmp_path: Path) -> None:
    # Whole numbers may stand for decimals; a comment, CRLF and dotted keys are TOML's.
    text = "# ours\r\nrollout.host_dram_gb = 1000 # GB of 1e9 bytes\r\nlinks.inter_gbps = 40\r\n"
    got = read(text, tmp_path)
    assert got.rollout.host_dram_gb == 1000.0
    assert isinstance(got.rollout.host_dram_gb, float)
    assert got.links.inter_gbps == 40.0
    for key in cluster_to_dict(EVERY)["rollout"]:
        assert key in {"gpu", "gpus_per_node", "bf16_tflops"} or key.endswith(
            ("_gb", "_tb_per_s", "usd_per_gpu_hour")
        )


def test_models_are_sorted_and_replace_the_defaults(tmp_path: Path) -> None:
    point = (
        "[[model]]\nmodel_b = {}\nrollout_state_gb = 1\ntrain_state_gb = 2\n"
        "rollout_switch_s = 3\ntrain_switch_s = 4\n"
    )
    got = read(point.format(70) + point.format(1.5), tmp_path)
    assert [m.model_b for m in got.models] == [1.5, 70.0]
    assert dataclasses.astuple(got.models[0]) == (1.5, 1.0, 2.0, 3.0, 4.0)


POOL_KEYS = "gpu, hbm_gb, hbm_tb_per_s, bf16_tflops, usd_per_gpu_hour, gpus_per_node, host_dram_gb"
MODEL_KEYS = "model_b, rollout_state_gb, train_state_gb, rollout_switch_s, train_switch_s"
FAULTS: dict[str, tuple[str, str]] = {
    "unknown table": (
        "[rolout]\n",
        "Unknown key 'rolout'. Did you mean 'rollout'? Known keys: rollout, train, links, model.",
    ),
    "a line break in a key": (
        '"a\\nb" = 3',
        "Unknown key 'a\\nb'. Known keys: rollout, train, links, model.",
    ),
    "nothing like it": (
        "price = 3",
        "Unknown key 'price'. Known keys: rollout, train, links, model.",
    ),
    "unit forgotten": (
        "[rollout]\nhost_dram = 3",
        f"Unknown key '[rollout] host_dram'. Did you mean 'host_dram_gb'? Known keys: {POOL_KEYS}.",
    ),
    "other unit": (
        "[train]\nhost_dram_tb = 2",
        f"Unknown key '[train] host_dram_tb'. Did you mean 'host_dram_gb'? "
        f"Known keys: {POOL_KEYS}.",
    ),
    "unknown link key": (
        "[links]\ninter_gbs = 20",
        "Unknown key '[links] inter_gbs'. Did you mean 'inter_gbps'? "
        "Known keys: intra_gbps, inter_gbps, links, flat_over_hierarchical.",
    ),
    "unknown model key": (
        "[[model]]\nmodel_b = 7\nrollout_state_gb = 1\ntrain_state_gb = 1\n"
        "rollout_switch_s = 1\ntrain_switch_s = 1\nswitch_s = 1",
        f"Unknown key '[model #1] switch_s'. Did you mean 'train_switch_s'? "
        f"Known keys: {MODEL_KEYS}.",
    ),
    "negative price": (
        "[rollout]\nusd_per_gpu_hour = -1",
        "Expected [rollout] usd_per_gpu_hour >= 0, got -1.",
    ),
    "no DRAM": ("[train]\nhost_dram_gb = 0", "Expected [train] host_dram_gb > 0, got 0."),
    "infinite DRAM": (
        "[train]\nhost_dram_gb = inf",
        "Expected [train] host_dram_gb to be a finite number, got inf.",
    ),
    "no number": (
        "[train]\nhbm_gb = nan",
        "Expected [train] hbm_gb to be a finite number, got nan.",
    ),
    "number as text": (
        "[train]\nhost_dram_gb = '2'",
        "Expected [train] host_dram_gb to be a number, got '2'.",
    ),
    "true as number": (
        "[train]\nhost_dram_gb = true",
        "Expected [train] host_dram_gb to be a number, got True.",
    ),
    "half a GPU": (
        "[train]\ngpus_per_node = 8.0",
        "Expected [train] gpus_per_node to be a whole number, got 8.0.",
    ),
    "no GPU": ("[train]\ngpus_per_node = 0", "Expected [train] gpus_per_node >= 1, got 0."),
    "no link": ("[links]\nlinks = 0", "Expected [links] links >= 1, got 0."),
    "dead link": ("[links]\ninter_gbps = 0", "Expected [links] inter_gbps > 0, got 0."),
    "name as number": ("[train]\ngpu = 3", "Expected [train] gpu to be text, got 3."),
    "models as number": ("model = 3", "Expected model to be a list, got 3."),
    "negative state": (
        "[[model]]\nmodel_b = 7\nrollout_state_gb = 1\ntrain_state_gb = -2\n"
        "rollout_switch_s = 0\ntrain_switch_s = 0",
        "Expected [model #1] train_state_gb >= 0, got -2.",
    ),
    "a model twice": (
        "\n".join(
            f"[[model]]\nmodel_b = {b}\nrollout_state_gb = 1\ntrain_state_gb = 2\n"
            "rollout_switch_s = 0\ntrain_switch_s = 0"
            for b in ("7", "3", "7.0")
        ),
        "Expected distinct [model] model_b, got 7 twice.",
    ),
    "not TOML": (
        "[rollout\n",
        "Not valid TOML: Expected ']' at the end of a table declaration (at line 1",
    ),
    "a key twice": (
        "[train]\ngpu = 'a'\ngpu = 'b'\n",
        "Not valid TOML: Cannot overwrite a value (at line 3",
    ),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_every_fault_names_file_key_and_value(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(text, tmp_path)
    said = str(caught.value)
    if message.startswith("Not valid TOML"):  # Python's words; their last column varies
        said = said.partition(", column")[0]
    assert said == f"c.toml: {message}"


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read("[rollout]\ngpus = 1\nhost_dram_gb = 0\n[links]\nlinks = 1.5\n[[model]]", tmp_path)
    lines = str(caught.value).splitlines()
    assert lines == [
        "c.toml: Expected [rollout] host_dram_gb > 0, got 0.",
        f"c.toml: Unknown key '[rollout] gpus'. Did you mean 'gpu'? Known keys: {POOL_KEYS}.",
        "c.toml: Expected [links] links to be a whole number, got 1.5.",
        *(f"c.toml: Missing [model #1] {key}." for key in MODEL_KEYS.split(", ")),
    ]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"/absent\.toml: No such file or directory\.$"):
        read_cluster(tmp_path / "absent.toml")
    with pytest.raises(InputError, match=r"Is a directory\.$"):
        read_cluster(tmp_path)
    path = tmp_path / "latin.toml"
    path.write_bytes(b"# Gr\xfc\xdfe\n")
    with pytest.raises(InputError, match=r"^latin\.toml: Not valid TOML: 'utf-8' codec"):
        read_cluster(path)


ODD_FAULTS: dict[str, tuple[str, str]] = {
    "a pool as number": ("rollout = 3", "Expected rollout to be a table of keys, got 3"),
    "an empty name": ("[rollout]\ngpu = ''", "Expected [rollout] gpu"),
    "no models": ("model = []", "Expected model"),
    "very many digits": (f"[rollout]\nhost_dram_gb = 1{'0' * 5000}", ""),
    "nested too deeply": (f"x = {'[' * 5000}", ""),
    "more GPUs than a float holds": (f"[rollout]\ngpus_per_node = 1{'0' * 400}", ""),
    "a long value": (f"[rollout]\nhost_dram_gb = '{'x' * 5000}'", ""),
}


@pytest.mark.parametrize(("text", "message"), ODD_FAULTS.values(), ids=ODD_FAULTS.keys())
def test_odd_faults_are_said_in_one_voice(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(text, tmp_path)
    said = str(caught.value)
    assert said.startswith(f"c.toml: {message}")
    assert "Table" not in said
    assert "should have" not in said
    assert len(said) < 200


def test_a_nul_in_the_path_is_an_input_error() -> None:
    with pytest.raises(InputError):
        read_cluster("a\0b.toml")
