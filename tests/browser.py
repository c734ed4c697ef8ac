"""A real browser, headless Chromium, for the pages the project writes."""

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

#: Desktop and phone, in CSS pixels.
DESKTOP = (1280, 900)
PHONE = (390, 844)
#: A4 in millimetres.
A4 = (210, 297)


def find_browser() -> tuple[str, str]:
    """Return Chromium and its driver, or skip the test where they are not installed."""
    found = []
    for names in (("chromium", "chromium-browser"), ("chromedriver",)):
        paths = (shutil.which(name) or shutil.which(name, path="/usr/bin") for name in names)
        found.append(next((path for path in paths if path), None))
    browser, driver = found
    if browser is None or driver is None:
        missing = "Chromium" if browser is None else "chromedriver"
        pytest.skip(f"{missing} is not installed (Debian: chromium and chromium-driver)")
    return browser, driver


@contextmanager
def chromium(folder: Path) -> Iterator[WebDriver]:
    """Yield a driver of a browser that starts with an empty profile in a folder."""
    browser, driver_path = find_browser()
    options = Options()
    options.binary_location = browser
    for argument in (
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--no-default-browser-check",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-default-apps",
        "--disable-sync",
        "--disable-extensions",
        "--force-device-scale-factor=1",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={DESKTOP[0]},{DESKTOP[1]}",
    ):
        options.add_argument(argument)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's sandbox refuses root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(executable_path=driver_path)  # else selenium looks for one on the net
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_page_load_timeout(60)
        yield driver
    finally:
        driver.quit()


def open_page(driver: WebDriver, path: Path, size: tuple[int, int] = DESKTOP) -> None:
    """Open a file in a window of a size; what was logged before is forgotten."""
    resize(driver, size)
    driver.get_log("browser")
    driver.get_log("performance")
    driver.get(path.resolve().as_uri())


def resize(driver: WebDriver, size: tuple[int, int]) -> None:
    """Set the size of the page itself; a window may not be made as narrow as a phone."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600},
    )


def console_errors(driver: WebDriver) -> list[str]:
    """Return what the browser complained about since the page was opened."""
    return [e["message"] for e in driver.get_log("browser") if e["level"] in {"SEVERE", "WARNING"}]


def external_requests(driver: WebDriver) -> list[str]:
    """Return the addresses asked for since the page was opened, but files and data."""
    urls = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            urls.append(message["params"]["request"]["url"])
    return [url for url in urls if not url.startswith(("file:", "data:"))]


def screenshot(driver: WebDriver, path: Path) -> None:
    """Write the whole page as PNG."""
    picture = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    path.write_bytes(base64.b64decode(picture["data"]))


def print_pdf(driver: WebDriver) -> bytes:
    """Return the page as it prints, on the paper that its style asks for."""
    document = driver.execute_cdp_cmd(
        "Page.printToPDF", {"preferCSSPageSize": True, "printBackground": False}
    )
    return base64.b64decode(document["data"])


#: Titles of figures without marks: something drawn of a size, its background apart.
_EMPTY_FIGURES = """
return [...document.querySelectorAll('figure.chart')].filter((figure) => {
  if (!figure.checkVisibility()) return false;  // another option of a picker, or folded
  const marks = figure.querySelectorAll(
    'svg :is(path, rect, use, image, circle, polygon, line):not(defs *)');
  return [...marks].filter((mark) => {
    const box = mark.getBoundingClientRect();
    return box.width + box.height > 0;
  }).length < 8;
}).map((figure) => figure.id);
"""

#: Words of pictures that reach beyond their picture's edge, where they are cut.
_CUT_WORDS = """
return [...document.querySelectorAll('.picture svg text')].filter((text) => {
  if (!text.checkVisibility() || text.closest('defs')) return false;
  const own = text.getBoundingClientRect();
  const all = text.ownerSVGElement.getBoundingClientRect();
  return own.left < all.left - 1 || own.right > all.right + 1
    || own.top < all.top - 1 || own.bottom > all.bottom + 1;
}).map((text) => text.textContent);
"""

#: Controls without a name, pictures without words, repeated ids, references to nothing,
#: headings that skip a level.
_FAULTS = """
const faults = [];
const words = (ids) => (ids || '').split(/\\s+/).filter(Boolean)
  .map((id) => document.getElementById(id)?.textContent.trim() || '').join(' ').trim();
const controls = 'select, button, input, a[href], summary, [tabindex="0"]';
for (const e of document.querySelectorAll(controls)) {
  const name = e.getAttribute('aria-label') || words(e.getAttribute('aria-labelledby'))
    || (e.labels && [...e.labels].map((label) => label.textContent.trim()).join(' '))
    || (e.matches('a, button, summary, pre') && e.textContent.trim());
  if (!name) faults.push('no name: ' + e.outerHTML.slice(0, 120));
}
for (const e of document.querySelectorAll('svg[role=img]')) {
  if (!e.getAttribute('aria-label')) faults.push('no name: svg');
  if (!words(e.getAttribute('aria-describedby'))) faults.push('no words: svg');
}
for (const e of document.querySelectorAll('img:not([alt])')) faults.push('img without alt');
const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
const seen = new Set();
for (const id of ids) { if (seen.has(id)) faults.push('id twice: ' + id); seen.add(id); }
for (const e of document.querySelectorAll('a[href^="#"], use')) {
  const id = e.getAttribute('href').slice(1);
  if (!seen.has(id)) faults.push('refers to nothing: ' + id);
}
let level = 0;
for (const e of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
  const next = Number(e.tagName[1]);
  if (next > level + 1) faults.push('skips a level: ' + e.textContent);
  level = next;
}
if (document.querySelectorAll('h1').length !== 1) faults.push('expected one h1');
if (!document.documentElement.lang) faults.push('no language');
if (!document.title) faults.push('no title');
return faults;
"""

_OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


def overflow_px(driver: WebDriver) -> int:
    """Return by how much the page itself is wider than its window."""
    return int(driver.execute_script(_OVERFLOW))


def check_report(driver: WebDriver, path: Path) -> None:
    """Check what must hold for every report: it is whole, silent, legible and prints.

    Leaves the page open at the size of a desktop, with all that folds opened.
    """
    open_page(driver, path)
    figures = driver.execute_script("return document.querySelectorAll('figure.chart').length")
    assert figures > 0
    assert driver.execute_script(_FAULTS) == []
    assert overflow_px(driver) == 0
    driver.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    longest = driver.execute_script(
        "return Math.max(1, ...[...document.querySelectorAll('.picker select')]"
        ".map((select) => select.length))"
    )
    for i in range(longest):
        driver.execute_script(_PICK, i)
        assert driver.execute_script(_EMPTY_FIGURES) == []
        assert driver.execute_script(_CUT_WORDS) == []
    driver.execute_script(_PICK, 0)
    resize(driver, PHONE)
    assert overflow_px(driver) == 0, "the page scrolls sideways on a phone"
    resize(driver, DESKTOP)
    pdf = print_pdf(driver)
    assert page_sizes(pdf) == {A4}
    assert console_errors(driver) == []
    assert external_requests(driver) == []


#: Choose the option of a number, or the last one, in every picker.
_PICK = """
for (const select of document.querySelectorAll('.picker select')) {
  select.selectedIndex = Math.min(arguments[0], select.length - 1);
  select.dispatchEvent(new Event('change'));
}
"""


def page_sizes(pdf: bytes) -> set[tuple[int, int]]:
    """Return the sizes of a PDF's pages, in whole millimetres."""
    sizes = set()
    for part in pdf.split(b"/MediaBox")[1:]:
        numbers = part[part.index(b"[") + 1 : part.index(b"]")].split()
        left, bottom, right, top = map(float, numbers)
        sizes.add((round((right - left) / 72 * 25.4), round((top - bottom) / 72 * 25.4)))
    return sizes
