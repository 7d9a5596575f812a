"""Reports: the schema refuses what is no report, files are replaced whole, tables keep every number."""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import stat
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sample_reports import COUNTS, cell, cell_of, error, not_run, region, report, report_of, worst_at
from verify.cli.commands import main
from verify.facts.kernel import METRICS, UsageError
from verify.numbers.ulp import CLASSES
from verify.reports import embedded, store, terminal
from verify.reports.blocks import Page, Table
from verify.reports.figures import measured
from verify.reports.run_page import kernel_page, run_page
from verify.reports.schema import Report
from verify.reports.text import percent, upward


def text(value: dict[str, Any]) -> str:
    return "".join(store.lines(Report.model_validate(value)))


def printed(page: Page, width: int = 120) -> str:
    file = io.StringIO()
    terminal.print_page(page, file, width)
    return file.getvalue()


def test_a_small_file_that_holds_too_much_is_refused_before_it_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is divided into lines."""
    path = tmp_path / "bomb.json.xz"
    monkeypatch.setattr(store, "MAX_BYTES", 1 << 20)
    whole = text(report_of(*(cell_of({"normal": region()}, kernel=f"k{n}") for n in range(1000)))).encode()
    for data in (b" " * (1 << 26), whole, whole.replace(b"\n", b"")):
        path.write_bytes(lzma.compress(data))
        assert len(data) > 1 << 20 > path.stat().st_size
        read, taken = 0, list[str]()

        class Counted(lzma.LZMAFile):
            def read(self, size: int | None = -1) -> bytes:
                nonlocal read
                got = super().read(size)
                read += len(got)
                return got

            def readline(self, size: int | None = -1) -> bytes:
                nonlocal read
                got = super().readline(size)
                read += len(got)
                return got

        monkeypatch.setattr(lzma, "open", lambda path, mode, preset, opened=Counted: opened(path, "rb"))
        with pytest.raises(UsageError, match="is larger than 1 MiB"):
            store.scan(path, lambda one, taken=taken: taken.append(one.kernel))
        assert read <= 2 * (1 << 20) + 4


# Reports that are not of a whole run

PART = {
    "kernel": "add", "lowering": "eager", "spelling": "out-of-place", "backend": "cpu", "dtype": "float16",
    "scalars": {"alpha": 1.0}, "job": 1, "size": 4096, "inputs": 1024, "source": "s", "status": "exceeds-bound",
    "reason": "ulp 7 exceeds 1.5", "found": {"start": 1024, "stop": 2048},
}  # fmt: skip
SHARD = {"index": 1, "of": 3, "jobs": 4, "numbers": [0], "source": "d", "whole": False, "parts": [PART], "others": [3]}
PART_TOLD = "add alpha=1.0 cpu float16 eager out-of-place: 25% of its 4096 inputs are judged, from element 1024"


@pytest.fixture(name="unfinished")
def _unfinished(tmp_path: Path) -> tuple[str, str, str]:
    """A report of shards, an interrupted one, and a whole one."""
    machine = {"cpu": {"backend": "cpu", "chip": "Xeon", "capability": "AVX2", "torch": "2.13.0"}}
    given = {"shard": SHARD}, {"interrupted": True}, {}
    paths = []
    for number, changes in enumerate(given):
        one = report_of(cell_of({"normal": region()}), environment=machine | {"created": number}, **changes)
        paths.append(str(tmp_path / f"{number}.json"))
        store.write(Report.model_validate(one), paths[-1])
    return paths[0], paths[1], paths[2]


def test_pages_say_what_a_report_lacks(unfinished: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    shards, interrupted, whole = unfinished
    about = "shards 1, 3 of 3: the others have the rest"
    parts = PART_TOLD, "exceeds-bound so far", "ulp 7 exceeds 1.5"
    told = {shards: (about, *parts), interrupted: ("interrupted: it lacks cells",)}
    for path in unfinished:
        assert main(["report", path, "--markdown", "-"]) == 0
        page = " ".join(capsys.readouterr().out.split()).replace("\\", "")
        for text in (*told[shards], *told[interrupted]):
            assert (text in page) == (text in told.get(path, ())), text
        for text in told.get(path, ()):
            assert text in json.dumps(embedded._report(source_of(path)))
    for command in (["compare", *unfinished], ["history", str(Path(whole).parent)]):
        if command[0] == "history":
            pytest.importorskip("duckdb", reason="duckdb is not installed")
        main(command)
        page = " ".join(capsys.readouterr().out.split())
        assert page.count("interrupted: it lacks cells") == 1 and about in page


def source_of(path: str) -> Any:
    source = embedded._Source(path)
    source.head = store.read(path)
    return source


def test_a_part_of_a_sweep_is_shown_without_any_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    store.write(Report.model_validate(report_of(shard=SHARD | {"numbers": []})), path)
    assert main(["report", str(path), "--markdown", "-"]) == 0
    assert "25% of its 4096 inputs" in capsys.readouterr().out


def test_a_merge_says_which_report_was_interrupted(
    unfinished: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, interrupted, whole = unfinished
    main(["merge", interrupted, "-o", whole])
    assert f"verify: {interrupted} was interrupted: {whole} lacks cells, too" in capsys.readouterr().err


# Reading what is no report


def test_every_prefix_of_a_report_is_refused_in_one_line(tmp_path: Path) -> None:
    whole = text(report(cell(), not_run(lowering="triton", backend="cuda"))).rstrip("\n")
    path = tmp_path / "cut.json"
    for length in range(0, len(whole), 7):
        path.write_text(whole[:length])
        with pytest.raises(
            UsageError, match=r"cut\.json' is not a complete JSON file: .* line \d+ column \d+"
        ) as caught:
            store.read(path)
        assert "\n" not in str(caught.value)
    path.write_text(whole)
    assert store.read(path).cells[0].kernel == "addcmul"


def at(*path: str | int) -> Any:
    """A change of a sample report: put a marker at `path`, to be replaced in the JSON text."""

    def mark(value: Any) -> None:
        for step in path[:-1]:
            value = value[step]
        value[path[-1]] = "MARK"

    return mark


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    ("where", "path"),
    [
        (at("cells", 0, "error", "max_ulp"), "$.cells[0].error.max_ulp"),
        (at("cells", 0, "error", "bias_ulp"), "$.cells[0].error.bias_ulp"),
        (at("cells", 0, "worst", 0, "ulp"), "$.cells[0].worst[0].ulp"),
        (at("cells", 0, "scalars", "value"), "$.cells[0].scalars.value"),
        (at("cells", 0, "bound", "value"), "$.cells[0].bound.value"),
        (at("cells", 0, "timing", "kernel_s"), "$.cells[0].timing.kernel_s"),
        (at("environment", "cpu", "cores"), "$.environment"),
    ],
)
def test_a_number_that_is_not_finite_is_named_by_its_path(literal: str, where: Any, path: str) -> None:
    value = report(cell())
    where(value)
    with pytest.raises(UsageError, match=re.escape(path)):
        store.parse(json.dumps(value).replace('"MARK"', literal), "a.json")


@pytest.mark.parametrize(
    ("where", "literal", "path"),
    [
        (at("cells", 0, "inputs"), "-1", "$.cells[0].inputs"),
        (at("cells", 0, "inputs"), "1000.5", "$.cells[0].inputs"),
        (at("cells", 0, "inputs"), '"1000"', "$.cells[0].inputs"),
        (at("cells", 0, "inputs"), "true", "$.cells[0].inputs"),
        (at("cells", 0, "error", "max_ulp"), "-0.5", "$.cells[0].error.max_ulp"),
        (at("cells", 0, "status"), '"fine"', "$.cells[0].status"),
        (at("cells", 0, "bound", "metric"), '"meters"', "$.cells[0].bound.metric"),
        (at("cells", 0, "error", "histogram"), '{"2": 1}', "$.cells[0].error.histogram"),
        (at("cells", 0, "error", "histogram"), '{"<=nan": 1}', "$.cells[0].error.histogram"),
        (at("cells", 0, "error", "histogram"), '{"<=1": 2, "<=0.5": 3}', "$.cells[0].error.histogram"),
        (at("cells", 0, "worst", 0, "error_class"), '"bad"', "$.cells[0].worst[0].error_class"),
        (at("cells", 0, "more"), "1", "$.cells[0].more"),
        (at("cells"), '{"a": 1}', "$.cells"),
        (at("seed"), "null", "$.seed"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(where: Any, literal: str, path: str) -> None:
    value = report(cell())
    where(value)
    with pytest.raises(UsageError, match=re.escape(path + ":")):
        store.parse(json.dumps(value).replace('"MARK"', literal), "a.json")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[]", r'"schema" is None'),
        ("{}", r'"schema" is None'),
        ('{"schema": "1"}', r"\"schema\" is '1'; expected the number 1 or 2"),
        ('{"schema": true}', r'"schema" is True'),
        ('{"schema": 3, "cellz": []}', "schema 3; this version reads schema 1 or 2; upgrade"),
        ('{"schema": 0}', "schema 0; this version reads schema 1 or 2$"),
        ('{"schema": 1}', r"\$\.environment: Field required"),
        ("not json", "not a complete JSON file"),
        ("", "not a complete JSON file"),
        ("[" * 100_000, "not a complete JSON file"),
        ('{"baseline": 2, "cells": []}', "'a.json' is what `verify accept` has written, a baseline; expected a report"),
    ],
)
def test_what_is_no_report_of_this_version_says_so(given: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        store.parse(given, "a.json")


def test_unreadable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, why in ((tmp_path / "none.json", "No such file"), (tmp_path, "Is a directory"), ("a\0b", "null")):
        with pytest.raises(UsageError, match=why):
            store.read(path)
    (tmp_path / "bytes.json").write_bytes(b'{"schema": "\xff"}')
    with pytest.raises(UsageError, match="column"):
        store.read(tmp_path / "bytes.json")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(store.MAX_BYTES + 1)  # sparse: refused by its size, unread
    with pytest.raises(UsageError, match="larger than 512 MiB"):
        store.read(huge)
    monkeypatch.setattr(store, "MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="larger"):
        store.read("/dev/zero")


# The schema's own arithmetic


@pytest.mark.parametrize("name", [*CLASSES, "undecided", "misrounded"])
def test_the_classes_must_partition_the_inputs(name: str) -> None:
    broken = cell()
    broken["error"][name] += 1
    with pytest.raises(ValidationError, match=r"misrounded is|classes of error sum to 1001|undecided elements"):
        Report.model_validate(report(broken))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"against_eager": {"different": 3, "closer": 1, "farther": 1, "tied": 0}}, "expected different = 3"),
        ({"against_eager": {"different": 1001, "closer": 1001, "farther": 0, "tied": 0}}, "differ from eager"),
        ({"error": None}, "without an error record"),
        ({"status": "error", "reason": ""}, "without a reason"),
        ({"error": error(correct=899, undecided=1)}, "passed with 1 undecided"),
        ({"error": error(range=1001)}, "range is 1001 of 1000"),
        ({"error_rounded_scalar": error(correct=0)}, "error_rounded_scalar sum to 100"),
    ],
)
def test_a_cell_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Report.model_validate(report(cell(**changes)))


@pytest.mark.parametrize("name", ["cells", "seed"])
@pytest.mark.parametrize("spaced", [False, True])
def test_what_an_object_says_twice_is_refused(tmp_path: Path, name: str, spaced: bool) -> None:
    """The last of two lists of cells hid the first, which failed."""
    path = tmp_path / "r.json"
    told = text(report_of(cell_of({"normal": region()})))
    first = f'{{"{name}":{json.dumps(json.loads(told)[name])},'
    path.write_text((first + told[1:]).replace("\n", " " if spaced else "\n"))
    for read in (store.read, lambda path: store.scan(path, lambda cell: cell)):
        with pytest.raises(UsageError, match=f"an object has '{name}' twice"):
            read(path)


def test_duplicate_cells_are_refused_by_name() -> None:
    with pytest.raises(ValidationError, match=r"cells\[2\] repeats addcmul inductor"):
        Report.model_validate(report(cell(), cell(dtype="float16"), cell(status="exceeds-bound")))


def test_text_that_no_file_can_hold_is_refused_before_writing() -> None:
    with pytest.raises(ValidationError, match="surrogate"):
        Report.model_validate(report(environment={"cpu": {"name": "\udcff"}}))


# Writing

finite = st.floats(allow_nan=False, allow_infinity=False)
size = st.floats(0, allow_infinity=False)
count = st.integers(0, 1 << 40)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def cells(draw: st.DrawFn, name: str) -> dict[str, Any]:
    classes = {name: draw(count) for name in COUNTS} | {"undecided": 0}
    numbers = {key: draw(size) for key in ("max_ulp", "max_scaled_ulp", "mean_ulp")}
    measured = error(**classes, **numbers, bias_ulp=draw(finite), range=0)
    inputs = sum(classes.values())
    edges = sorted(draw(st.sets(st.floats(0, 1e6), max_size=4)))
    counts = sorted(draw(count) for _ in edges)
    measured["histogram"] = {f"<={edge}": number for edge, number in zip(edges, counts, strict=True)}
    different = [draw(st.integers(0, inputs // 3)) for _ in range(3)]
    return cell(
        kernel=name,
        lowering=draw(words),
        scalars=draw(st.dictionaries(words, finite, max_size=3)),
        inputs=inputs,
        error=measured,
        against_eager=dict(zip(("closer", "farther", "tied"), different, strict=True)) | {"different": sum(different)},
        flags=draw(st.dictionaries(words, st.none() | st.booleans() | finite | words, max_size=3)),
        timing={"kernel_s": draw(size), "check_s": draw(size)},
        status=draw(st.sampled_from(["passed", "exceeds-bound", "oracle-violation"])),
    )


reports = st.lists(words, max_size=3, unique=True).flatmap(
    lambda kernels: st.builds(
        report,
        *(cells(name) for name in kernels),
        environment=st.dictionaries(words, words | finite | st.lists(finite, max_size=3), max_size=4),
        seed=st.integers(),
        command=words,
    )
)


@given(reports)
def test_a_report_reads_back_equal_and_writes_the_same_bytes(value: dict[str, Any]) -> None:
    first = Report.model_validate(value)
    once = "".join(store.lines(first))
    again = store.parse(once, "a.json")
    assert again == first
    assert "".join(store.lines(again)) == once
    assert json.loads(once)["cells"] == [json.loads(c.model_dump_json()) for c in first.cells]


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(reports)
def test_bytes_do_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    assert text(reordered(value)) == text(value)


def test_one_line_a_cell() -> None:
    value = report(cell(), cell(dtype="float16"))
    lines = text(value).splitlines()
    assert len(lines) == 4
    assert '"dtype":"float16"' in lines[2]
    changed = text({**value, "cells": [cell(digest="ff"), cell(dtype="float16")]}).splitlines()
    assert [a == b for a, b in zip(lines, changed, strict=True)] == [True, False, True, True]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    store.write(Report.model_validate(report()), path)
    old = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"cannot write to .*report\.json.*: No space left on device"):
        store.write(Report.model_validate(report(cell())), path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["report.json"]  # noqa: PTH208

    def stopped() -> Any:
        yield "half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write_text(stopped(), path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["report.json"]  # noqa: PTH208


def test_a_compressed_report_is_the_same_report(tmp_path: Path) -> None:
    value, plain, packed = (
        Report.model_validate(report(cell(), cell(dtype="float16"))),
        tmp_path / "r.json",
        "r.json.xz",
    )
    store.write(value, plain)
    store.write(value, tmp_path / packed)
    assert lzma.decompress((tmp_path / packed).read_bytes()) == plain.read_bytes()
    assert store.read(tmp_path / packed) == store.read(plain)
    assert store.scan(tmp_path / packed, lambda c: c.key) == store.scan(plain, lambda c: c.key)
    data = (tmp_path / packed).read_bytes()
    for broken in (data[:-20], data[:40] + b"\xff" + data[41:], plain.read_bytes()):
        (tmp_path / packed).write_bytes(broken)
        with pytest.raises(UsageError, match=r"cannot read the report .*r\.json\.xz"):
            store.read(tmp_path / packed)
        with pytest.raises(UsageError, match=r"cannot read the report .*r\.json\.xz"):
            store.scan(tmp_path / packed, lambda c: c.key)


def test_writing_through_a_link_replaces_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "r.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    beside: list[int] = []  # os.replace is atomic within one file system only, so the new file starts beside the old
    monkeypatch.setattr(os, "fsync", lambda descriptor: beside.append(len(list(target.parent.iterdir()))))
    store.write(Report.model_validate(report()), link)
    assert beside == [2]
    assert link.is_symlink()
    assert store.read(target).cells == []


def test_devices_are_written_in_place_not_replaced() -> None:
    store.ensure_writable("/dev/null")
    store.write(Report.model_validate(report()), "/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_path_that_cannot_be_written_is_known_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    long = "x" * 300 + ".json"
    for path, why in (
        (tmp_path / "none" / "r.json", "there is no folder '"),
        (tmp_path / "file" / "r.json", "Not a directory"),
        (tmp_path, "is a directory"),
        (tmp_path / long, "File name too long"),
        ("a\0b", "null"),
    ):
        with pytest.raises(UsageError, match=f"cannot write to .*{why}"):
            store.ensure_writable(path)
        with pytest.raises(UsageError, match="cannot write to"):
            store.write(Report.model_validate(report()), path)
    store.ensure_writable(tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()
    protected = tmp_path / "protected.json"
    protected.write_text("")
    protected.chmod(0o444)
    if not os.access(protected, os.W_OK):  # root may write anything
        with pytest.raises(UsageError, match="write-protected"):
            store.ensure_writable(protected)


# Facts and terminal


@given(st.floats(0, allow_infinity=False))
def test_a_printed_maximum_is_never_below_the_measured_one(value: float) -> None:
    shown = Fraction(upward(value))
    # four digits, then the step up: at most one part in 10^3 more
    assert value <= shown <= Fraction(value) * Fraction(1001, 1000)


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 40))
def test_a_share_is_zero_or_all_only_where_it_is(part: int, more: int) -> None:
    whole = part + more
    assert (percent(part, whole) == "0%") == (part == 0)
    assert percent(whole, whole) == "100%"
    assert percent(part, whole) != "100%"


def numbers_of(one: dict[str, Any]) -> set[str]:
    """What a table must show of a cell, as printed."""
    against = one["against_eager"] or {}
    return {upward(one["error"]["max_ulp"]), *(str(against[k]) for k in ("closer", "farther", "tied") if against)}


@pytest.mark.parametrize("width", [30, 80, 120, 200])
def test_no_number_is_cut_at_any_width(width: int) -> None:
    big = {"different": 4294967295, "closer": 4294967290, "farther": 3, "tied": 2}
    counts = dict.fromkeys(COUNTS, 0) | {"correct": 1, "worse": (1 << 32) - 1}
    sample = [
        cell(lowering="eager", against_eager=None, digest="1"),
        cell(
            lowering="triton-libdevice-nofuse",
            status="exceeds-bound",
            inputs=1 << 32,
            error=error(**counts, max_ulp=123456.78, max_scaled_ulp=98765.4321),
            against_eager=big,
        ),
        cell(lowering="inductor-strict", spelling="_foreach_", bound=None),
    ]
    page = kernel_page(Report.model_validate(report(*sample)), "addcmul")
    shown = printed(page, width)
    for one in sample:
        assert numbers_of(one) <= set(shown.split())
    assert {"scaled_ulp", "98770", "0.7712", "51.5%", ">99.9%", "10%", "A"} <= set(shown.split())
    joined = "".join(shown.split())  # names and formulas may wrap
    for word in (
        "triton-libdevice-nofuse",
        "exceeds-bound",
        "inductor-strict",
        "fma(value,rn(b*c),a)",
        "nan:0x7fc00001",
    ):
        assert word in joined
    if width >= 80:
        tables = [line for line in shown.splitlines() if not line.startswith("verify explain")]
        assert max(len(line.rstrip()) for line in tables) <= width


def test_the_bounds_metric_and_truth_choose_the_measured_error() -> None:
    def largest(metric: str, **bound: Any) -> tuple[float, str]:
        one = cell(
            bound={"value": 2.0, "metric": metric, "source": "s", **bound},
            error_rounded_scalar=error(max_ulp=0.5, max_scaled_ulp=0.25, max_int_ulp=0),
        )
        return measured(Report.model_validate(report(one)).cells[0])

    assert [largest(metric) for metric in METRICS] == [(1.015625, "ulp"), (1.0, "int_ulp"), (0.7712, "scaled_ulp")]
    assert largest("scaled_ulp", truth="rounded") == (0.25, "scaled_ulp")
    assert largest("scaled_ulp", truth="rounded", measured=0.125) == (0.125, "scaled_ulp")


def test_spellings_share_a_row_only_with_the_same_bits() -> None:
    def rows_of(*digests: str) -> list[str]:
        spelled = [cell(spelling=f"s{i}", digest=digest) for i, digest in enumerate(digests)]
        page = kernel_page(Report.model_validate(report(*spelled)), "addcmul")
        table = next(block for block in page.blocks if isinstance(block, Table))
        return [row.cells[0] for row in table.rows if not row.heading]

    assert rows_of("a", "a", "a") == ["inductor"]
    assert rows_of("a", "b", "a") == ["inductor (s0, s2)", "inductor (s1)"]
    assert rows_of("", "") == ["inductor (s0)", "inductor (s1)"]


def test_a_share_of_no_bound_is_not_printed() -> None:
    normal = region(
        status="unbounded", bound=None, reason={"kind": "no-bound", "text": "none"}, worst=[worst_at(3, share=0.0)]
    )
    shown = printed(kernel_page(Report.model_validate(report_of(cell_of({"normal": normal}))), "addcmul"), 200)
    assert "exact" in shown and "of its bound" not in shown


def test_failures_come_with_inputs_truth_class_and_a_command() -> None:
    failed = cell(status="exceeds-bound", bound={"value": 0.5, "metric": "ulp", "source": "CUDA C Guide, table 12"})
    page = kernel_page(Report.model_validate(report(failed)), "addcmul")
    shown = printed(page, 200)
    assert "1.016 ulp against the bound 0.5 (CUDA C Guide, table 12)" in shown
    assert "-> 0x1.8p+1, exact 2.9999998211860657, 1.016 ulp, worse" in shown
    command = (
        "verify explain addcmul --dtype float32 --backend cpu --lowering inductor --spelling out-of-place "
        "--scalar value=0.3 --input=-0x1.8p+0,0x1.000002p+0,nan:0x7fc00001\n"
    )
    assert command in printed(page, 80)  # unbroken, to be copied
    undecided = cell(status="error", reason="undecided at 4096 bits", error=error(correct=899, undecided=1))
    shown = printed(kernel_page(Report.model_validate(report(undecided)), "addcmul"))
    assert "undecided 1 of 1000 elements" in shown


def test_what_did_not_run_is_named_with_its_reason() -> None:
    value = Report.model_validate(report(cell(), not_run(lowering="triton", backend="cuda")))
    assert "not run, 1 cell: triton, cuda, float32: torch finds no CUDA device" in printed(
        kernel_page(value, "addcmul")
    )
    run = printed(run_page(value))
    assert re.search(r"addcmul +cuda +0 +0 +1 +- +- +-", run)
    assert re.search(r"addcmul +cpu +1 +0 +0 +1\.016 +51\.5% +10%", run)


def test_what_deviates_in_a_report_of_schema_1_is_told_once_a_reason() -> None:
    def told(*reasons: str) -> str:
        cells = [cell(reason=f"known deviation: {why}", dtype=f"d{k}") for k, why in enumerate(reasons)]
        return printed(kernel_page(Report.model_validate(report(*cells)), "addcmul"), 400)

    assert "deviates, 2 cells: inductor, cpu, d0 d1: it (1 - w) flushes (0.7712 scaled_ulp against the bound" in told(
        "it (1 - w) flushes (3 flushed)", "it (1 - w) flushes (4 flushed)"
    )
    shown = told("powf", "expf")
    assert "d0: powf (0.7712" in shown and "d1: expf (0.7712" in shown
    assert "0 of 2 cells passed, 2 deviate; undecided 0" in shown


def test_a_users_own_lowering_is_answered_in_a_screen() -> None:
    """One row a dtype and lowering, with the case of the largest share; only the user's own is remarked on."""
    cells = []
    for dtype in ("float16", "float32"):
        for w in (0.1, 0.4, 0.5, 0.9):
            for name in ("mine.py:f", "eager", "inductor"):
                bound = {"value": 4.0, "metric": "ulp", "source": "here", "measured": 3.0 if w == 0.4 else 1.0}
                bad = name == "mine.py:f" and w == 0.9 and dtype == "float16"
                why = {"status": "exceeds-bound", "reason": "5 nan mismatch"} if bad else {}
                sides = None if name == "eager" else {"different": 7, "closer": 4, "farther": 2, "tied": 1}
                remark = {"reason": f"known deviation: {name} flushes"} if not bad else {}
                cells.append(cell(lowering=name, dtype=dtype, scalars={"w": w}, bound=bound, against_eager=sides,
                                  digest=f"{name}{w}{dtype}", **remark, **why))  # fmt: skip
    shown = printed(kernel_page(Report.model_validate(report(*cells)), "addcmul"), 140)
    table = [line.split()[1:] for line in shown.splitlines() if line.startswith(("mine.py:f ", "eager ", "inductor "))]
    assert table == [
        ["0", "of", "4,", "3", "deviate,", "1", "failed", "1", "ulp", "4", "25%", "w=0.9", "out-of-place", "16", "8"],
        *(
            ["0", "of", "4,", "4", "deviate", "3", "ulp", "4", "75%", "w=0.4", "out-of-place", *sides]
            for sides in (["-", "-"], ["16", "8"], ["16", "8"], ["-", "-"], ["16", "8"])
        ),
    ]
    assert "formula of mine.py:f: fma(value, rn(b*c), a)" in shown
    assert "5 nan mismatch" in shown and "mine.py:f flushes" in shown
    assert "inductor flushes" not in shown and "eager flushes" not in shown
    assert len(shown.splitlines()) < 40
    few = printed(kernel_page(Report.model_validate(report(*cells[12:18])), "addcmul"), 140)
    assert "inductor flushes" in few and "w=0.4" in few


HOSTILE = "\x1b[31mred\x1b]0;title\x07[bold]x[/bold] :smile: \u202eevil\x9b1m"


@pytest.mark.parametrize("field", ["kernel", "lowering", "spelling", "backend", "dtype", "reason"])
def test_hostile_names_come_out_as_text(field: str) -> None:
    one = cell(status="exceeds-bound", **{field: HOSTILE, **({} if field == "reason" else {"reason": "r"})})
    value = Report.model_validate(report(one))
    for page in (kernel_page(value, one["kernel"]), run_page(value)):
        shown = printed(page)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
        assert "\\x1b[31mred\\x1b]0;title\\x07[bold]x[/bold]:smile:\\u202eevil\\x9b1m" in "".join(shown.split())


def test_colour_only_on_a_terminal_and_never_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    page = kernel_page(Report.model_validate(report(cell())), "addcmul")

    def shown(file: io.StringIO) -> str:
        terminal.print_page(page, file, 120)
        return file.getvalue()

    assert "\x1b" not in shown(io.StringIO())
    assert "\x1b[32mpassed" in shown(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[(?:\d+;)*[349]\d", shown(Terminal()))


def test_a_lowering_that_fails_everywhere_is_told_on_a_screen() -> None:
    """The failing call with its script first, the rest counted."""
    script = [f"line {k}" for k in range(9)]
    mine = [
        cell_of(
            {name: region(status="exceeds-bound") for name in ("normal", "special", "overflow")},
            lowering="mine.py:f", dtype=dtype, spelling=spelling,
        )
        for dtype in ("float16", "float32", "bfloat16", "float64")
        for spelling in ("out-of-place", "tail", "size-one")
    ]  # fmt: skip
    mine[4] = cell_of(
        {"normal": region()}, lowering="mine.py:f", spelling="tail", status="unsteady", reason_kind="calls",
        reason="the smallest: 2 elements", calls={"made": 9, "different": ["2 elements"], "script": script},
    )  # fmt: skip
    page = printed(kernel_page(Report.model_validate(report_of(cell_of({"normal": region()}), *mine)), "addcmul"))
    lines = [line.strip() for line in page.splitlines()]
    assert len(lines) <= 45, page
    at = lines.index("line 0")
    assert lines[at : at + 9] == script and "the smallest: 2 elements" in lines[at - 1] + lines[at - 2]
    assert any(line.startswith("exceeds-bound: addcmul mine.py:f out-of-place cpu float16") for line in lines), page
    assert any(line.startswith("exceeds-bound: 10 more cells of mine.py:f") for line in lines), page
    page = printed(kernel_page(Report.model_validate(report_of(mine[0])), "addcmul"))
    assert "and in special, overflow" in map(str.strip, page.splitlines())


@pytest.mark.parametrize("failing", [True, False])
def test_the_worst_element_of_what_fails_is_told_once(failing: bool) -> None:
    """By the line of its region where one exceeds, else, as where its other calls fail, as the worst."""
    regions = {"normal": region(status="exceeds-bound" if failing else "passed", worst=[worst_at(17)])}
    calls = {"status": "unsteady", "reason_kind": "calls", "reason": "the smallest: 2 elements"}
    calls["calls"] = {"made": 9, "different": ["2 elements"], "script": []}
    one = cell_of(regions, lowering="mine.py:f", **({} if failing else calls))
    page = printed(kernel_page(Report.model_validate(report_of(one)), "addcmul"), 300)
    assert page.count("worst mine.py:f") == (0 if failing else 1), page
    assert page.count(" -> ") == 1


def test_an_element_of_a_wrong_class_is_shown_beside_the_largest_error() -> None:
    """Which tells nothing of a NaN in place of a number."""
    found = [worst_at(17), worst_at(3), worst_at(9, error_class="nan_mismatch", output="nan:0x7fc00000")]
    one = cell_of({"normal": region(status="exceeds-bound", worst=found)}, lowering="mine.py:f")
    page = printed(kernel_page(Report.model_validate(report_of(one)), "addcmul"), 300)
    assert "0x1.11p+0 -> 0x1p+1" in page and "0x1.9p+0 -> nan:0x7fc00000" in page and "0x1.3p+0" not in page


def test_each_lowering_that_fails_is_told_with_a_reason() -> None:
    """However many there are; the first ones with an element too."""
    mine = [
        cell_of({"normal": region(status="exceeds-bound")}, lowering=f"mine.py:f{k}", spelling=spelling)
        for k in range(20)
        for spelling in ("out-of-place", "tail")
    ]
    page = printed(kernel_page(Report.model_validate(report_of(*mine)), "addcmul"))
    for k in range(20):
        told = re.findall(rf"^exceeds-bound: addcmul mine\.py:f{k} .*(?:\n.+)?in normal", page, re.M)
        assert len(told) == 1, page
