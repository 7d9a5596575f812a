"""The README is one page whose findings hold, and the tables of docs/results/ are what docs/tables.py makes."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sample_reports import cell, error, not_run, report
from verify.cli.commands import main
from verify.facts.kernel import UsageError
from verify.reports import looks, store
from verify.reports.schema import Report

ROOT = Path(__file__).resolve().parent.parent
RECORDED = sorted((ROOT / "reports" / "recorded").glob("*.json*"))
MEASURED = sorted((ROOT / "reports" / "measured").glob("*.json"))


def script(name: str) -> ModuleType:
    """A file of the repository that is no package, as a module."""
    path = ROOT / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


tables = script("docs/tables.py")
record = script("docs/record.py")
measure = script("bench/measure.py")

NO_DIFFERENCE = {"different": 0, "closer": 0, "farther": 0, "tied": 0}


def eager(**changes: Any) -> dict[str, Any]:
    return cell(lowering="eager", **({"against_eager": None, "digest": "aa11"} | changes))


def shown(kind: str, *cells: dict[str, Any], options: str = "", root: Path) -> str:
    """The table of a report, as a place in the README would get it."""
    store.write(Report.model_validate(report(*cells)), root / "r.json")
    return str(tables.rendered(f"{kind} r.json {options}", root))


def body(text: str) -> list[list[str]]:
    """The rows of the tables in `text`, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rule = next(i for i, line in enumerate(lines) if line.startswith("| ---"))
    return [[part.strip() for part in line.strip("|").split(" | ")] for line in lines[rule + 1 :]]


# The pages


@pytest.mark.parametrize("page", tables.pages(), ids=lambda page: page.name)
def test_the_results_are_what_the_recorded_files_say(page: Path) -> None:
    text = page.read_text()
    assert tables.filled(text) == text, "run `python docs/tables.py`"


def test_a_figure_changed_by_hand_is_noticed() -> None:
    text = (tables.RESULTS / "domains.md").read_text()
    place = tables.PLACE.search(text)
    assert place is not None
    changed = text[: place.end(1)] + "\n0.5 ulp\n" + text[place.end(1) :]
    assert tables.filled(changed) == text != changed


def test_every_recorded_file_is_shown() -> None:
    texts = [page.read_text() for page in tables.pages()]
    named = {word for text in texts for place in tables.PLACE.finditer(text) for word in place["what"].split()}
    recorded = {path.relative_to(ROOT).as_posix() for path in (*RECORDED, *MEASURED)}
    assert recorded - named == set()


README = (ROOT / "README.md").read_text()


def test_the_readme_is_a_page_with_one_generated_table() -> None:
    assert len(README.splitlines()) <= 150
    assert [place["what"].split()[0] for place in tables.PLACE.finditer(README)] == ["vendors-brief"]


@pytest.mark.parametrize("page", [ROOT / "README.md", *ROOT.glob("docs/**/*.md")], ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^ {4}.*$", "", page.read_text(), flags=re.MULTILINE)  # code may call what it has indexed
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose)
    assert [link for link in links if not (page.parent / link).exists()] == []


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]
#: Paths of the repository, but none with a placeholder, such as kernels/<kernel>.py.
PATHS = re.compile(r"\b(?:verify|kernels|oracles|reports|tests|docs|bench)/[\w./*-]*+(?!<(?!br>))")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_names_files_that_exist(page: Path) -> None:
    # what a table would show, and says that it is missing; what a command would write
    text = re.sub(r"<!-- table: .*? -->.*?<!-- /table -->|--out \S+", "", page.read_text(), flags=re.DOTALL)
    named = {path.rstrip(".") for path in PATHS.findall(text)}
    assert sorted(path for path in named if not any(ROOT.glob(path.rstrip("/")))) == []


def test_every_room_of_the_engine_is_in_the_architecture() -> None:
    named = {path.rstrip("/") for path in PATHS.findall((ROOT / "docs" / "architecture.md").read_text())}
    rooms = [path for path in (ROOT / "verify").iterdir() if not path.is_symlink() and path.name[:2] != "__"]
    unnamed = {path.relative_to(ROOT).as_posix() for path in rooms if path.is_dir() or path.suffix == ".py"} - named
    assert sorted(room for room in unnamed if not any(path.startswith(f"{room}/") for path in named)) == []


@pytest.mark.parametrize("command", re.findall(r"`verify (explain .*--backend cpu.*)`", README))
def test_a_finding_of_the_readme_is_found_again(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Truth and correct rounding are the same on every machine; what a library gives there is its own."""
    assert main([*shlex.split(command), "--lowering", "eager", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    paragraph = next(text for text in README.split("\n\n") if command in text)
    assert all(value in paragraph for value in (*told["inputs"].values(), told["exact"], told["rounded"]))


def test_the_recorded_finding_of_the_readme_is_in_the_record() -> None:
    cells = store.read(ROOT / "reports" / "recorded" / "h200.json.xz").cells
    [cell_] = [c for c in cells if (c.kernel, c.lowering, c.dtype, c.scalars) == ("pow", "inductor", "float32", {})]
    worst = cell_.worst[0]
    paragraph = next(text for text in README.split("\n\n") if "h200.json" in text)
    assert all(text in paragraph for text in (*worst.inputs, worst.output, worst.exact))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_recorded_file_is_a_report(path: Path) -> None:
    """`verify report` and `verify history` take the whole folder."""
    assert store.read(path).cells


@pytest.mark.parametrize("path", [*RECORDED, *MEASURED], ids=lambda path: path.name)
def test_recorded_files_are_small(path: Path) -> None:
    assert path.stat().st_size < 5_000_000, "record it with docs/record.py"


# The tables


def test_equal_bits_under_equal_bounds_share_a_row(tmp_path: Path) -> None:
    same = cell(digest="aa11", against_eager=NO_DIFFERENCE)
    text = shown("errors", eager(), same, cell(lowering="triton"), root=tmp_path)
    first, second = body(text)
    assert [first[1], second[1]] == ["eager, inductor", "triton"]
    assert second[2:5] == ["0.7712", "scaled_ulp", "1.5"]
    assert second[7] == "4.1% / 1.2%"
    assert "3 cells, 3000 elements, 0 of them undecided" in text and "`verify run`" in text


CLASSES = "1 nan mismatch; 1 inf mismatch; 1 zero sign; 1 flushed"


def test_deviations_are_grouped_by_their_reason_and_tell_the_largest(tmp_path: Path) -> None:
    def known(lowering: str, measured: float, excess: str, why: str = "it rounds (1 - w)") -> dict[str, Any]:
        bound = {"value": 1.0, "metric": "ulp", "source": "here", "measured": measured}
        return cell(lowering=lowering, reason=f"known deviation: {why} ({excess})", bound=bound)

    rows = body(
        shown(
            "deviations",
            eager(),
            known("inductor", 2.0, "ulp 2 exceeds 1"),
            known("triton", 3.0, "ulp 3 exceeds 1; 2 flushed"),
            known("mine", 9.0, "ulp 9 exceeds 1", "it flushes"),
            root=tmp_path,
        )
    )
    assert rows == [
        [
            *("addcmul", "inductor, triton", "float32", "", "it rounds (1 - w)"),
            f"triton float32 value=0.3: 3 ulp against the bound 1 (here); {CLASSES}",
        ],
        [
            *("addcmul", "mine", "float32", "", "it flushes"),
            f"mine float32 value=0.3: 9 ulp against the bound 1 (here); {CLASSES}",
        ],
    ]


def test_the_best_lowering_has_the_largest_surplus_over_all_its_settings(tmp_path: Path) -> None:
    bound = {"value": 1.0, "metric": "share", "source": "here"}

    def one(lowering: str, spelling: str, closer: int, farther: int, **more: Any) -> dict[str, Any]:
        sides = {"different": closer + farther, "closer": closer, "farther": farther, "tied": 0}
        return cell(lowering=lowering, spelling=spelling, bound=bound, against_eager=sides, output="param", **more)

    rows = body(
        shown(
            "best",
            eager(bound=bound, output="param"),
            one("inductor", "a", 300, 100),
            one("inductor", "b", 0, 100),
            one("triton", "a", 200, 100),
            one("fused", "a", 0, 1),
            eager(bound=bound, output="other"),
            cell(bound=bound, lowering="triton", output="other", against_eager=NO_DIFFERENCE),
            root=tmp_path,
        )
    )
    assert rows == [
        ["addcmul", "float32", "param", "triton", "10%", "inductor, triton", "fused"],
        ["addcmul", "float32", "other", "all alike", "", "", ""],
    ]


def test_a_spelling_is_named_only_where_it_gives_other_bits(tmp_path: Path) -> None:
    rows = body(
        shown(
            "errors",
            eager(),
            eager(spelling="strided"),
            eager(spelling="in-place", digest="bb22", error=error(max_scaled_ulp=1.25)),
            root=tmp_path,
        )
    )
    assert [row[1] for row in rows] == ["eager", "eager (in-place)"]
    assert rows[1][2] == "1.25"


def test_what_did_not_pass_says_so(tmp_path: Path) -> None:
    broken = cell(status="exceeds-bound", reason="too large")
    known = cell(lowering="triton", reason="known deviation: fma")
    text = shown("errors", broken, known, not_run(lowering="triton-libdevice"), root=tmp_path)
    assert ["**exceeds-bound**" in text, "(known deviation)" in text, "libdevice" in text] == [True, True, False]


def test_markup_in_names_and_formulas_stays_text(tmp_path: Path) -> None:
    formula = {"identified": "|w| < 1/2: a", "mismatches": {}}
    text = shown("errors", cell(lowering="a*b|c", formula=formula), root=tmp_path)
    assert "a\\*b\\|c" in text and "`\\|w\\| < 1/2: a`" in text


def test_who_is_nearer_and_by_how_much(tmp_path: Path) -> None:
    right = cell(against_eager={"different": 60, "closer": 60, "farther": 0, "tied": 0})
    wrong = cell(lowering="triton", against_eager={"different": 60, "closer": 2, "farther": 41, "tied": 17}, digest="c")
    same = cell(lowering="inductor-strict", against_eager=NO_DIFFERENCE, digest="aa11")
    text = shown("differences", eager(), right, wrong, same, root=tmp_path)
    assert "eager's bits on every input in 1 of 3 cells" in text
    assert [row[-1] for row in body(text)] == ["the lowering, always", "eager"]
    assert body(text)[1][3:7] == ["6%", "3.33%", "68.3%", "28.3%"]


def test_vendors_mark_what_is_predicted_and_show_what_was_measured_in_its_place(tmp_path: Path) -> None:
    """Figures, ends of documented errors, and the row of equal bits that is left out."""
    measured = cell(lowering="triton", backend="cuda", error=error(max_scaled_ulp=1.25))
    made = [
        cell(
            lowering=lowering,
            backend=f"virtual-rocm{end}",
            predicted={},
            digest=digest,
            error=error(max_scaled_ulp=value),
        )
        for lowering, digest in (("triton", "a"), ("triton-libdevice", "b"), ("triton-libdevice-nofuse", "a"))
        for end, value in (("", 0.5), ("-low", 0.75), ("-high", 2.0))
    ]
    text = shown("vendors-brief", measured, *made, root=tmp_path)
    rows = body(text)
    assert [row[1] for row in rows] == ["own kernel", "library or fast math, contracted"]
    assert rows[0][2:6] == ["1.25 scaled_ulp †", "-", f"{looks.PREDICTED} 0.5 scaled_ulp [0.5, 2] †", "-"]
    assert "ROCm: gfx942, predicted" in text
    alike = [one | {"digest": "b"} if one["lowering"] == "triton-libdevice-nofuse" else one for one in made]
    codes = [row[1] for row in body(shown("vendors-brief", measured, *alike, root=tmp_path))]
    assert codes == ["own kernel", "library or fast math, contracted or not"]
    real = cell(lowering="triton", backend="rocm", error=error(max_scaled_ulp=1.0))
    text = shown("vendors-brief", measured, real, *made, root=tmp_path)
    assert "ROCm: measured" in text and looks.PREDICTED not in text
    assert body(text)[0][2:6] == ["1.25 scaled_ulp †", "-", "1 scaled_ulp †", "-"]


def test_options_choose_the_cells(tmp_path: Path) -> None:
    cells = (eager(), cell(dtype="float16"), cell(kernel="lerp"))
    assert len(body(shown("errors", *cells, root=tmp_path))) == 3
    assert len(body(shown("errors", *cells, options="dtype=float32 lowering=eager", root=tmp_path))) == 1
    assert shown("screen", *cells, options="kernel=lerp", root=tmp_path).startswith("    lerp: errors")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("erors r.json", "did you mean errors"),
        ("errors", "names no file"),
        ("errors r.json dtyp=float32", "did you mean dtype"),
    ],
)
def test_a_place_that_asks_for_nonsense_is_refused(what: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        tables.rendered(what, tmp_path)


def test_a_file_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    assert tables.rendered("errors none.json", tmp_path) == "Not recorded: `none.json`.\n"


# Recording


def binades() -> list[dict[str, Any]]:
    one = {"measured": 3, "misrounded": 1, "max_ulp": 1.0, "mean_ulp": 0.5, "bias_ulp": 0.0}
    return [{"exponent": exponent, **one} for exponent in range(200)]


def test_a_recorded_report_is_smaller_and_gives_the_same_tables(tmp_path: Path) -> None:
    cells = [
        eager(error=error(binades=binades()), chunks=["00"] * 9),
        eager(spelling="in-place"),
        eager(spelling="strided", digest="dd44"),
        cell(error_rounded_scalar=error(binades=binades())),
        not_run(lowering="triton"),
    ]
    full, small = tmp_path / "full.json", tmp_path / "small.json"
    store.write(Report.model_validate(report(*cells)), full)
    assert record.main([str(full), "--out", str(small)]) == 0
    assert small.stat().st_size < full.stat().st_size / 8
    kept = store.read(small)
    assert [c.spelling for c in kept.cells] == ["out-of-place", "strided", "out-of-place"]
    environment: Any = kept.environment
    assert environment["recorded"]["left out"] == {
        "not run": {"cpu triton: torch finds no CUDA device": 1},
        "other spellings with the same bits": 1,
    }
    assert environment["recorded"]["trust"] == {
        "cpu": {"exp": {"bound_ulp": 4.0, "admitted_on": 65536, "seen_ulp": None}}
    }
    for kind in ("errors", "differences"):
        old, new = (tables.rendered(f"{kind} {path.name}", tmp_path) for path in (full, small))
        assert body(old) == body(new)


def test_reports_join_only_where_they_are_of_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, other = tmp_path / "1.json", tmp_path / "2.json", tmp_path / "3.json"
    for path, value in (
        (one, report(eager())),
        (two, report(eager(kernel="lerp"))),
        (other, report(eager(kernel="exp"), seed=1)),
    ):
        store.write(Report.model_validate(value), path)
    out = tmp_path / "out.json"
    assert record.main([str(one), str(two), "--out", str(out)]) == 0
    assert [c.kernel for c in store.read(out).cells] == ["addcmul", "lerp"]
    assert record.main([str(one), str(other), "--out", str(out)]) == 2
    assert record.main([str(one), str(one), "--out", str(out)]) == 2
    assert "differ in seed" in capsys.readouterr().err


# Measuring


def document(*items: dict[str, Any], scale: float = 1.0) -> dict[str, Any]:
    chip = {"chip": "A chip", "torch": "2.13.0", "triton": None}
    environment = {"cpu": chip, "cuda": {"absent": "no GPU"}, "cores": 2}
    return {"schema": 1, "command": "measure", "environment": environment, "scale": scale, "items": list(items)}


def test_a_measurement_is_held_to_its_targets() -> None:
    item = measure.Item("x", "an x", {"seconds": 2.0, "mp_share": 1e-6}, lambda scale: {})
    values = {"runs_s": [1.5, 1.25], "seconds": 1.25, "mp_share": 0.0, "peak_mib": 10.0}
    met = measure.entry(item, values, 0.5)
    missed = measure.entry(item, values | {"mp_share": 1e-5}, 0.5)
    broken = measure.entry(item, {"reason": "it broke", "broken": True}, 0.5)
    assert [entry["status"] for entry in (met, missed, broken)] == ["met", "missed", "error"]
    rows = body(tables.bench_table([document(met, missed, broken)]))
    assert rows[0][:4] == ["an x", "1.25 s", "2", "10 MiB"]
    assert [row[-1] for row in rows] == ["met", "missed", "error: it broke"]


def test_a_part_of_a_measurement_makes_no_table() -> None:
    with pytest.raises(UsageError, match="whole measurements"):
        tables.bench_table([document(scale=0.1)])


def test_measuring_writes_a_file_that_the_tables_read(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    command = [sys.executable, str(ROOT / "bench" / "measure.py"), "--out", str(out), "--only", "list"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    written = json.loads(out.read_text())
    [item] = written["items"]
    assert item["repetitions"] == 5
    assert 0 < item["measured"]["seconds"] == min(item["measured"]["runs_s"])
    assert 5 < item["measured"]["peak_mib"] < 200, "the command alone, without torch"
    [row] = body(tables.bench_table([written]))
    assert row[0] == "verify list"


def test_names_of_items_are_unique() -> None:
    names = [item.name for item in measure.ITEMS]
    assert len(set(names)) == len(names)
