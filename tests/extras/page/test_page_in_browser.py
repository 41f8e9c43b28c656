"""The page of a report in headless Chromium: for screens, screen readers and printers;
no text in it is run.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT, committed_runs

import ffnbench

webdriver, axe = (
    pytest.importorskip("selenium.webdriver"),
    pytest.importorskip("axe_core_python"),
)
pytestmark = pytest.mark.browser
SAVED = ROOT / "results" / "amd-epyc-2cpu"
SHOWN = ("compare", "activations-time", "sweeps/tokens")
AXE = Path(axe.__file__).parent / "axe.min.js"
EVIL = (
    "</script><script>ran = 1</script></svg><img src=x onerror='ran = 1'>&lt;\" مقارنة "
    + 120 * "x"
)
LABELS = "return [...document.querySelector('table').querySelectorAll('tbody th')].map(cell => cell.innerText)"
WIDE = "return document.documentElement.scrollWidth"


class Browser:
    """Chromium with what the tests ask of it."""

    def __init__(self, chromium: str, driver: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ):
            options.add_argument(flag)
        options.set_capability(
            "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
        )
        self.driver = webdriver.Chrome(
            options=options, service=webdriver.ChromeService(driver)
        )

    def open(
        self, path: Path, width: int = 1000, theme: str = "light", media: str = ""
    ) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": media, "features": features}
        )
        screen = {
            "width": width,
            "height": 900,
            "deviceScaleFactor": 1,
            "mobile": False,
        }
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        self.driver.get(path.as_uri())

    def run(self, script: str) -> object:
        return self.driver.execute_script(script)

    def loaded(self) -> list[str]:
        told = [
            json.loads(entry["message"])["message"]
            for entry in self.driver.get_log("performance")
        ]
        return [
            one["params"]["request"]["url"]
            for one in told
            if one["method"] == "Network.requestWillBeSent"
        ]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in found:
        pytest.skip(
            "no chromium and chromedriver here: apt-get install chromium chromium-driver"
        )
    one = Browser(*found)
    yield one
    one.driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory):
    """The page of a saved run, made once."""
    folder = tmp_path_factory.mktemp("pages")
    return cache(
        lambda name: ffnbench.load(SAVED / f"{name}.json").save(
            folder / f"{Path(name).name}.html"
        )
    )


@pytest.mark.parametrize(("width", "theme"), [(360, "dark"), (1400, "light")])
@pytest.mark.parametrize(
    "name", [name for name in SHOWN if SAVED / f"{name}.json" in committed_runs()]
)
def test_nothing_is_wrong_for_screen_readers_and_phones(
    browser: Browser, page, name: str, width: int, theme: str
) -> None:
    browser.open(page(name), width, theme)
    assert browser.run(
        "return [...document.images].every(one => one.complete && one.naturalWidth > 100)"
    )
    for state in ("closed", "open"):
        assert browser.run(WIDE) <= width, state
        browser.run(AXE.read_text(encoding="utf-8"))
        found = browser.driver.execute_async_script("axe.run().then(arguments[0])")
        assert [
            (one["id"], one["nodes"][0]["html"]) for one in found["violations"]
        ] == [], state
        assert len(found["passes"]) > 15
        browser.run(
            "document.querySelectorAll('details').forEach(one => one.open = true)"
        )
    assert browser.driver.get_log("browser") == []
    assert {url.partition(":")[0] for url in browser.loaded()} <= {"file", "data"}


def test_the_verdict_is_seen_without_scrolling(
    browser: Browser, on_fakes, tmp_path: Path
) -> None:
    """On a screen of 1,000 pixels, of a run with most of the columns that there are."""
    asked = (
        "compare a_long_name_of_a_variant=swiglu relu@bias=true swiglu@moe=8x2 -q --quick"
        " --d-model 64 --match none --metrics latency,memory,error,sparsity -o"
    )
    assert on_fakes(asked, tmp_path / "run.html")[0] == 0
    browser.open(tmp_path / "run.html")
    edges = (
        "return [...document.querySelectorAll('section > .wide:has(table)')]"
        ".map(one => one.scrollWidth - one.clientWidth)"
    )
    assert browser.run(edges) == [0]
    headings = (
        "return [...document.querySelector('thead').querySelectorAll('th')]"
        ".map(cell => cell.innerText)"
    )
    assert "verdict" in browser.run(headings)


def test_a_label_is_not_broken_within_a_word(
    browser: Browser, on_fakes, tmp_path: Path
) -> None:
    """Each label of a table wider than the screen stands in one line."""
    asked = "compare relu,swiglu@moe=8x2@routing=skewed,gelu -q --quick --d-model 64 -o"
    assert on_fakes(asked, tmp_path / "run.html")[0] == 0
    browser.open(tmp_path / "run.html", 600)
    heights = (
        "return [...document.querySelector('table').querySelectorAll('tbody th')]"
        ".map(cell => cell.offsetHeight)"
    )
    assert len(set(browser.run(heights))) == 1


def with_label(value: object, label: str, key: str = "") -> object:
    """A saved run in which gelu has another label."""
    if isinstance(value, dict):
        return {name: with_label(one, label, name) for name, one in value.items()}
    if isinstance(value, list):
        return [with_label(one, label) for one in value]
    return label if key in ("case", "label", "reference") and value == "gelu" else value


def test_a_label_is_text_wherever_it_stands(browser: Browser, tmp_path: Path) -> None:
    """What has run and what was parsed is told by the browser itself."""
    saved = with_label(
        json.loads((SAVED / "compare.json").read_text(encoding="utf-8")), EVIL
    )
    saved["plan"]["command"] = shlex.join(
        ["ffnbench", "compare", "--variants", f"relu,{EVIL},swiglu"]
    )
    saved["failures"] = [{"case": "swiglu", "kind": "crash", "message": EVIL}]
    (tmp_path / "run.json").write_text(json.dumps(saved), encoding="utf-8")
    browser.open(ffnbench.load(tmp_path / "run.json").save(tmp_path / "run.html"), 360)
    assert browser.run(LABELS) == ["relu", EVIL, "swiglu"]
    assert "</script><script>ran = 1</script>" in browser.run(
        "return document.querySelector('pre').innerText"
    )
    assert EVIL in browser.run(
        "return document.querySelector('#answer').parentElement.innerText"
    )
    assert (
        browser.run(
            "return document.querySelectorAll('script, [onerror], img:not([src^=\"data:\"])').length"
        )
        == 0
    )
    assert browser.run("return typeof ran") == "undefined"
    assert browser.run(WIDE) <= 360
    assert browser.driver.get_log("browser") == []


def test_a_label_is_printed_on_the_page_of_its_value_and_in_dark_ink(
    browser: Browser, page
) -> None:
    browser.open(page("activations-time"), theme="dark", media="print")
    styles = (
        "return [...document.querySelectorAll('tbody tr, dl > div')]"
        ".map(part => [getComputedStyle(part).breakInside, getComputedStyle(part).color])"
    )
    parts = browser.run(styles)
    assert len(parts) > 36  # rows of 9 activations, 2 dtypes, 2 modes; and the facts
    assert {tuple(part) for part in parts} == {("avoid", "rgb(0, 0, 0)")}
    assert (
        browser.run(
            "return getComputedStyle(document.querySelector('dl > div dd')).display"
        )
        == "block"
    )
