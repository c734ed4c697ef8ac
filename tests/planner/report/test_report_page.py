"""The page of a report without a browser: whole, escaped, silent, and the same every time."""

import base64
import dataclasses
import hashlib
import html
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from planner.output.pictures import drawing
from planner.report.page import figures_of, render
from planner.report.parts import (
    Chart,
    Page,
    Picker,
    Readout,
    Rows,
    Section,
    Series,
    Words,
    charts_of,
)
from planner.report.svg import picture_of
from report_cases import HOSTILE, HOURS, bars, cost_chart, every_block, gantt

VOID = {"meta", "link", "img", "br", "input"}


class Reader(HTMLParser):
    """Reads a page, and refuses one whose elements do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, dict[str, str]]] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: dict[str, list[str]] = {}  # of the innermost element with an id
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = (tag, {name: value or "" for name, value in attrs})
        assert len(element[1]) == len(attrs), f"an attribute twice: {self.get_starttag_text()}"
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1][0] == "script":
            self.scripts.append(data)
        for _, attributes in reversed(self.open):
            if "id" in attributes:
                self.words.setdefault(attributes["id"], []).append(data)
                break

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text() -> str:
    return render(every_block())


@pytest.fixture(scope="module")
def page(text: str) -> Reader:
    return Reader(text)


def of(*blocks: object) -> Page:
    return Page("t", ("a",), (Section("s", "S", "one", blocks),))


def test_page_is_whole(text: str, page: Reader) -> None:
    assert text.startswith("<!DOCTYPE html>\n")
    assert text.endswith("</html>\n")
    assert [a["lang"] for a in page.all("html")] == ["en"]
    assert {a.get("name") for a in page.all("meta")} >= {"viewport", "color-scheme"}
    assert [name for name, _ in page.elements if name in {"h1", "h2"}] == ["h1", *["h2"] * 3]


def test_ids_are_unique_and_references_have_a_target(page: Reader) -> None:
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted: set[str] = set()
    for _, attributes in page.elements:
        for name, value in attributes.items():
            if name in {"aria-labelledby", "aria-describedby", "for"}:
                wanted.update(value.split())
            if name == "href" and value.startswith("#"):
                wanted.add(value[1:])
            wanted.update(re.findall(r"url\(#([^)]*)\)", value))
    assert wanted <= set(ids)
    assert any(name.startswith("cost--") for name in wanted)  # clip paths and markers
    assert any(name.startswith("folded-cost--") for name in wanted)


def test_nothing_can_be_asked_for(text: str, page: Reader) -> None:
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    assert {name for name, a in page.elements if "src" in a} == set()
    assert [a["href"] for a in page.all("link")] == ["data:,"]
    (policy,) = [a["content"] for a in page.all("meta") if "http-equiv" in a]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    script = page.scripts[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"


def test_scripts_are_ours_and_data(page: Reader) -> None:
    kinds = [a.get("type", "own") for a in page.all("script")]
    # charts with readouts: cost, present and the folded one; then the page's own script
    assert kinds == [*["application/json"] * 3, "own"]
    assert not any(name.startswith("on") for _, a in page.elements for name in a)


def test_hostile_names_are_words(text: str, page: Reader) -> None:
    assert page.all("img") == []
    assert "<img" not in text
    assert html.escape(HOSTILE) in text
    assert HOSTILE in "".join(page.words["words-g1"])
    hostile = Chart(
        **{
            **vars(bars()),
            "title": HOSTILE,
            "alt": HOSTILE,
            "caption": HOSTILE,
            "readouts": (),
        }
    )
    folded = dataclasses.replace(
        hostile,
        readouts=(
            Readout(
                hostile.figure.axes[0],
                (0.0,),
                HOSTILE,
                HOSTILE,
                (Series(HOSTILE, (1.0,), HOSTILE),),
            ),
        ),
    )
    section = Section("s", HOSTILE, HOSTILE, (folded,))
    read = Reader(render(Page(HOSTILE, (HOSTILE,), (section,), HOSTILE)))
    assert read.all("img") == []
    (data,) = json.loads(read.scripts[0])
    assert data["series"][0]["name"] == data["label"] == HOSTILE


def test_characters_that_a_page_cannot_hold_are_replaced() -> None:
    with drawing():
        figure = Figure(figsize=(3, 2))
        figure.add_subplot().set_xlabel("a\x01\x0b (h)")
    odd = Chart("odd", "\x01\ud800", figure, "\x02 \ud800")
    text = render(of(odd, Words(("\x1b[31m\ud800",))))
    text.encode()
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f]", text)
    assert text.count("\ufffd") == 3 * 2 + 2 + 2 + 2  # the title stands in three places


def test_same_page_same_bytes(text: str) -> None:
    assert render(every_block()) == text
    page = every_block()
    assert render(page) == render(page)  # drawn twice, the layout settles at the same place


def test_page_is_small(text: str) -> None:
    # five drawn charts and two tables; the limit for a whole report is 6 MB
    assert len(text.encode()) < 250_000


def test_a_picker_shows_all_without_a_script(page: Reader) -> None:
    (control,) = [a for a in page.all("p") if a.get("class") == "control"]
    assert "hidden" in control
    options = [a for a in page.all("div") if a.get("class") == "option"]
    assert len(options) == 3
    assert not any("hidden" in a for a in options)
    assert len(page.all("option")) == 3


def test_every_picture_has_a_name_and_words(page: Reader) -> None:
    charts = [c for s in every_block().sections for c in charts_of(s.blocks)]
    pictures = page.all("svg")
    assert [a["aria-label"] for a in pictures] == [chart.title for chart in charts]
    for chart, attributes in zip(charts, pictures, strict=True):
        assert attributes["role"] == "img"
        assert "".join(page.words[attributes["aria-describedby"]]) == chart.alt


def test_pictures_keep_text_as_text_and_carry_no_style_sheet(text: str, page: Reader) -> None:
    svgs = re.findall(r"<svg .*?</svg>", text, flags=re.DOTALL)
    assert len(svgs) == 6
    for svg in svgs:
        assert "<text" in svg
        assert "<style" not in svg
        assert "metadata" not in svg
        assert "DejaVu" not in svg  # the page's font stands in
        assert "xlink" not in svg
    assert "cost ($/h)" in svgs[0]
    assert "width" not in page.all("svg")[0]


def corners(path: str) -> list[tuple[float, float]]:
    """Return the corners of a path of M, L, H, V: each letter with its numbers."""
    found = [(0.0, 0.0)]
    for letter, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
        x, y = found[-1]
        places = [float(number) for number in numbers.split()]
        found.append(
            {"H": lambda p: (p[0], y), "V": lambda p: (x, p[0])}.get(letter, tuple)(places)  # noqa: B023
        )
    return found[1:]


def test_a_line_keeps_its_corners_to_a_hundredth_of_a_point() -> None:
    with drawing():
        figure = Figure(figsize=(2, 1))  # 144 pt by 72 pt
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.step((0, 1, 2, 3), (0.5, 1 / 3, 0.9, 0.4), where="post")
        axes.plot((0, 3), (0, 2 / 3))
        axes.set(xlim=(0, 3), ylim=(0, 1))
    svg = picture_of(Chart("c", "t", figure, "a"), "w").svg
    lines = re.findall(r'<path d="([^"]*)" clip-path', svg)
    # x is 48 pt a unit, y is 72 pt a unit from the lower edge
    levels = [(0, 36), (48, 36), (48, 48), (96, 48), (96, 7.2), (144, 7.2), (144, 43.2)]
    assert corners(lines[0]) == levels
    assert lines[0].endswith("H48V48H96V7.2H144V43.2")
    assert corners(lines[1]) == [(0, 72), (144, 24)]


def test_tips_are_titles_of_their_marks() -> None:
    svg = picture_of(gantt("g1"), "w").svg
    found = re.findall(r"<g><title>(.*?)</title><path", svg)
    assert [html.unescape(tip).rsplit(": ")[-1] for tip in found] == [
        "rollout, 0 s to 5 s",
        "train, 5 s to 8 s",
        "rollout, 8 s to 14 s",
    ]


def test_readouts_know_where_their_axes_are() -> None:
    with drawing():
        figure = Figure(figsize=(5, 4))
        axes = figure.add_axes((0.1, 0.2, 0.6, 0.5))  # left, bottom, width, height
        axes.set_xlim(1, 100)
        axes.set_xscale("log")
    series = Series("cost", (1.0, None, 1 / 3), "$/h")
    chart = Chart(
        "c", "t", figure, "a", readouts=(Readout(axes, (1.0, 2.0, 3.0), "n", "", (series,)),)
    )
    (data,) = picture_of(chart, "w").readouts
    assert data["box"] == [0.1, 0.3, 0.7, 0.8]
    assert data["limits"] == [1, 100]
    assert data["log"] is True
    assert data["series"][0]["values"] == [1, None, 0.3333333]


def test_a_constrained_layout_is_settled_before_places_are_read() -> None:
    chart = cost_chart()
    before = chart.figure.axes[0].get_position().bounds
    (top, _) = picture_of(chart, "w").readouts
    after = chart.figure.axes[0].get_position()
    assert after.bounds != before
    assert top["box"] == pytest.approx([after.x0, 1 - after.y1, after.x1, 1 - after.y0], rel=1e-6)


def test_columns_of_numbers_are_set_flush_right(page: Reader) -> None:
    heads = [a.get("class") for a in page.all("th") if a["scope"] == "col"]
    assert heads[:4] == [None, "numeric", "numeric", None]
    mixed = Rows("T", ("a", "b", "c"), (("x", "–", "$1.5"), ("y", "", "−2")))
    read = Reader(render(of(mixed)))
    assert [a.get("class") for a in read.all("th") if a["scope"] == "col"] == [
        None,
        None,
        "numeric",
    ]
    told = Rows("T", ("a", "b"), (("1", "2"),), numeric=(False, True))
    read = Reader(render(of(told)))
    assert [a.get("class") for a in read.all("th")] == [None, "numeric", None]


def test_figures_come_by_name_in_reading_order() -> None:
    page = every_block()
    assert list(figures_of(page)) == ["cost", "present", "g1", "g2", "g3", "folded-cost"]
    assert all(isinstance(figure, Figure) for figure in figures_of(page).values())


def test_a_picker_counts_as_one_figure(text: str) -> None:
    numbers = re.findall(r"Figure (\d+)\.", text)
    assert numbers == ["1", "2", "3", "3", "3", "4"]


def series(*values: float | None) -> tuple[Series, ...]:
    return (Series("a", values),)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Readout(None, (), "x", "h", ()), "one finite x or more"),
        (lambda: Readout(None, (2.0, 1.0), "x", "h", ()), "ascending x"),
        (lambda: Readout(None, (1.0, 2.0), "x", "h", series(1.0)), "Expected 2 values, got 1"),
        (lambda: Readout(None, (1.0,), "x", "h", series(1.0) * 2), "'a' twice"),
        (lambda: Series("a", (math.nan,)), "finite values or None"),
        (lambda: dataclasses.replace(bars(), name="A b"), "lower-case letters"),
        (lambda: dataclasses.replace(bars(), alt=" "), "words for those who cannot see it"),
        (lambda: dataclasses.replace(bars(), readouts=cost_chart().readouts), "its own axes"),
        (lambda: Picker("p", "P", ()), "one option or more"),
        (lambda: Picker("p", "P", (("a", bars()), ("a", gantt("g")))), "'a' twice"),
        (lambda: Rows("T", ("a", "b"), (("1",),)), "Expected 2 cells, got 1"),
        (lambda: of(bars(), bars()), "'present' twice"),
        (lambda: render(of(dataclasses.replace(bars(), tips={"no": "x"}))), "gid 'no'"),
    ],
)
def test_parts_refuse_what_the_page_could_not_show(make: object, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        make()


def test_twice_the_same_axes_is_refused() -> None:
    chart = bars()
    again = Readout(chart.figure.axes[0], HOURS, "time", "h", ())
    with pytest.raises(ValueError, match="one readout for each axes"):
        dataclasses.replace(chart, readouts=(*chart.readouts, again))


def test_parts_are_cheap_to_import() -> None:
    heavy = "{'matplotlib', 'jinja2', 'pandas'}"
    code = f"import planner.report.page, sys; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_name_cannot_turn_the_text_after_it() -> None:
    """A job called RIGHT-TO-LEFT OVERRIDE would show $123 as 321$ to those who read on."""
    turned = "a\u202eevil\u2066"
    text = render(Page("x", (turned,), (Section("s", turned, turned, (Words((turned,)),)),)))
    assert not {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"} & {*text}
    assert "a\ufffdevil\ufffd" in text
    arabic = "\u0639\u0642\u062f\u200d 7"  # right to left by its letters: as it should be
    assert arabic in render(Page(arabic, ("x",), ()))


def test_node_hours_in_a_header_are_one_word() -> None:
    table = Rows("t", ("pool", "own $/node-h"), (("H20", "6.91"),))
    assert "$/node\u2011h</th>" in render(Page("x", ("y",), (Section("s", "t", "", (table,)),)))
