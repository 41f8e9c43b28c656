"""The page of a report in headless Chromium: it sorts, filters and tells on hover; for keyboards and screen readers."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT

import ffnbench
from ffnbench.report.page.page import page_of
from ffnbench.report.tables.table import EXTRA, Cell, Column, TextTable

WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait
webdriver, axe = pytest.importorskip("selenium.webdriver"), pytest.importorskip("axe_core_python")
pytestmark = pytest.mark.browser
SAVED = ROOT / "results" / "amd-epyc-2cpu"
AXE = Path(axe.__file__).parent / "axe.min.js"
EVIL = "</script><script>ran = 1</script><img src=x onerror='ran = 1'>&lt;\" مقارنة " + 120 * "x"
HEADINGS = "return [...document.querySelectorAll('table.rows thead th')].map(e => e.innerText.trim())"
CELLS = "return [...document.querySelectorAll('table.rows tbody tr')].map(r => [...r.cells].map(c => c.innerText))"


class Browser:
    """Chromium with what the tests ask of it."""

    def __init__(self, chromium: str, driver: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))

    def open(self, path: Path, width: int = 1000, theme: str = "light") -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        self.driver.get(path.as_uri())
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "const look = () => ('ready' in document.body.dataset ? done() : setTimeout(look, 5)); look()"
        )

    def wait(self, condition: str) -> None:
        WebDriverWait(self.driver, 10).until(lambda _: self.run(f"return {condition}"))

    def run(self, script: str, *values: object) -> object:
        return self.driver.execute_script(script, *values)

    def find(self, css: str):
        return self.driver.find_element("css selector", css)

    def keys(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def column(self, title: str) -> list[str]:
        place = self.run(HEADINGS).index(title)
        return [row[place] for row in self.run(CELLS)]

    def loaded(self) -> list[str]:
        told = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in found:
        pytest.skip("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    one = Browser(*found)
    yield one
    one.driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory):
    """The page of a saved run, made once."""
    folder = tmp_path_factory.mktemp("pages")
    return cache(lambda name: ffnbench.load(SAVED / f"{name}.json").save(folder / f"{name}.html"))


def test_it_sorts_filters_and_chooses_columns(browser: Browser, page) -> None:
    browser.open(page("activations-time"))
    assert len(browser.run(CELLS)) == 36  # 9 activations, 2 dtypes, 2 modes
    heading = browser.find("th:nth-of-type(4) .dt-column-order")
    for down in (False, True):
        heading.click()
        browser.wait(f"document.querySelector('th[aria-sort={'descending' if down else 'ascending'}]') !== null")
        latency = [float(text.replace(",", "")) for text in browser.column("latency (us)")]
        assert latency == sorted(latency, reverse=down)
        assert len(set(latency)) > 30
    heading.send_keys("\ue007")  # Enter: the keyboard sorts as well, here back to as it came
    browser.wait("document.querySelector('th[aria-sort=descending]') === null")
    assert browser.column("activation")[:2] == ["relu", "silu"]
    browser.run("scrollTo(0, 0)")
    heading.send_keys(" ")
    browser.wait("document.querySelector('th[aria-sort=ascending]') !== null")
    assert browser.run("return scrollY") == 0
    heading.send_keys(" ", " ")
    browser.find(".dt-search input").send_keys("backward bfloat16")
    assert len(browser.run(CELLS)) == 9
    assert set(browser.column("mode")) == {"backward"}
    browser.find(".columns summary").click()
    browser.driver.find_element("xpath", "//label[normalize-space()='±']/input").click()
    assert "±" in browser.run(HEADINGS)
    assert browser.driver.get_log("browser") == []


def test_a_mark_tells_its_value_and_interval(browser: Browser, page) -> None:
    browser.open(page("compare"))
    saved = json.loads((SAVED / "compare.json").read_text(encoding="utf-8"))
    (gelu,) = (one["ratio"] for one in saved["comparisons"] if one["case"] == "gelu")
    (mark,) = browser.driver.find_elements("css selector", 'figure:first-of-type .mark[aria-label^="gelu"]')[-1:]
    webdriver.ActionChains(browser.driver).move_to_element(mark).perform()
    tips = [one.text for one in browser.driver.find_elements("css selector", ".tip") if one.text]
    figures = [f"{gelu[key]:.3f}" for key in ("value", "low", "high")]
    assert len(tips) == 1
    assert tips[0].startswith("gelu")
    assert [one for one in figures if one not in tips[0]] == []
    browser.run("document.querySelector('figure svg').focus()")
    browser.keys("\ue014")  # an arrow
    assert browser.find(".tip").text.startswith("relu")
    browser.keys("\ue00c")
    assert browser.find(".tip").text == ""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_is_wrong_for_screen_readers_and_phones(browser: Browser, page, width: int, theme: str) -> None:
    browser.open(page("compare"), width, theme)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.find(".columns summary").click()
    browser.run(AXE.read_text(encoding="utf-8"))
    found = browser.driver.execute_async_script("axe.run().then(arguments[0])")
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    assert len(found["passes"]) > 20
    assert browser.driver.get_log("browser") == []
    assert {url.partition(":")[0] for url in browser.loaded()} <= {"file", "blob", "data"}


def with_label(value: object, label: str, key: str = "") -> object:
    """A saved run in which gelu has another label."""
    if isinstance(value, dict):
        return {name: with_label(one, label, name) for name, one in value.items()}
    if isinstance(value, list):
        return [with_label(one, label) for one in value]
    return label if key in ("case", "label", "reference") and value == "gelu" else value


def test_a_label_is_text_wherever_it_stands(browser: Browser, tmp_path: Path) -> None:
    """What has run and what was parsed is told by the browser itself."""
    saved = with_label(json.loads((SAVED / "compare.json").read_text(encoding="utf-8")), EVIL)
    saved["plan"]["command"] = shlex.join(["ffnbench", "compare", "--variants", f"relu,{EVIL},swiglu"])
    saved["failures"] = [{"case": "swiglu", "kind": "crash", "message": EVIL}]
    (tmp_path / "run.json").write_text(json.dumps(saved), encoding="utf-8")
    browser.open(ffnbench.load(tmp_path / "run.json").save(tmp_path / "run.html"), 360)
    assert browser.column("variant") == ["relu", EVIL, "swiglu"]
    assert "</script><script>ran = 1</script>" in browser.find("pre").text
    assert EVIL in browser.find("#warnings-and-notes + ul").text
    assert browser.driver.find_elements("css selector", "img, main script, [onerror]") == []
    assert browser.run("return typeof ran") == "undefined"
    assert browser.run("return document.documentElement.scrollWidth") <= 360
    assert "time vs relu [95%]" in [" ".join(one.split()) for one in browser.run(HEADINGS)]  # no label hides figures
    assert browser.driver.get_log("browser") == []


def test_what_is_printed_has_all_rows_in_dark_ink(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "run.html").write_text(page_of("compare", table_of(60)))
    browser.open(tmp_path / "run.html", theme="dark")
    assert len(browser.run(CELLS)) == 50
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert len(browser.run(CELLS)) == 60
    assert browser.run("return getComputedStyle(document.querySelector('td')).color") == "rgb(0, 0, 0)"
    controls = browser.driver.find_elements("css selector", "input, button, summary, .dt-column-order")
    assert [one.tag_name for one in controls if one.is_displayed()] == []


def test_a_label_is_printed_on_the_page_of_its_value(browser: Browser, page) -> None:
    browser.open(page("compare"))
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    parts = browser.run(
        "return [...document.querySelectorAll('dt')].map(dt => getComputedStyle(dt.parentElement).breakInside)"
    )
    assert len(parts) > 10
    assert set(parts) == {"avoid"}


def table_of(count: int) -> TextTable:
    """As many columns as a compare with ceilings has, some of them hidden at first."""
    columns = tuple(Column(title=f"c{i}", priority=EXTRA if i > 12 else i) for i in range(25))
    rows = (
        (Cell(text=f"swiglu@d_ff={n}"), *(Cell(text=f"{n * i + 0.5:,}", value=n * i / 7) for i in range(1, 25)))
        for n in range(count)
    )
    return TextTable(columns=columns, rows=tuple(rows))


def test_many_rows_open_as_quickly_as_few_nearly(browser: Browser, tmp_path: Path) -> None:
    opened = {}
    for count in (20, 2000):
        path = tmp_path / f"{count}.html"
        path.write_text(page_of("compare", table_of(count)))
        times = []
        for _ in range(2):
            browser.open(path)
            times.append(browser.run("return performance.getEntriesByName('ready')[0].startTime"))
        opened[count] = min(times)
    print(f"milliseconds until the tables are there, by rows: {opened}; bytes: {path.stat().st_size:,}")
    assert path.stat().st_size < 2_000_000
    assert opened[2000] < 4 * opened[20]
