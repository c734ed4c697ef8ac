"""``report.html`` of every command with ``--out``, its figures, and ``planner report``."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from browser import check_report, chromium
from command_line import GANG, OPEN_SHOP, invoke, names, ok, refused, write
from instances.catalog import catalog_path
from planner.cli import completion
from planner.report import whole

MIXED = catalog_path("mixed-300")
QUICK_SIZE = ("--only", "alternatives,fleet,prices", "--baselines", "solo,colocated")


def text_of(page: Path) -> str:
    """Return the words of a page, without marks."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"<(script|style).*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ``planner report`` writes, of the first jobs of a mixed trace."""
    folder = tmp_path_factory.mktemp("report")
    lines = MIXED.read_text(encoding="utf-8").splitlines()[:31]
    trace = write(folder / "thirty.csv", "\n".join(lines) + "\n")
    out = folder / "answer"
    ok(
        "report", "--trace", trace, "--out", out, "--size-parts", "alternatives,fleet,prices",
        "--processes", "1", "--seed", "3", "-q",
    )  # fmt: skip
    return out


COMMANDS = {
    "plan": ("plan", "--baselines", "solo,random", "--seeds", "2"),
    "gap": ("gap", "--processes", "1"),
    "size": ("size", *QUICK_SIZE),
    "snapshot": ("snapshot", "--all-jobs"),
    "simulate": ("simulate", "--only", "runtime,failures", "--plan-at", "max"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_writes_a_sound_page(name: str, folder: Path, driver: WebDriver) -> None:
    first, *rest = COMMANDS[name]
    ok(first, "--trace", GANG, *rest, "--out", "d", "-q")
    page = folder / "d" / "report.html"
    check_report(driver, page)
    text = text_of(page)
    assert "How to reproduce this" in text
    assert f"planner {name} --trace tiny-gang.csv" in text
    assert "Assumptions and inputs" in text


def test_moves_have_a_page_too(folder: Path, driver: WebDriver) -> None:
    """The page of a dry run says what its document says."""
    ok("plan", "--trace", "production-200", "--out", "replay", "--no-html", "-q")
    words = ("--plan", "replay/plan.json", "--at-hours", "60", "--time-limit", "20s")
    found = ok("repack", *words, "--json", "-q").json
    ok("repack", *words, "--out", "d", "-q")
    page = folder / "d" / "report.html"
    check_report(driver, page)
    text = text_of(page)
    assert f"${found['usd_per_hour_after']:,.2f}/h" in text
    assert all(move["job_id"] in text for change in found["proposals"] for move in change["moves"])
    assert names(folder / "d") == ["moves.csv", "repacked.json", "report.html"]


def test_everything_about_a_trace_is_one_sound_page(everything: Path, driver: WebDriver) -> None:
    page = everything / "report.html"
    check_report(driver, page)
    assert page.stat().st_size < 6e6
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page.read_text(encoding="utf-8"))
    wanted = (
        "What to own and what to rent",
        "A fixed fleet",
        "Who is cheapest at which prices",
        "Cost over time",
        "GPUs over time",
        "Demand duration curve",
        "How jobs were admitted",
        "Groups",
        "Optimality gap over time",
        "Promises at run time",
        "Assumptions and inputs",
        "How to reproduce this",
    )
    assert [name for name in wanted if not any(name in heading for heading in headings)] == []
    assert {"plan.json", "jobs.csv", "timeline.csv", "gap.csv"} <= set(names(everything))


def test_the_plan_of_the_page_is_checked_again(everything: Path) -> None:
    checked = ok("check", everything / "plan.json", "--json").json
    text = text_of(everything / "report.html")
    assert f"${checked['usd_total']:,.0f}" in text


def test_the_page_says_how_to_get_it_again(everything: Path, folder: Path) -> None:
    """The command that the page shows, run again, gives the same bytes."""
    text = (everything / "report.html").read_text(encoding="utf-8")
    shown = html.unescape(re.search(r"planner report [^<]*", text)[0])  # type: ignore[index]
    words = shown.split()
    assert "--seed" in words
    assert "--quiet" not in words
    trace = everything.parent / "thirty.csv"
    words[words.index("--trace") + 1] = str(trace)
    words[words.index("--out") + 1] = "answer"
    ok(*words[1:], "-q")
    assert (folder / "answer" / "report.html").read_bytes() == (
        everything / "report.html"
    ).read_bytes()


def test_figures_are_files_without_a_browser(folder: Path) -> None:
    ok("plan", "--trace", OPEN_SHOP, "--out", "svg", "--figures", "svg", "-q")
    pictures = sorted(path.stem for path in (folder / "svg").glob("*.svg"))
    page = (folder / "svg" / "report.html").read_text(encoding="utf-8")
    assert len(pictures) == page.count("<svg ") > 5
    ok("plan", "--trace", OPEN_SHOP, "--out", "png", "--figures", "png", "-q")
    drawn = list((folder / "png").glob("*.png"))
    assert sorted(path.stem for path in drawn) == pictures
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert (folder / "png" / "report.html").read_text(encoding="utf-8") == page


def test_the_page_can_be_left_out(folder: Path) -> None:
    ok("plan", "--trace", GANG, "--out", "d", "--no-html", "-q")
    assert names(folder / "d") == ["jobs.csv", "plan.json", "timeline.csv"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--figures", "svg"), "Expected --out DIR with --figures"),
        (("--figures", "png", "--out", "d", "--no-html"), "--figures and --no-html"),
    ],
)
def test_figures_need_a_page_and_a_folder(words: tuple[str, ...], said: str, folder: Path) -> None:
    refused(invoke("plan", "--trace", GANG, *words), said)
    assert names(folder) == []


def test_nothing_is_replaced_unasked(folder: Path) -> None:
    (folder / "d").mkdir()
    write(folder / "d" / "report.html", "mine")
    refused(invoke("plan", "--trace", GANG, "--out", "d"), "report.html", "--force")
    refused(invoke("report", "--trace", GANG, "--out", "d"), "report.html", "--force")
    (folder / "d" / "report.html").unlink()
    write(folder / "d" / "photo.png", "mine")
    refused(invoke("plan", "--trace", GANG, "--out", "d", "--figures", "png"), "photo.png")
    assert names(folder / "d") == ["photo.png"]
    ok("plan", "--trace", GANG, "--out", "d", "--figures", "svg", "-q")
    assert (folder / "d" / "photo.png").read_text(encoding="utf-8") == "mine"


def test_parts_are_left_out_and_unknown_ones_refused(folder: Path) -> None:
    ok("report", "--trace", GANG, "--out", "d", "--skip", "size,simulate,gap", "-q")
    assert "gap.csv" not in names(folder / "d")
    refused(
        invoke("report", "--trace", GANG, "--out", "e", "--skip", "sise"), "sise", "size", code=2
    )


def test_a_part_without_an_answer_is_said_and_the_rest_written(folder: Path) -> None:
    """No bound concerns colocated plans: its gap has no answer, exit code 1, the page written."""
    got = invoke(
        "report", "--trace", OPEN_SHOP, "--out", "d", "--policy", "colocated", "--baselines", "",
        "--skip", "size,simulate",
    )  # fmt: skip
    assert got.code == 1
    assert "gap:" in got.err
    assert "no bound concerns it" in text_of(folder / "d" / "report.html")


def test_the_document_holds_those_of_the_commands(folder: Path) -> None:
    got = ok(
        "report", "--trace", OPEN_SHOP, "--out", "d", "--skip", "simulate", "--json",
        "--size-parts", "alternatives", "--baselines", "", "--processes", "1",
    )  # fmt: skip
    assert got.json["command"] == "report"
    assert got.json["simulate"] is None
    plan = ok("plan", "--trace", OPEN_SHOP, "--json").json
    assert got.json["plan"]["conventions"] == plan["conventions"]
    gap = ok("gap", "--trace", OPEN_SHOP, "--json", "--time-limit-per-snapshot", "2s").json
    assert got.json["gap"] == gap


def test_the_parts_are_those_of_the_library() -> None:
    assert whole.PARTS == completion.REPORT_PARTS


def test_ctrl_c_writes_what_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.gap.proving.optimality_gap", interrupted)
    got = invoke("report", "--trace", OPEN_SHOP, "--out", "d", "--skip", "size,simulate")
    assert got.code == 130
    assert "weave needs at most" in got.out
    assert "interrupted in part gap" in got.err
    assert {"report.html", "plan.json"} <= set(names(folder / "d"))
