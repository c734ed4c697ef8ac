"""The page of a report in a real browser: silent, legible, and driven by pointer and keys."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.common.exceptions import NoAlertPresentException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

from browser import (
    DESKTOP,
    PHONE,
    check_report,
    chromium,
    console_errors,
    open_page,
    overflow_px,
    resize,
)
from planner.report.page import render
from report_cases import every_block

NBSP = "\u00a0"  # which selenium returns as a space where it is shown


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(every_block()), encoding="utf-8")
    return path


def changed(report: Path, folder: Path, old: str, new: str) -> Path:
    text = report.read_text(encoding="utf-8")
    assert old in text
    path = folder / "changed.html"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_a_page_of_every_block_is_sound(driver: WebDriver, report: Path) -> None:
    check_report(driver, report)


CSP = 'http-equiv="Content-Security-Policy"'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('id="table-2"', 'id="table-1"', id="an id twice"),
        pytest.param('<h2 id="title-cost">', '<h4 id="x">n</h4><h2 id="title-cost">', id="heading"),
        pytest.param('<label for="choice-group">', "<label>", id="a list without a name"),
        pytest.param("<header>", '<header><div style="width:1500px">w</div>', id="too wide"),
        pytest.param("<header>", '<header><div style="width:600px">w</div>', id="too wide a phone"),
        pytest.param("size: A4", "size: letter", id="paper"),
        pytest.param("<path", "<desc", id="no marks"),
        pytest.param(
            'viewBox="0 0 576 331.2"', 'viewBox="0 0 300 331.2"', id="words cut at the edge"
        ),
        pytest.param("<header>", "<header><script>throw 1</script>", id="a script not ours"),
        pytest.param(
            CSP, 'name="none"><img alt="" src="http://127.0.0.1:9/x.png"', id="a request"
        ),
    ],
)  # fmt: skip
def test_the_check_finds_faults(
    driver: WebDriver, report: Path, tmp_path: Path, old: str, new: str
) -> None:
    with pytest.raises(AssertionError):
        check_report(driver, changed(report, tmp_path, old, new))


def test_hostile_names_run_nothing(driver: WebDriver, report: Path) -> None:
    open_page(driver, report)
    with pytest.raises(NoAlertPresentException):
        _ = driver.switch_to.alert
    assert driver.execute_script("return document.images.length") == 0
    # and were one let through, the page's policy would stop it
    driver.execute_script(
        "document.body.insertAdjacentHTML('beforeend', "
        '\'<img src="http://127.0.0.1:9/x.png" onerror="window.hit = 1">\')'
    )
    assert driver.execute_async_script(
        "setTimeout(() => arguments[0](window.hit ?? 0), 200)"
    ) == 0  # fmt: skip
    complaints = console_errors(driver)
    assert any("img-src data:" in c for c in complaints)
    assert any("script-src" in c for c in complaints)


def picture(driver: WebDriver, name: str) -> WebElement:
    return driver.find_element("css selector", f"#figure-{name} .picture")


def values(found: WebElement) -> dict[str, str]:
    rows = found.find_elements("css selector", ".values div")
    cells = [[c.text for c in row.find_elements("tag name", "span")] for row in rows]
    return {name: value for name, value in cells if value}


def point(driver: WebDriver, found: WebElement, readout: int, x_fraction: float) -> None:
    """Point into the middle of a readout's axes, at a fraction of their width."""
    box = driver.execute_script(
        "return JSON.parse(arguments[0].querySelector('script.readouts').textContent)"
        "[arguments[1]].box",
        found,
        readout,
    )
    driver.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found
    )
    width, height = found.size["width"], found.size["height"]
    x = (box[0] + (box[2] - box[0]) * x_fraction - 0.5) * width
    y = ((box[1] + box[3]) / 2 - 0.5) * height
    ActionChains(driver, duration=0).move_to_element_with_offset(
        found, round(x), round(y)
    ).perform()


def test_pointing_reads_values_off(driver: WebDriver, report: Path) -> None:
    open_page(driver, report)
    cost = picture(driver, "cost")
    assert values(cost) == {}
    # the axis runs from -2 to 42 h (5 % of 40 h on each side): (15 + 2) / 44 is 15 h, where
    # the steps of 10 h still hold: 452.25 and 767 $/h
    point(driver, cost, 0, 17 / 44)
    read = values(cost)
    assert read["weave"] == "$452.3/h"
    assert read["solo"] == "$767/h"
    assert float(read["time"].removesuffix(" h")) == pytest.approx(15, abs=0.1)
    # weave has no value from 30 h to 40 h
    point(driver, cost, 0, 37 / 44)
    assert values(cost)["weave"] == "–"
    # points on a logarithmic axis: the nearest one is read. From 10^-0.1 to 10^2.1, so 10 is in
    # the middle, and 20 is nearer to 10 than to 100
    point(driver, cost, 1, (0.1 + 1.301) / 2.2)
    assert values(cost) == {"jobs": "10", "ratio": "1.5 ×"}
    assert cost.find_element("css selector", ".cursor").is_displayed()
    # the same place has two y axes
    present = picture(driver, "present")
    point(driver, present, 0, 27 / 44)
    assert {k: v for k, v in values(present).items() if k != "time"} == {
        "jobs": "7",
        "solo": "$940/h",
    }
    assert values(cost) == {}  # the pointer has left it
    assert console_errors(driver) == []


def test_keys_move_the_cursor(driver: WebDriver, report: Path) -> None:
    open_page(driver, report)
    cost = picture(driver, "cost")
    slider = cost.find_element("css selector", "[role=slider]")
    driver.execute_script("arguments[0].focus()", slider)

    def press(key: str) -> dict[str, str]:
        ActionChains(driver, duration=0).send_keys(key).perform()
        return values(cost)

    assert press(Keys.ARROW_RIGHT)["time"] == "0 h"
    assert press(Keys.ARROW_RIGHT) == {
        "time": "10 h",
        "weave": "$452.3/h",
        "solo": "$767/h",
    }
    assert slider.get_attribute("aria-valuetext") == (
        f"time 10{NBSP}h, weave $452.3/h, solo $767/h"
    )
    assert slider.get_attribute("aria-valuenow") == "10"
    assert press(Keys.END)["time"] == "40 h"
    assert press(Keys.ARROW_RIGHT)["time"] == "40 h"
    assert press(Keys.ARROW_LEFT)["time"] == "30 h"
    assert press(Keys.HOME)["time"] == "0 h"
    assert press(Keys.ARROW_DOWN) == {"jobs": "1", "ratio": "1 ×"}
    assert press(Keys.ARROW_RIGHT) == {"jobs": "10", "ratio": "1.5 ×"}
    assert press(Keys.ESCAPE) == {}
    # between two points Left goes to the one before
    point(driver, cost, 0, 17 / 44)
    assert press(Keys.ARROW_LEFT)["time"] == "10 h"


def test_tab_reaches_everything_and_shows_where_it_is(driver: WebDriver, report: Path) -> None:
    open_page(driver, report)
    reached = []
    for _ in range(40):
        ActionChains(driver, duration=0).send_keys(Keys.TAB).perform()
        found = driver.switch_to.active_element
        if found.tag_name == "body":
            break
        assert found.value_of_css_property("outline-style") != "none", found.get_attribute("class")
        reached.append(found.get_attribute("role") or found.tag_name)
    assert reached[0] == "a"  # skip the contents
    assert reached.count("slider") == 2  # the third is folded
    assert reached.count("select") == 1
    assert reached.count("region") == 1  # the table that may scroll


def shown_groups(driver: WebDriver) -> list[str]:
    figures = driver.find_elements("css selector", ".picker figure")
    return [figure.get_attribute("id") for figure in figures if figure.is_displayed()]


def test_a_picker_is_driven_by_keys(driver: WebDriver, report: Path) -> None:
    open_page(driver, report)
    assert shown_groups(driver) == ["figure-g1"]
    select = driver.find_element("css selector", "#choice-group")
    select.send_keys(Keys.ARROW_DOWN)
    assert shown_groups(driver) == ["figure-g2"]
    select.send_keys(Keys.END)
    assert shown_groups(driver) == ["figure-g3"]


def test_without_the_script_all_is_shown(driver: WebDriver, report: Path, tmp_path: Path) -> None:
    # another hash in the policy, and the browser refuses the script
    open_page(driver, changed(report, tmp_path, "'sha256-", "'sha256-A"))
    assert shown_groups(driver) == ["figure-g1", "figure-g2", "figure-g3"]
    assert not driver.find_element("css selector", "#choice-group").is_displayed()
    assert not driver.find_element("css selector", ".hint").is_displayed()


def test_a_phone_scrolls_pictures_not_the_page(driver: WebDriver, report: Path) -> None:
    open_page(driver, report, PHONE)
    assert overflow_px(driver) == 0
    cost = picture(driver, "cost")
    # 8 in are 576 pt, at least 1.1 px each; matplotlib's 10 pt are then 11 px
    assert cost.size["width"] == 634
    slider = cost.find_element("css selector", "[role=slider]")
    driver.execute_script("arguments[0].focus()", slider)
    ActionChains(driver, duration=0).send_keys(Keys.END).perform()
    seen = driver.execute_script(
        "return ['.cursor', '.values'].map((s) => arguments[0].querySelector(s)"
        ".getBoundingClientRect()).every((b) => b.left >= 0 && b.right <= innerWidth)",
        cost,
    )
    assert seen, "the cursor or its box is out of sight"
    resize(driver, DESKTOP)


def test_a_touch_reads_values_off(driver: WebDriver, report: Path) -> None:
    open_page(driver, report, PHONE)
    cost = picture(driver, "cost")
    driver.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", cost
    )
    box = driver.execute_script(
        "const b = arguments[0].getBoundingClientRect(); return [b.x, b.y]", cost
    )
    touch = {"x": box[0] + 200, "y": box[1] + 60}
    driver.execute_cdp_cmd(
        "Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [touch]}
    )
    driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert "weave" in values(cost)  # stays when the finger is lifted
    resize(driver, DESKTOP)


def test_print_opens_what_is_folded(driver: WebDriver, report: Path) -> None:
    open_page(driver, report)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        driver.execute_script("window.dispatchEvent(new Event('beforeprint'))")
        opened = driver.execute_script(
            "return [...document.querySelectorAll('.picture')].filter((p) => p.checkVisibility())"
            ".map((p) => p.closest('figure').id)"
        )
        assert opened == ["figure-cost", "figure-present", "figure-g1", "figure-folded-cost"]
        hidden = driver.find_elements("css selector", "nav, .control, .slider, .hint")
        assert not any(e.is_displayed() for e in hidden)
        assert driver.find_element("css selector", ".which").is_displayed()
        # the table of 20 rows scrolls on a screen, and is whole on paper
        assert hidden_px(driver, ".table:not(.small) > .scroll") == 0
        driver.execute_script("window.dispatchEvent(new Event('afterprint'))")
        assert (
            driver.execute_script("return document.querySelectorAll('details[open]').length") == 0
        )
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def hidden_px(driver: WebDriver, selector: str) -> int:
    found = driver.find_element("css selector", selector)
    return driver.execute_script(
        "return arguments[0].scrollHeight - arguments[0].clientHeight", found
    )


def test_a_long_table_scrolls_below_its_header(driver: WebDriver, report: Path) -> None:
    open_page(driver, report)
    driver.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    selector = ".table:not(.small) > .scroll"
    assert hidden_px(driver, selector) > 0
    tops = driver.execute_script(
        "const box = document.querySelector(arguments[0]); box.scrollTop = 1e4;"
        "return [box, box.querySelector('thead th')].map((e) => e.getBoundingClientRect().top)",
        selector,
    )
    assert tops[0] == pytest.approx(tops[1], abs=1)


def test_words_stand_out_from_the_paper(driver: WebDriver, report: Path) -> None:
    """WCAG 2.2, 1.4.3: a contrast of 4.5 or more, on white or on the grey of commands."""
    open_page(driver, report)
    colours = driver.execute_script(
        "return [...new Set([...document.querySelectorAll('body *:not(svg *)')]"
        ".filter((e) => e.textContent.trim()).map((e) => getComputedStyle(e).color))]"
    )
    assert len(colours) >= 3
    darkest_paper = luminance("rgb(245, 245, 240)")
    for colour in colours:
        assert (darkest_paper + 0.05) / (luminance(colour) + 0.05) >= 4.5, colour


def luminance(colour: str) -> float:
    """Return the relative luminance of ``rgb(r, g, b)``, as WCAG defines it."""
    parts = [int(p) / 255 for p in colour[colour.index("(") + 1 : -1].split(",")]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
