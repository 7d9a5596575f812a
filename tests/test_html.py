"""The page of `verify report --html`, unopened: one file, no network, the terminal's figures, nothing but text."""

from __future__ import annotations

import base64
import copy
import gzip
import hashlib
import html.parser
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from page_reports import ENVIRONMENT, HOSTILE, hostile, library, save
from sample_reports import cell, report
from verify.cli.commands import main
from verify.facts.kernel import NothingToCompare, UsageError
from verify.judge.regions import REGIONS
from verify.reports import embedded, store
from verify.reports import html as page
from verify.reports.blocks import Table
from verify.reports.figures import figures, figures_of
from verify.reports.reasons import why_failed
from verify.reports.replays import Replays
from verify.reports.run_page import kernel_page, run_page
from verify.reports.schema import Cell, Report
from verify.reports.text import printable, upward

ROOT = Path(__file__).resolve().parent.parent
RECORDED = [ROOT / "reports" / "recorded" / name for name in ("cpu.json.xz", "h200.json.xz", "h200-exhaustive.json")]
SCRIPTS = ROOT / "reports" / "page"


@pytest.fixture(autouse=True)
def _small_library(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Bundling Vega-Lite takes a second: only tests marked so need it. What the page does is tested in a browser."""
    if "whole_page" not in request.fixturenames:
        monkeypatch.setattr(page, "plotting_library", lambda: "window.vegaEmbed = 0;")
        monkeypatch.setattr(page, "vl_convert", lambda: None)


@pytest.fixture
def whole_page() -> None:
    pytest.importorskip("vl_convert", reason="needs vl-convert-python: pip install -c constraints.txt '.[page]'")


class Parsed(html.parser.HTMLParser):
    """Elements with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, _ = self.elements[-1] if self.elements else ("", {})
        self.texts.append((tag, data))

    def raw(self, tag: str, **attributes: str) -> list[str]:
        """The contents of the elements of that name, which hold raw text."""
        found, inside = [], False
        numbers = iter(self.texts)
        for name, attrs in self.elements:
            inside = name == tag and all(attrs.get(key) == value for key, value in attributes.items())
            if inside:
                found.append(next(text for where, text in numbers if where == tag and text.strip()))
            elif name == tag:
                next(text for where, text in numbers if where == tag and text.strip())
        return found


def built(tmp_path: Path, *values: dict[str, Any], baseline: str | Path | None = None) -> str:
    files = [save(value, tmp_path / f"report{number}.json") for number, value in enumerate(values)]
    out = tmp_path / "out.html"
    page.write(files, out, baseline)
    return out.read_text(encoding="utf-8")


def data_of(text: str) -> dict[str, Any]:
    value = json.loads(unpacked(Parsed(text), "data"))
    assert isinstance(value, dict)
    return value


def embedded_data(path: Path) -> dict[str, Any]:
    value = json.loads(unpack(embedded.embed([path]).data))
    assert isinstance(value, dict)
    return value


def unpacked(parsed: Parsed, name: str) -> bytes:
    [text] = parsed.raw("script", id=name)
    return unpack(text)


def unpack(text: str) -> bytes:
    """What `embedded.packed` packed."""
    return gzip.decompress(base64.b64decode(text))


def cells_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The embedded cells with their values looked up, as the page's script does."""
    values, columns = data["values"], data["columns"]
    tables = {name: list(zip(*table, strict=True)) for name, table in data["tables"].items()}
    direct: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("binades", *embedded.OWN), lambda value: value),
        "device": lambda index: data["devices"][index],
        "numbers": lambda index: None if values[index] is None else tables["error"][values[index]],
        "worst": lambda index: [tables["element"][row] for row in values[index]],
        "regions": lambda index: [tables["region"][row] for row in values[index]],
    }
    return [
        {name: direct.get(name, values.__getitem__)(column[index]) for name, column in columns.items()}
        for index in range(len(columns["device"]))
    ]


def commands(shown: dict[str, Any]) -> list[str]:
    """As page.js puts them together."""
    start, before, after = shown["replay"]
    return [
        one[8] or start + (f"--input={','.join(one[0])}" if one[0] else f"{before}{one[7]}{after}")
        for one in shown["worst"]
    ]


# The same facts as the terminal


def test_every_figure_is_the_terminals(tmp_path: Path) -> None:
    value = library()
    told = {}
    for name in ("addcmul", "adam_step"):
        table = next(b for b in kernel_page(Report.model_validate(value), name).blocks if isinstance(b, Table))
        title = ""
        for row in table.rows:
            if row.heading:
                title = row.cells[0]
            else:
                told[name, title, row.cells[0]] = dict(zip((c.title for c in table.columns), row.cells, strict=True))
    shown = [one for one in cells_of(data_of(built(tmp_path, value))) if one["numbers"] is not None]
    assert len(shown) == len(told)
    for one in shown:
        backend = one["device"]["backend"]
        title = " ".join(filter(None, (backend, one["dtype"], one["scalars"], one["output"])))
        expected = told[one["kernel"], title, one["lowering"]]
        figures = {name: one[name] for name in (*embedded.FIGURES, "status")}
        assert figures == {name: expected[name] for name in figures}


@pytest.mark.parametrize("value", [library(), hostile()], ids=["library", "hostile"])
def test_replay_commands_are_the_terminals(tmp_path: Path, value: dict[str, Any]) -> None:
    shown = cells_of(data_of(built(tmp_path, value)))
    checked = 0
    for raw, one in zip(value["cells"], shown, strict=True):
        parsed = Cell.model_validate(raw)
        expected = [printable(Replays({}).element(parsed, worst)) for worst in parsed.worst]
        assert commands(one) == expected
        checked += len(expected)
    assert checked


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_reports_are_told_as_on_the_terminal(path: Path) -> None:
    """Every cell of a real report: figures, reason, formula, worst elements and commands."""
    report_ = store.read(path)
    shown = cells_of(embedded_data(path))
    for parsed, one in zip(report_.cells, shown, strict=True):
        if parsed.error is not None:
            assert {name: one[name] for name in embedded.FIGURES} == figures(parsed)
            assert dict(zip(embedded.NUMBERS, one["numbers"], strict=False))["max_ulp"] == parsed.error.max_ulp
            regions = [dict(zip(embedded.REGION_FIGURES, region[4:10], strict=True)) for region in one["regions"]]
            assert regions == [figures_of(parsed.regions[name]) for name in REGIONS if name in parsed.regions]
        assert commands(one) == [Replays({}).element(parsed, worst) for worst in parsed.worst]
        for shown, worst in zip(one["worst"], parsed.worst, strict=True):
            assert shown[4].split(" ")[0] == ("-" if worst.ulp is None else upward(worst.ulp))
            if worst.scaled_ulp not in (None, worst.ulp):
                assert shown[4].endswith(f" ({upward(worst.scaled_ulp)} scaled)")
        assert one["reason"] == parsed.reason


TOLD = "1.016 ulp against the bound 0.5 (IEEE 754); 1 nan mismatch; 1 inf mismatch; 1 zero sign; 1 flushed"


def test_a_failure_without_a_reason_is_told_as_on_the_terminal(tmp_path: Path) -> None:
    bad = cell(status="exceeds-bound", bound={"value": 0.5, "metric": "ulp", "source": "IEEE 754"})
    [one] = cells_of(data_of(built(tmp_path, report(bad))))
    assert one["reason"] == why_failed(Cell.model_validate(bad)) == TOLD


def test_statistics_by_binade_are_rounded_up_and_shared(tmp_path: Path) -> None:
    value = library()
    value["cells"][1]["error"]["binades"] = copy.deepcopy(value["cells"][0]["error"]["binades"])
    value["cells"][0]["error"]["binades"][1]["max_ulp"] = value["cells"][1]["error"]["binades"][1]["max_ulp"] = 0.50001
    text = built(tmp_path, value)
    lists = json.loads(unpacked(Parsed(text), "binades"))
    shown = cells_of(data_of(text))
    assert shown[0]["binades"] == shown[1]["binades"] == 0 != shown[2]["binades"]
    exponents, measured, misrounded, maximum, bias = lists[0]
    assert (exponents, measured, misrounded) == ([-3, -2, -1, 0], [100, 101, 102, 103], [0, 1, 2, 3])
    assert maximum[1] == 0.5001  # never below what was measured
    assert bias[2] == -375.0
    assert shown[-1]["binades"] == -1


# Nothing but text


def test_hostile_strings_are_data_and_nothing_else(tmp_path: Path) -> None:
    text = built(tmp_path, hostile())
    parsed = Parsed(text)
    plain = Parsed(built(tmp_path, library()))
    assert [tag for tag, _ in parsed.elements] == [tag for tag, _ in plain.elements]
    assert not any(name.startswith("on") for _, attrs in parsed.elements for name in attrs)
    [data] = parsed.raw("script", id="data")
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", data)
    inside = gzip.decompress(base64.b64decode(data)).decode()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", inside.replace("\n", ""))
    outside = text.replace(data, "")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text.replace("\n", ""))
    assert "window.hacked" not in re.sub(r"<title>.*?</title>", "", outside, flags=re.DOTALL)


def test_hostile_strings_arrive_whole(tmp_path: Path) -> None:
    shown = [one for one in cells_of(data_of(built(tmp_path, hostile()))) if one["numbers"] is not None]
    for text, one in zip(HOSTILE, shown, strict=True):
        printed = printable(text)
        assert one["kernel"] == one["formula"] == one["reason"] == one["worst"][0][1] == printed
        assert one["lowering"] == f"eager{printed}"


def test_a_command_quotes_what_a_shell_would_run(tmp_path: Path) -> None:
    [one] = cells_of(data_of(built(tmp_path, report(cell(lowering="$(reboot)", spelling="a; b")))))
    [command] = commands(one)
    words = shlex.split(command)
    assert words[words.index("--lowering") + 1] == "$(reboot)"
    assert words[words.index("--spelling") + 1] == "a; b"


@pytest.mark.parametrize("name", ["page.js", "plots.js", "unpack.js"])
def test_scripts_make_no_markup_and_no_code_from_text(name: str) -> None:
    text = (SCRIPTS / name).read_text()
    refused = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(.style|https?:"
    )
    assert re.findall(refused, text) == []


# One file, no network


def test_the_policy_allows_the_pages_own_code_only(tmp_path: Path) -> None:
    parsed = Parsed(built(tmp_path, library()))
    [policy] = [a["content"] or "" for _, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert not re.search(r"unsafe|https?|\*|data:", policy)

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    types = [attrs.get("type") for tag, attrs in parsed.elements if tag == "script"]
    scripts = [text for tag, text in parsed.texts if tag == "script" and text.strip()]
    code = [text for kind, text in zip(types, scripts, strict=True) if kind is None]
    assert len(code) == 3
    assert rules["script-src"].split() == list(map(digest, [*code, unpacked(parsed, "library").decode()]))
    assert rules["style-src"].split() == [digest(text) for tag, text in parsed.texts if tag == "style" and text.strip()]


def test_nothing_is_loaded(tmp_path: Path) -> None:
    parsed = Parsed(built(tmp_path, library()))
    links = [
        value for _, attrs in parsed.elements for name, value in attrs.items() if name in ("src", "href", "action")
    ]
    assert [link for link in links if not (link or "").startswith("#")] == []
    assert not {tag for tag, _ in parsed.elements} & {"link", "iframe", "object", "embed", "img", "base"}
    style = (SCRIPTS / "page.css").read_text()
    assert "url(" not in style and "@import" not in style


@pytest.mark.usefixtures("whole_page")
def test_everything_that_devices_recorded_is_a_page_of_3_mb(tmp_path: Path) -> None:
    files = [
        one for device in ("cpu", "h200") for one in sorted((ROOT / "reports" / "recorded").glob(f"{device}*.json*"))
    ]
    line = page.write(files, tmp_path / "out.html")
    assert len(files) >= 10 and int(line.split()[2]) > 11000
    assert (tmp_path / "out.html").stat().st_size < page.EXPECTED_BYTES, line


def test_a_large_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "EXPECTED_BYTES", 1000)
    line = page.write([save(library(), tmp_path / "a.json")], tmp_path / "out.html")
    assert line.endswith("larger than 0 MB, since nothing is left out")


def test_equal_reports_make_equal_pages(tmp_path: Path) -> None:
    assert built(tmp_path, library()) == built(tmp_path, library())


# Devices


def labels(data: dict[str, Any]) -> list[str]:
    return [device["label"] for device in data["devices"]]


def test_reports_of_one_device_are_one_column(tmp_path: Path) -> None:
    value = library()
    first, second = (dict(value, cells=value["cells"][i::2]) for i in range(2))
    data = data_of(built(tmp_path, first, second))
    assert len(data["devices"]) == 2
    assert {tuple(device["files"]) for device in data["devices"]} == {("report0.json", "report1.json")}
    assert sorted(one["device"]["backend"] for one in cells_of(data)) == sorted(c["backend"] for c in value["cells"])


def test_the_same_cells_twice_are_two_columns(tmp_path: Path) -> None:
    data = data_of(built(tmp_path, library(), library()))
    assert len(set(labels(data))) == len({device["id"] for device in data["devices"]}) == 4
    assert "report0.json" in " ".join(labels(data))


def test_columns_of_one_chip_are_told_apart(tmp_path: Path) -> None:
    other = copy.deepcopy(library())
    other["environment"]["cpu"]["capability"] = "AVX512"
    found = labels(data_of(built(tmp_path, library(), other)))
    assert any("AVX2" in one for one in found) and any("AVX512" in one for one in found)


def test_a_device_keeps_its_address_with_another_driver(tmp_path: Path) -> None:
    """Until a page has both: then the second is told apart."""
    other = copy.deepcopy(library())
    other["environment"]["cuda"]["driver"] = "999.1"
    other["environment"]["cpu"]["os"] = "another"
    ids = [[device["id"] for device in data_of(built(tmp_path, value))["devices"]] for value in (library(), other)]
    assert ids[0] == ids[1] == ["cpu-test-cpu-avx2", "cuda-test-gpu-sm_90"]
    both = [device["id"] for device in data_of(built(tmp_path, library(), other))["devices"]]
    assert both[:2] == ids[0] and len(set(both)) == 4


def test_a_report_without_a_fingerprint_has_columns(tmp_path: Path) -> None:
    data = data_of(built(tmp_path, report(cell(), environment={})))
    assert labels(data) == ["cpu"] and data["devices"][0]["facts"] == []


def test_what_was_not_run_has_its_reason(tmp_path: Path) -> None:
    recorded = {
        **ENVIRONMENT,
        "recorded": {"left out": {"not run": {"cpu triton: GPUs only": 104, "cpu triton-libdevice: GPUs only": 8}}},
    }
    data = data_of(built(tmp_path, dict(library(), environment=recorded)))
    assert data["reports"][0]["notes"] == [
        "rocm: torch finds no ROCm device",
        "GPUs only: cpu triton-libdevice, cpu triton; 112 cells, left out of the recorded file",
    ]
    assert data["reports"][0]["missing"] == 112
    assert [c["reason"] for c in cells_of(data) if c["status"] == "not-run"] == ["Triton compiles for GPUs only"]


# Differences from a baseline


def worse_and_without(value: dict[str, Any]) -> dict[str, Any]:
    """One cell with a larger maximum and other bits, one missing."""
    new = copy.deepcopy(value)
    new["cells"][0]["error"]["max_scaled_ulp"] = 1.25
    new["cells"][0]["digest"] = "other"
    del new["cells"][1]
    return new


def test_differences_from_a_report(tmp_path: Path) -> None:
    old = save(library(), tmp_path / "old.json")
    data = data_of(built(tmp_path, worse_and_without(library()), baseline=old))
    verdicts = [one["verdict"] for one in cells_of(data)]
    assert verdicts[0][0] == "regressed" and "-> 1.25" in verdicts[0][1]
    # the run's own failure stays one
    assert {one[0] for one in verdicts[1:] if one} == {"passed", "exceeds-bound", "deviates"}
    [missing] = data["baseline"]["missing"]
    assert missing[0] == "not-run" and missing[1].startswith("addcmul eager out-of-place cpu float32")
    assert "1 regressed" in data["baseline"]["line"]


@pytest.mark.parametrize("status", ["error", "oracle-violation"])
def test_a_failed_result_is_nothing_to_differ_from(tmp_path: Path, status: str) -> None:
    old = library()
    old["cells"][0] |= {"status": status, "reason": "r"}
    data = data_of(built(tmp_path, library(), baseline=save(old, tmp_path / "old.json")))
    assert cells_of(data)[0]["verdict"][:2] == ["not-run", "no result in old.json"]


def test_differences_from_accepted_results(tmp_path: Path) -> None:
    value = library()
    value["cells"] = [
        one for one in value["cells"] if one["status"] == "passed" and "known" not in one.get("reason", "")
    ]
    old = save(value, tmp_path / "old.json")
    assert main(["accept", str(old), "--baseline", str(tmp_path / "base")]) == 0
    data = data_of(built(tmp_path, worse_and_without(value), baseline=tmp_path / "base"))
    verdicts = [one["verdict"] for one in cells_of(data)]
    assert verdicts[0][0] == "regressed"
    assert {one[0] for one in verdicts[1:]} == {"passed"}
    assert [one[0] for one in data["baseline"]["missing"]] == ["not-run"]


def test_a_report_does_not_differ_from_itself(tmp_path: Path) -> None:
    value = library()
    old = save(value, tmp_path / "old.json")
    data = data_of(built(tmp_path, value, baseline=old))
    assert data["baseline"]["missing"] == []
    for raw, one in zip(value["cells"], cells_of(data), strict=True):
        expected = "deviates" if "known deviation" in raw.get("reason", "") else raw["status"]
        assert (one["verdict"] or [expected])[0] == expected == one["status"]


# Command line


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["report", *arguments])
    return code, capsys.readouterr().err


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = save(library(), tmp_path / "a.json"), tmp_path / "out.html"
    code, said = told(capsys, str(file), "--html", str(out))
    size = out.stat().st_size
    assert (code, said) == (0, f"page: {out}, 14 cells, {size / 1e6:.2f} MB\n")
    assert out.read_text().startswith("<!doctype html>")


def test_the_command_writes_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["report", str(save(library(), tmp_path / "a.json")), "--html", "-"])
    captured = capsys.readouterr()
    assert code == 0 and captured.out.endswith("</html>\n") and captured.err.startswith("page: standard output, 14 ")


def test_the_command_writes_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["report", str(save(library(), tmp_path / "a.json")), "--markdown", "-"])
    out = capsys.readouterr().out
    assert code == 0
    assert "| addcmul | cpu | 3 | 0 | 1 | 1 |" in out and "scaled\\_ulp 1.9 exceeds 1.5" in out
    assert "| addcmul | cuda | 5 | 1 | 0 | 0 |" in out and "11 of 13 cells passed, 1 deviates, 1 failed, 1 not" in out
    full = "".join(page_lines(Report.model_validate(library())))
    assert out == full  # what is dropped to save memory is not shown


def page_lines(value: Report) -> list[str]:
    from verify.reports import markdown

    return list(markdown.lines(run_page(value)))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a.json"], 2, "no output was named; expected --html FILE, --markdown FILE or both"),
        (["--html", "o.html"], 2, "Missing argument"),
        (["none.json", "--html", "o.html"], 2, "cannot read the report 'none.json': No such file"),
        (["a.json", "--html", "no/such/o.html"], 2, "cannot write to 'no/such/o.html'"),
        (["a.json", "--html", "."], 2, "it is a directory"),
        (["a.json", "--html", "-", "--markdown", "-"], 2, "standard output"),
        (["a.json", "--markdown", "-", "--baseline", "b"], 2, "--baseline is shown on the page only"),
        (["a.json", "--html", "o.html", "--baseline", "none"], 2, "'none'"),
        (["cut.json", "--html", "o.html"], 2, "is not a complete JSON file"),
        (["empty.json", "--html", "o.html"], 3, "nothing to show: no cell in empty.json"),
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    text = save(library(), tmp_path / "a.json").read_text()
    (tmp_path / "cut.json").write_text(text[: len(text) // 2])
    save(report(), tmp_path / "empty.json")
    found, said = told(capsys, *arguments)
    assert found == code
    assert message in said and said.count("\n") == 1 and said.startswith("verify: ")
    assert not (tmp_path / "o.html").exists()


@pytest.mark.usefixtures("whole_page")
def test_a_missing_plotting_library_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UsageError, match=r"pip install 'ulproof\[page\]'"):
        page.write([tmp_path / "unread.json"], tmp_path / "out.html")


def test_an_empty_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingToCompare):
        embedded.embed([save(report(), tmp_path / "a.json")])


def test_a_file_name_that_is_no_text_is_shown(tmp_path: Path) -> None:
    file = save(library(), tmp_path / "a\udcff<b>.json")
    data = embedded_data(file)
    assert data["reports"][0]["file"] == "a\\udcff<b>.json"


def test_reading_needs_no_torch_and_starts_fast() -> None:
    program = (
        "import sys, verify.cli.commands\n"
        "import verify.reports.html, verify.reports.embedded\n"
        "print(sorted({'torch', 'triton', 'vl_convert', 'playwright'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_work_grows_with_the_number_of_cells(tmp_path: Path) -> None:
    """Twice something per cell is fine, a look at all cells for each is not: 100,000 cells would take minutes."""

    def seconds(count: int) -> float:
        cells = [cell(kernel=f"k{i}", digest=f"{i}", reason=f"{i}") for i in range(count)]
        file = save(report(*cells, environment=ENVIRONMENT), tmp_path / f"{count}.json")
        took = []
        for _ in range(2):
            start = time.process_time()
            embedded.embed([file])
            took.append(time.process_time() - start)
        return min(took)

    seconds(10)
    few, many = seconds(500), seconds(4000)
    assert many < 2 * 8 * few
