"""The page of `verify report --html` in a headless Chromium: what a reader sees, clicks, types, copies and prints."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from page_reports import HOSTILE, binades, hostile, library, regions, save
from sample_reports import cell, error, report
from verify.reports import html as page
from verify.reports.figures import figures
from verify.reports.replays import Replays
from verify.reports.schema import Cell
from verify.reports.text import printable

pytestmark = pytest.mark.part(2)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

#: VERIFY_BROWSER names another Chromium or Chrome.
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    for module, extra in (("playwright", "browser"), ("vl_convert", "page")):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}: pip install -c constraints.txt '.[{extra}]'")
    executable = os.environ.get("VERIFY_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        pytest.skip(f"needs an installed Chromium or Chrome ({', '.join(NAMES)}, or VERIFY_BROWSER)")
    from playwright.sync_api import sync_playwright

    library_text = page.plotting_library()  # a second each time
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "plotting_library", lambda: library_text)
        started = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def site(folder: Path, browser: Browser) -> str:
    """The address of the page of `library()`."""
    old = library()
    old["cells"][0]["error"]["max_scaled_ulp"] = 0.001
    baseline = save(old, folder / "old.json")
    page.write([save(library(), folder / "library.json")], folder / "library.html", baseline)
    return (folder / "library.html").as_uri()


@pytest.fixture(scope="module")
def whole(folder: Path, browser: Browser) -> str:
    """The address of the page of all that a CPU and an H200 recorded."""
    out = folder / "whole.html"
    recorded = ROOT / "reports" / "recorded"
    page.write([one for device in ("cpu", "h200") for one in sorted(recorded.glob(f"{device}*.json*"))], out)
    assert out.stat().st_size < page.EXPECTED_BYTES
    return out.as_uri()


Open = Callable[..., "Page"]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Open an address; at the end, fail if the page logged anything, threw, or asked for anything beside its file."""
    contexts: list[BrowserContext] = []
    troubles: list[str] = []

    def opened(address: str, width: int = 1280, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(15_000)
        tab.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        tab.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        own = address.partition("#")[0]
        tab.on(
            "request", lambda request: None if request.url.partition("#")[0] == own else troubles.append(request.url)
        )
        tab.goto(address)
        tab.wait_for_selector("h1")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


def texts(tab: Page, selector: str) -> list[str]:
    return [text.strip() for text in tab.locator(selector).all_inner_texts()]


def column(tab: Page, title: str) -> list[str]:
    found: list[str] = tab.eval_on_selector_all(
        f"#cells td[data-label='{title}']", "nodes => nodes.map(node => node.textContent.trim())"
    )
    return found


# Overview


def test_the_overview_shows_every_kernel_and_lowering(site: str, visit: Open) -> None:
    tab = visit(site)
    assert tab.inner_text("h1") == "Accuracy of 2 kernels on 2 devices"
    assert list(dict.fromkeys(texts(tab, ".matrix tbody th a"))) == ["addcmul", "adam_step"]
    assert texts(tab, ".matrix .device") == ["Test CPU, torch 2.13.0", "Test GPU, torch 2.11.0"]
    totals = dict(zip(texts(tab, ".totals dt"), texts(tab, ".totals dd"), strict=True))
    assert list(totals.items())[:4] == [("passed", "11"), ("deviate", "1"), ("failed", "1"), ("not run", "1")]
    fields = texts(tab, ".matrix tbody tr:first-child td a")
    assert len(fields) == 5  # eager and inductor on the CPU; these and triton on the GPU
    assert [text[0] for text in fields if text.startswith(("✕", "≠", "†"))] == ["✕", "≠"]
    body = tab.inner_text("main")
    assert "Triton compiles for GPUs only" not in body
    tab.click("summary:has-text('Not run')")
    tab.wait_for_selector("section.absent li")
    told = tab.inner_text("section.absent")
    assert "Triton compiles for GPUs only" in told and "rocm: torch finds no ROCm device" in told
    assert "Deviates: 1 cell" in body and "≠ deviates something excused" in body


def test_a_field_stands_for_the_worst_of_its_cells(site: str, visit: Open) -> None:
    """Of eager on the CPU, float32 has the larger error, and uses more of its bound."""
    tab = visit(site)
    half, single = (Cell.model_validate(one) for one in library()["cells"][:2])

    def shown(dtype: str, show: str) -> str:
        tab.select_option("select[name=dtype]", dtype)
        tab.select_option("select[name=show]", show)
        return texts(tab, ".matrix tbody tr:first-child td a")[0]

    assert shown("", "") == figures(single)["error"] != figures(half)["error"] == shown("float16", "")
    assert shown("", "share") == figures(single)["share"] != figures(half)["share"] == shown("float16", "share")
    assert "show=share" in tab.url and "dtype=float16" in tab.url


def test_the_colour_of_a_field_is_its_error(folder: Path, visit: Open) -> None:
    """One step of colour for each limit, whatever share of the bound it is; the largest error of the cells counts."""
    errors = {0.5: "s0", 0.75: "s1", 2.0: "s2", 3.0: "s3", 16.0: "s4", 17.0: "s5"}
    cells = [
        cell(lowering=f"l{number}", spelling=spelling, bound={"value": 1e3, "metric": "ulp", "source": "here"},
             error=error(max_ulp=most, max_scaled_ulp=None))
        for number, largest in enumerate(errors) for spelling, most in (("a", largest), ("b", 0.25))
    ]  # fmt: skip
    page.write([save(report(*cells), folder / "steps.json")], folder / "steps.html")
    tab = visit((folder / "steps.html").as_uri())
    fields = tab.locator(".matrix tbody td").all()
    assert [field.get_attribute("class") for field in fields] == list(errors.values())
    assert [field.inner_text().strip() for field in fields] == [f"{most:g}" for most in errors]
    assert len({colour(tab, f".matrix td.{name}") for name in errors.values()}) == len(errors)


def test_the_filter_narrows_everything(site: str, visit: Open) -> None:
    tab = visit(site)
    tab.fill("input[name=q]", "cuda FLOAT32 triton")
    assert tab.inner_text(".controls output") == "1 cell of 14"
    assert texts(tab, ".matrix thead tr:last-child th") == ["triton"]
    tab.fill("input[name=q]", "no such thing")
    assert "No cell matches the filter" in tab.inner_text("main")
    tab.press("input[name=q]", "Escape")
    assert tab.inner_text(".controls output") == "14 cells of 14"
    tab.select_option("select[name=status]", "exceeds-bound")
    assert tab.inner_text(".controls output") == "1 cell of 14"


def test_a_filtered_view_has_an_address(site: str, visit: Open) -> None:
    tab = visit(site)
    tab.fill("input[name=q]", "triton")
    tab.select_option("select[name=dtype]", "float32")
    again = visit(tab.url)
    assert again.input_value("input[name=q]") == "triton"
    assert again.inner_text(".controls output") == tab.inner_text(".controls output") == "2 cells of 14"


def test_differences_from_the_baseline_are_listed(site: str, visit: Open) -> None:
    tab = visit(site)
    section = tab.inner_text("section:has(h2:has-text('Against the baseline'))")
    assert "✕ regressed addcmul eager out-of-place cpu float16 value=0.3: scaled_ulp 0.001001 -> 0.25" in section
    tab.select_option("select[name=show]", "baseline")
    assert "regressed" in texts(tab, ".matrix tbody tr:first-child td a")[0]


# A kernel


def test_sorting_by_a_column(site: str, visit: Open) -> None:
    tab = visit(f"{site}#/kernel/addcmul")
    button = "#cells th button[data-sort='max ulp']"
    for state, ordered in (("descending", True), ("ascending", False)):
        tab.click(button)
        assert tab.get_attribute("#cells th:has(button[data-sort='max ulp'])", "aria-sort") == state
        numbers = [float(text) for text in column(tab, "max ulp")]
        assert numbers == sorted(numbers, reverse=ordered) and len(set(numbers)) > 3
        assert tab.evaluate("document.activeElement.dataset.sort") == "max ulp"
    assert tab.locator("#cells th[aria-sort]").count() == 1
    assert "sort=max" in visit(tab.url).url


def test_every_section_of_a_kernel(site: str, visit: Open) -> None:
    tab = visit(f"{site}#/kernel/addcmul?dtype=float32")
    assert texts(tab, "h2")[:5] == ["Failing: 1 failed", "Error by binade", "Worst inputs", "Formulas", "Who is right"]
    assert "fma(value, rn(b*c), a)" in tab.inner_text("#formulas")
    assert "same" in tab.inner_text("#formulas tr:has-text('eager')")
    tab.wait_for_selector("#right svg")
    assert "41" in tab.inner_text("#right table")
    tab.click("text=Who is right")
    assert tab.evaluate("document.activeElement.textContent") == "Who is right"


def test_plots_hold_the_series_and_the_numbers(site: str, visit: Open) -> None:
    tab = visit(f"{site}#/kernel/addcmul?dtype=float32")
    tab.wait_for_selector("#plots figure .plot:nth-of-type(3) svg")
    drawn = tab.evaluate(
        "[...document.querySelectorAll('#plots figure:first-of-type .plot')].map(node => node.querySelectorAll"
        "('.mark-line path').length)"
    )
    series = 3  # eager alike on both devices, inductor alike, triton
    assert drawn == [series] * 3
    legend = tab.text_content("#plots figure:first-of-type") or ""
    assert "cpu: eager; cuda: eager" in legend and "cuda: triton" in legend
    assert "Errors above 1024 ulp count as 1024" in legend
    tab.click("#plots figure:first-of-type summary")
    tab.wait_for_selector("#plots figure:first-of-type tbody tr")
    rows = tab.locator("#plots figure:first-of-type tbody tr")
    assert rows.count() == series * 4
    numbers = [texts(rows.nth(index).page, f"#plots tbody tr:nth-child({index + 1}) td") for index in range(4)]
    assert [row[:2] for row in numbers] == [["-3", "100"], ["-2", "101"], ["-1", "102"], ["0", "103"]]
    assert tab.locator("#plots figure").nth(1).locator("svg").count() == 1  # the histogram


def test_a_plot_tells_its_point(site: str, visit: Open) -> None:
    tab = visit(f"{site}#/kernel/addcmul?dtype=float32")
    point = tab.locator("#plots .mark-symbol path").first
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    tip = tab.inner_text("#tip")
    assert "max ulp: " in tip and "exponent: " in tip


def test_outputs_of_a_composite_kernel(site: str, visit: Open) -> None:
    tab = visit(f"{site}#/kernel/adam_step")
    assert column(tab, "output") == ["exp_avg_sq", "", "exp_avg"]  # worst first
    assert column(tab, "bound") == ["0.75 of 1 share", "0.5 of 1 share", "0.25 of 1 share"]
    assert column(tab, "share") == ["75%", "50%", "25%"]
    worst = tab.inner_text("#worst")
    assert "element 3" in worst and "75%" in worst and "--output exp_avg_sq --index 3" in worst


def test_formulas_of_several_survivors_and_domains(folder: Path, visit: Open) -> None:
    def some(*names: str, size: int = 1000, **changes: Any) -> dict[str, Any]:
        formula = {"identified": None, "survivors": list(names), "mismatches": {"c": 2}} if len(names) != 1 else None
        formula = formula or {"identified": names[0], "mismatches": {"c": 2}}
        domain = {"kind": "strata", "size": size, "seed": 0, "digest": f"{size}"}
        return cell(formula=formula, domain=domain, binades=[], **changes)

    def made(backend: str, *cells: dict[str, Any]) -> dict[str, Any]:
        for one in cells:
            one.pop("binades")
        return report(*(one | {"backend": backend} for one in cells), environment={backend: {"chip": backend}})

    names = ("same", "overlap", "differ", "unknown", "domains")
    there = [("a / b", "d"), ("a / b", "d"), ("a / b",), (), ("a / b",)]
    here = [("a / b", "d"), ("a / b",), ("d",), (), ("a / b",)]
    cpu = [some(*formulas, lowering=name) for name, formulas in zip(names, there, strict=True)]
    gpu = [some(*formulas, lowering=name) for name, formulas in zip(names, here, strict=True)]
    files = [
        save(made("cpu", *cpu, some("a / b", "d", lowering="many")), folder / "formulas-cpu.json"),
        save(made("cuda", *gpu), folder / "formulas-cuda.json"),
        # a larger domain tells formulas apart that a smaller one does not
        save(made("cpu", some(size=4000, lowering="domains")), folder / "formulas-large.json"),
    ]
    page.write(files, folder / "formulas.html")
    tab = visit(f"{(folder / 'formulas.html').as_uri()}#/kernel/addcmul")
    told = {
        (texts(row.page, f"#formulas tbody tr:nth-child({n + 1}) th")[0]): row.locator("td").all_inner_texts()
        for n, row in enumerate(tab.locator("#formulas tbody tr").all())
    }
    across = {"same": "same", "overlap": "may be the same", "differ": "differ", "unknown": "-"}
    assert {name: cells[-1] for name, cells in told.items()} == across | {"domains": "differ", "many": "-"}
    assert told["same"][-2].split("\n") == ["a / b", "or d"]
    assert told["domains"][-3].split("\n") == ["a / b (strata 1000)", "none (strata 4000)"]
    assert tab.locator("#formulas tr:has(th:text-is('overlap')) code").all_inner_texts() == ["a / b", "d", "a / b"]


def test_a_limit_is_drawn_where_every_lowering_of_the_plot_has_it(folder: Path, visit: Open) -> None:
    def drawn(*limits: float) -> int:
        """Rules in the plot of lowerings that agree in every binade, one for each limit in ULP."""
        cells = [
            cell(lowering=f"l{n}", error=error(binades=binades(0.5, 0.75)),
                 bound={"value": value, "metric": "ulp", "source": "s"})
            for n, value in enumerate(limits)
        ]  # fmt: skip
        page.write([save(report(*cells), folder / "limits.json")], folder / "limits.html")
        tab = visit(f"{(folder / 'limits.html').as_uri()}#/kernel/addcmul")
        tab.wait_for_selector("#plots figure .plot svg")
        return tab.locator("#plots figure:first-of-type .mark-rule.role-mark line").count()

    assert drawn(2.0, 2.0) == 1
    assert drawn(2.0, 8.0) == 0


def test_cells_of_other_seeds_are_told_apart(folder: Path, visit: Open) -> None:
    def seeded(seed: int) -> dict[str, Any]:
        most = 0.5 + seed / 8
        return cell(
            domain={"kind": "strata", "size": 1000, "seed": seed, "digest": f"{seed}"},
            error=error(max_scaled_ulp=most, binades=binades(most)),
        )

    environment = {"cpu": {"chip": "Test CPU"}}
    files = [
        save(report(seeded(seed), environment=environment, seed=seed), folder / f"seed{seed}.json") for seed in (0, 1)
    ]
    page.write(files, folder / "seeds.html")
    tab = visit(f"{(folder / 'seeds.html').as_uri()}#/kernel/addcmul")
    assert column(tab, "inputs") == ["strata 1000, seed 1", "strata 1000, seed 0"]
    assert texts(tab, "select[name=case] option") == [
        "float32, value=0.3, strata 1000, seed 1", "float32, value=0.3, strata 1000, seed 0",
    ]  # fmt: skip


def test_replays_set_the_variables_of_their_device(folder: Path, visit: Open) -> None:
    environment = {"cpu": {"chip": "Test CPU", "variables": {"ATEN_CPU_CAPABILITY": "avx2", "LD_PRELOAD": "evil.so"}}}
    page.write([save(report(cell(), environment=environment), folder / "variables.json")], folder / "variables.html")
    tab = visit(f"{(folder / 'variables.html').as_uri()}#/kernel/addcmul")
    (command,) = texts(tab, "#worst .command code")
    assert command.startswith("ATEN_CPU_CAPABILITY=avx2 verify explain addcmul ")


# A cell


def test_a_row_leads_to_its_cell_and_the_address_stays(site: str, visit: Open) -> None:
    tab = visit(f"{site}#/kernel/addcmul")
    tab.click("#cells tbody tr:first-child td[data-label=metric]")
    tab.wait_for_selector("text=Provenance")
    address = tab.evaluate("location.hash")
    assert re.fullmatch(
        r"#/cell/addcmul/(cpu-test-cpu-avx2|cuda-test-gpu-sm_90)/\w+/out-of-place/float(16|32)/value%3D0\.3/~/strata-1000-0",
        address,
    )
    shown = tab.inner_text("main")
    again = visit(f"{site}{address}")
    assert again.inner_text("main") == shown
    assert tab.inner_text("h1").startswith("addcmul: ")
    for fact in ("misrounded", "source of the bound", "Higham 2002, lemma 3.1", "exp: within 4 ulp", "mean ulp"):
        assert fact in shown
    tab.click("#crumbs >> text=addcmul")
    tab.wait_for_selector("#cells")


@pytest.mark.parametrize(
    "address", ["#/cell/addcmul/cpu-00000000/eager", "#/kernel/nothing", "#/x", "#/kernel/%E0%A4%A"]
)
def test_an_address_that_leads_nowhere_says_so(site: str, visit: Open, address: str) -> None:
    assert visit(f"{site}{address}").inner_text("h1") == "Not found"


def test_a_command_is_copied_whole(site: str, visit: Open) -> None:
    tab = visit(f"{site}#/kernel/addcmul?dtype=float32", permissions=["clipboard-read", "clipboard-write"])
    tab.click("#worst tbody tr:first-child .copy")
    tab.wait_for_selector("#worst .copy:has-text('Copied')")
    copied = tab.evaluate("navigator.clipboard.readText()")
    cells = [Cell.model_validate(one) for one in library()["cells"] if one["kernel"] == "addcmul"]
    expected = {Replays({}).element(one, one.worst[0]) for one in cells if one.worst and one.dtype == "float32"}
    assert copied in expected and copied.startswith("verify explain addcmul --dtype float32")
    assert tab.inner_text("#said") == "Copied"


# Keyboard, narrow screens, themes, paper


def test_by_keyboard_alone(site: str, visit: Open) -> None:
    tab = visit(site)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.name") == "q"
    tab.keyboard.type("triton/")  # a slash in the field is a slash
    assert tab.input_value("input[name=q]") == "triton/"
    tab.keyboard.press("Backspace")
    seen = []
    for _ in range(12):
        tab.keyboard.press("Tab")
        seen.append(tab.evaluate("document.activeElement.tagName"))
        ring = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert ring != "none", seen
        if tab.evaluate("document.activeElement.textContent") == "addcmul":
            break
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#cells")
    assert tab.evaluate("document.activeElement.tagName") == "H1"
    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.closest('#cells tbody') !== null"):
            break
    first = tab.evaluate("document.activeElement.href")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("document.activeElement.href") != first
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate("document.activeElement.href") == first
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=Provenance")
    assert tab.evaluate("location.href") == first


PLACES = ("#/", "#/kernel/addcmul", "#/kernel/adam_step")


@pytest.mark.parametrize("place", PLACES)
def test_400_pixels_need_no_sideways_scrolling(site: str, visit: Open, place: str) -> None:
    tab = visit(f"{site}{place}", width=400)
    tab.wait_for_timeout(300)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
    if place != "#/":
        tab.click("#cells tbody a >> nth=0")
        tab.wait_for_selector("text=Provenance")
        tab.wait_for_timeout(300)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400
        tab.go_back()
        tab.select_option("select[name=sort]", "max ulp")
        numbers = [float(text) for text in column(tab, "max ulp")]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("place", ["#/", "#/kernel/pow", "#/kernel/flex_attention"])
def test_1280_pixels_need_no_sideways_scrolling(whole: str, visit: Open, place: str) -> None:
    """Of the page of all recorded reports, which has the most columns; nor does the matrix in its frame."""
    tab = visit(f"{whole}{place}")
    tab.wait_for_timeout(300)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1280
    if place == "#/":
        frame = "(() => { const one = document.querySelector('.scroll'); return one.scrollWidth - one.clientWidth; })()"
        assert tab.evaluate(frame) <= 0


#: Text whose contrast with what is behind it is below 4.5, WCAG 2.2's 1.4.3 at level AA.
LOW_CONTRAST = """() => {
  const channels = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const WEIGHTS = [0.2126, 0.7152, 0.0722];
  const luminance = (rgb) => WEIGHTS.reduce((sum, weight, i) => sum + weight * linear(rgb[i] / 255), 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = channels(getComputedStyle(node).backgroundColor);
      if (color.length && color[3] !== 0) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const unseen = node.closest("svg, option, [hidden], .hidden, script, style, noscript") || !node.checkVisibility();
    if (!own || unseen) continue;
    const [a, b] = [luminance(channels(getComputedStyle(node).color)), luminance(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${node.tagName} ${node.className} ${ratio}: ${node.textContent.slice(0, 30)}`);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_text_has_contrast(site: str, visit: Open, place: str, scheme: str) -> None:
    tab = visit(f"{site}{place}", color_scheme=scheme)
    dark = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((c) => c < 60)")
    assert dark is (scheme == "dark")
    assert tab.evaluate(LOW_CONTRAST) == []


def test_the_theme_is_kept(site: str, visit: Open) -> None:
    tab = visit(site, color_scheme="dark")
    dark = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.click("#theme")
    assert tab.inner_text("#theme") == "Theme: light"
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    tab.reload()
    tab.wait_for_selector("h1")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == light


def test_paper(site: str, visit: Open) -> None:
    tab = visit(f"{site}#/kernel/addcmul", color_scheme="dark")
    tab.wait_for_selector("#plots svg")
    tab.emulate_media(media="print")
    assert not tab.is_visible(".controls") and not tab.is_visible(".copy >> nth=0")
    assert tab.is_visible("#worst code >> nth=0")
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert min(paper) > 240
    assert len(tab.pdf()) > 10_000


def test_motion_is_reduced_on_request(site: str, visit: Open) -> None:
    tab = visit(site, reduced_motion="reduce")
    moving = "[...document.querySelectorAll('*')].filter((n) => getComputedStyle(n).transitionDuration !== '0s').length"
    assert tab.evaluate(moving) == 0


def test_landmarks_and_headings(site: str, visit: Open) -> None:
    for place in PLACES:
        tab = visit(f"{site}{place}")
        assert [tab.locator(name).count() for name in ("main", "header", "footer", "nav", "h1", "search")] == [1] * 6
        assert tab.locator("th:not([scope])").count() == 0
        unnamed = "[...document.querySelectorAll('button, select, input, a')].filter((n) => !(n.textContent.trim() || "
        unnamed += "n.labels?.length || n.ariaLabel)).length"
        assert tab.evaluate(unnamed) == 0
        assert tab.get_attribute("html", "lang") == "en" and tab.title().endswith("ulproof")


# Regions and deviations


@pytest.fixture(scope="module")
def judged(folder: Path, browser: Browser) -> str:
    """The address of the page of `regions()`."""
    page.write([save(regions(), folder / "regions.json")], folder / "regions.html")
    return (folder / "regions.html").as_uri()


def colour(tab: Page, selector: str, what: str = "backgroundColor") -> str:
    found: str = tab.locator(selector).first.evaluate(f"node => getComputedStyle(node).{what}")
    return found


def test_failures_and_deviations_stand_first_with_their_regions(judged: str, visit: Open) -> None:
    for address in (judged, f"{judged}#/kernel/addcmul"):
        tab = visit(address)
        assert texts(tab, "h2")[:2] == ["Failing: 1 failed", "Deviates: 2 cells"]
        failed = tab.inner_text("section:has(h2:has-text('Failing'))")
        assert "in normal: ulp 89.25 exceeds 2" in failed and "--input=0x1.7p+0" in failed
        assert "in subnormal-result: subnormal results are lost [ledger: libdevice-ftz]" in failed
        known = tab.inner_text("section:has(h2:has-text('Deviates'))")
        assert "≠ deviates in subnormal-result" in known and "2 cells" in known and "[ledger: libdevice-ftz]" in known
        totals = dict(zip(texts(tab, ".totals dt"), texts(tab, ".totals dd"), strict=True))
        assert [totals[name] for name in ("passed", "deviate", "allowed", "failed")] == ["1", "1", "2", "1"]
        assert "unbounded" not in totals


def test_what_deviates_is_never_green(judged: str, visit: Open) -> None:
    """Its edge and mark tell it from what passed, whichever region is shown."""
    for scheme in ("light", "dark"):
        tab = visit(judged, color_scheme=scheme)
        fields = dict(
            zip(texts(tab, ".matrix thead tr:last-child th"), tab.locator(".matrix tbody td").all(), strict=True)
        )
        classes = {name: field.get_attribute("class") for name, field in fields.items()}
        assert classes == {
            "triton": "fail s5", "inductor": "over s1", "eager": "s0", "eager-compiled": "doubt s1",
            "triton-interpreter": "doubt s1",
        }  # fmt: skip
        assert all(fields[name].inner_text().startswith("◇ ") for name, one in classes.items() if "doubt" in one)
        assert fields["inductor"].inner_text().startswith("≠ ") and fields["triton"].inner_text().startswith("✕ ")
        assert tab.evaluate(LOW_CONTRAST) == []
        good = tab.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--good-ink')")
        for word in tab.locator(":text-is('deviates')").all():
            assert word.evaluate("node => getComputedStyle(node).color") != good
        red, green, blue = map(int, re.findall(r"\d+", colour(tab, ".matrix td.over", "boxShadow"))[:3])
        assert red > green > blue  # amber


def test_a_region_is_chosen_and_shown_by_its_own_figures(judged: str, visit: Open) -> None:
    tab = visit(judged)
    tab.select_option("select[name=region]", "normal")
    fields = dict(zip(texts(tab, ".matrix thead tr:last-child th"), tab.locator(".matrix tbody td").all(), strict=True))
    classes = {name: field.get_attribute("class") for name, field in fields.items()}
    assert classes == {
        "triton": "fail s5", "inductor": "s1", "eager": "s0", "eager-compiled": "doubt s1", "triton-interpreter": "s1",
    }  # fmt: skip
    tab.select_option("select[name=region]", "subnormal-result")
    assert [text.split("\n")[0] for text in texts(tab, ".matrix td a")][:2] == ["≠ 1.300e+8"] * 2
    assert "region=subnormal-result" in tab.url
    assert visit(tab.url).input_value("select[name=region]") == "subnormal-result"


def test_a_cells_regions_are_listed_worst_first(judged: str, visit: Open) -> None:
    tab = visit(f"{judged}#/kernel/addcmul")
    assert "subnormal-result: deviates, 1.300e+8 ulp" in tab.inner_text("#cells tr:has-text('inductor')")
    tab.click("#cells a:text-is('triton')")
    tab.wait_for_selector("text=Provenance")
    rows_ = tab.locator("#regions tbody tr")
    assert [row.locator("th").inner_text() for row in rows_.all()] == ["normal", "subnormal-result"]
    assert "✕ exceeds-bound" in rows_.nth(0).inner_text() and "89.25" in rows_.nth(0).inner_text()
    assert "≠ deviates" in rows_.nth(1).inner_text() and "libdevice-ftz" in rows_.nth(1).inner_text()


@pytest.mark.parametrize("place", ["", "#/kernel/addcmul"])
def test_regions_fit_400_pixels(judged: str, visit: Open, place: str) -> None:
    tab = visit(f"{judged}{place}", width=400)
    tab.wait_for_timeout(300)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
    assert tab.evaluate(LOW_CONTRAST) == []


def test_a_filter_by_status_keeps_every_cell_with_such_a_region(judged: str, visit: Open) -> None:
    tab = visit(f"{judged}#/?status=deviates")
    assert tab.inner_text(".controls output") == "2 cells of 5"


# Hostile and large reports


def test_hostile_names_are_shown_as_text(folder: Path, visit: Open) -> None:
    page.write([save(hostile(), folder / "hostile.json")], folder / "hostile.html", folder / "hostile.json")
    address = (folder / "hostile.html").as_uri()
    tab = visit(address)
    shown = texts(tab, ".matrix tbody th a")
    assert shown == [" ".join(printable(text).split()) for text in HOSTILE]
    count = tab.locator("script").count()
    for index in range(len(HOSTILE)):
        tab.goto(address)
        tab.locator(".matrix tbody th a").nth(index).click()
        tab.wait_for_selector("#cells")
        tab.wait_for_selector("#plots svg")
        tab.click("#cells tbody a >> nth=0")
        tab.wait_for_selector("text=Provenance")
        assert printable(HOSTILE[index]).split()[0] in tab.inner_text("h1")
    assert tab.locator("script").count() == count
    assert tab.locator("img, iframe, object, embed, base, link, form:not(.vega-bindings)").count() == 0
    assert tab.evaluate("window.hacked") is None


def test_hostile_names_fit_400_pixels(folder: Path, visit: Open) -> None:
    long = "x" * 300
    value = report(cell(kernel=long, lowering=long, spelling=long, dtype=long, reason=long, digest=long),
                   cell(kernel=long, lowering="eager", reason=long), command=long,
                   environment={"cpu": {"chip": long, "torch": long}})  # fmt: skip
    page.write([save(value, folder / "long.json")], folder / "long.html")
    tab = visit((folder / "long.html").as_uri(), width=400)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
    for link in (".matrix tbody th a", "#cells tbody a >> nth=0"):
        tab.click(link)
        tab.wait_for_timeout(500)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400


def test_many_rows_are_drawn_on_request(folder: Path, visit: Open) -> None:
    cells = [cell(scalars={"value": float(number)}, digest=str(number)) for number in range(1000)]
    page.write([save(report(*cells), folder / "many.json")], folder / "many.html")
    tab = visit(f"{(folder / 'many.html').as_uri()}#/kernel/addcmul")
    assert tab.locator("#cells tbody tr").count() == 200
    assert "200 of 1\u202f000 rows" in tab.inner_text("#cells")
    tab.click("#cells .more button")
    assert tab.locator("#cells tbody tr").count() == 1000


def test_a_browser_that_cannot_unpack_is_told_so(folder: Path, browser: Browser) -> None:
    page.write([save(library(), folder / "old.json")], folder / "packed.html")
    tab = browser.new_page()
    tab.add_init_script("delete globalThis.DecompressionStream")
    tab.goto((folder / "packed.html").as_uri())
    assert "this browser cannot unpack it: it needs Chrome 80" in tab.inner_text("main")
    tab.close()


def test_the_recorded_reports_open(folder: Path, visit: Open) -> None:
    files = [ROOT / "reports" / "recorded" / name for name in ("cpu.json.xz", "h200.json.xz", "h200-exhaustive.json")]
    page.write(files, folder / "recorded.html")
    tab = visit((folder / "recorded.html").as_uri())
    names = texts(tab, ".matrix tbody th a")
    assert len(set(names)) >= 14
    assert tab.locator("section.absent li").count() == 0 and tab.locator("section.absent summary").count() == 1
    for name in ("exp", "pow"):
        tab.goto(f"{(folder / 'recorded.html').as_uri()}#/kernel/{name}")
        tab.wait_for_selector("#plots svg")
        assert "a recorded file leaves them out" in tab.inner_text("#plots")
