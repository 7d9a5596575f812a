"""`verify compare`: alignment, the kind of each difference and its place, refusals, exchange with another machine."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_reports import COUNTS, cell, error, not_run, report
from verify.cli import commands
from verify.facts.kernel import NothingToCompare, UsageError
from verify.inputs import domains
from verify.reports import compare, exchange, store, terminal
from verify.reports.blocks import Page, Table
from verify.reports.compare import KINDS, Comparison, Source, facts_of
from verify.reports.compare_page import compare_page
from verify.reports.schema import Report

CLEAN = dict.fromkeys(COUNTS, 0) | {"correct": 1000}
CHUNKS = ["0" * 16, "1" * 16, "2" * 16, "3" * 16]

#: The kind of the same row with the two reports exchanged.
MIRRORED = {kind: kind for kind in KINDS} | {
    "new failure": "failure resolved",
    "failure resolved": "new failure",
    "new deviation": "deviation resolved",
    "deviation resolved": "new deviation",
    "more mismatches": "fewer mismatches",
    "fewer mismatches": "more mismatches",
    "larger maximum": "smaller maximum",
    "smaller maximum": "larger maximum",
}


def clean(**changes: Any) -> dict[str, Any]:
    """A cell of 1000 correct elements, without a bound unless given."""
    measured = error(**CLEAN, max_ulp=changes.pop("max_ulp", 0.5), range=0)
    return cell(**{"error": measured, "bound": None, "against_eager": None, **changes})


def source(*cells: dict[str, Any], file: str = "a.json", **changes: Any) -> Source:
    parsed = Report.model_validate(report(*cells, **changes))
    facts = tuple(map(facts_of, parsed.cells))
    return Source(file, parsed.environment, parsed.profile, parsed.seed, facts, {})


def versus(a: dict[str, Any], b: dict[str, Any]) -> compare.Aligned:
    """The row of one cell in two reports, whether it could be compared or not."""
    left, right = source(a).cells[0], source(b).cells[0]
    return compare.aligned(left.place, (left, right))


def written(folder: Path, name: str, *cells: dict[str, Any], **changes: Any) -> str:
    path = folder / name
    store.write(Report.model_validate(report(*cells, **changes)), path)
    return str(path)


def chip(name: str, torch: str = "2.13.0", backend: str = "cuda", **facts: Any) -> dict[str, Any]:
    return {"environment": {backend: {"backend": backend, "chip": name, "torch": torch, **facts}}}


def printed(page: Page, width: int = 80) -> str:
    file = io.StringIO()
    terminal.print_page(page, file, width)
    return file.getvalue()


# One pair of cells

NONE = {"kind": "none", "size": 0, "seed": 0, "digest": ""}
VIOLATION = clean(
    inputs=0, error=error(**dict.fromkeys(COUNTS, 0), range=0, histogram={}), domain={**NONE, "size": 1000}
)
BOUND = {"value": 2.0, "metric": "scaled_ulp", "source": "s"}


def shared(measured: float, source: str = "s") -> dict[str, Any]:
    return clean(bound={"value": 1.0, "metric": "share", "source": source, "measured": measured})


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        (clean(), clean(), "equal"),
        (clean(), clean(timing={"kernel_s": 9.0}, reason="x", flags={"a": 1}), "equal"),
        (clean(), clean(reason="known deviation: x"), "new deviation"),
        (clean(reason="known deviation: x"), clean(status="exceeds-bound", reason="r"), "new failure"),
        (clean(reason="known deviation: x"), clean(reason="known deviation: y"), "equal"),
        (clean(), clean(status="exceeds-bound", reason="r"), "new failure"),
        (clean(), {**not_run(reason="crashed"), "status": "error"}, "new failure"),
        (clean(), {**not_run(reason="r", domain={**NONE, "size": 16}), "status": "error"}, "not compared"),
        (clean(), {**not_run(reason="r", domain=NONE), "status": "error"}, "new failure"),
        (clean(status="exceeds-bound", reason="r"), clean(status="oracle-violation", reason="r"), "new failure"),
        (clean(), clean(error=error(**CLEAN | {"correct": 999, "nan_mismatch": 1}, range=0)), "more mismatches"),
        (clean(), clean(error=error(**CLEAN | {"correct": 999, "flushed": 1}, range=0)), "more mismatches"),
        (clean(), clean(error=error(**CLEAN | {"correct": 999, "faithful": 1}, max_ulp=0.5, range=0)), "equal"),
        (clean(), clean(max_ulp=0.5000000000000001), "equal"),  # of the same bits: another enclosure's radius
        (clean(), clean(max_ulp=0.5 + 2.0**-29), "larger maximum"),
        (clean(), clean(max_ulp=0.5000000000000001, digest="cd34"), "larger maximum"),
        (clean(), clean(formula={"identified": "a+b", "mismatches": {}}), "other formula"),
        (clean(), clean(formula={"identified": None, "mismatches": {}}), "other formula"),
        (clean(), clean(formula=None), "equal"),
        (clean(), clean(digest="cd34"), "other bits"),
        (clean(), clean(digest=""), "equal"),
        # a failure comes before a maximum, a maximum before a formula, a formula before bits
        (clean(), clean(status="exceeds-bound", reason="r", max_ulp=9.0, digest="0"), "new failure"),
        (clean(), clean(max_ulp=9.0, formula={"identified": "a+b", "mismatches": {}}, digest="0"), "larger maximum"),
        (clean(), clean(formula={"identified": "a+b", "mismatches": {}}, digest="0"), "other formula"),
        # what got worse is never listed under what got better, whichever way one looks
        (
            clean(error=error(**CLEAN | {"correct": 999, "inf_mismatch": 1}, range=0)),
            clean(error=error(**CLEAN | {"correct": 999, "nan_mismatch": 1}, range=0)),
            "more mismatches",
        ),
        (
            cell(bound=BOUND),
            cell(bound=BOUND, error=error(max_scaled_ulp=9.0, nan_mismatch=0, correct=901)),
            "larger maximum",
        ),
        (cell(bound=BOUND, status="exceeds-bound", reason="r"), cell(bound=BOUND, digest="0"), "failure resolved"),
        # the bound's metric decides where both have it, ulp where they do not
        (cell(bound=BOUND), cell(bound=BOUND, error=error(max_ulp=9.0)), "equal"),
        (cell(bound=BOUND), cell(bound=BOUND, error=error(max_scaled_ulp=9.0)), "larger maximum"),
        (cell(bound=BOUND), cell(bound={**BOUND, "metric": "ulp"}, error=error(max_scaled_ulp=9.0)), "equal"),
        (cell(bound=BOUND), cell(bound=None, error=error(max_ulp=9.0)), "larger maximum"),
        (cell(bound=BOUND), cell(bound={**BOUND, "truth": "rounded"}, error=error(max_ulp=9.0)), "larger maximum"),
        (cell(bound=BOUND), cell(bound={**BOUND, "truth": "rounded"}), "equal"),
        # shares are comparable only of one bound
        (shared(0.25), shared(0.5), "larger maximum"),
        (shared(0.25), shared(0.5, source="another algorithm"), "equal"),
        # an oracle violation has measured nothing
        (clean(), {**VIOLATION, "status": "oracle-violation", "reason": "r"}, "new failure"),
        # inputs
        (clean(), clean(domain={**clean()["domain"], "digest": "0100"}), "not compared"),
        (clean(), clean(domain={**clean()["domain"], "size": 999}), "not compared"),
        (clean(), clean(domain={**clean()["domain"], "digest": ""}), "not compared"),
        (clean(), clean(domain={**clean()["domain"], "seed": 7}), "equal"),  # the same bits all the same
        (clean(), not_run(), "one side only"),
        (not_run(), not_run(), "not run"),
    ],
)
def test_the_kind_of_a_difference_and_of_its_mirror_image(a: Any, b: Any, kind: str) -> None:
    there, back = versus(a, b), versus(b, a)
    assert there.kind == kind
    if there.pairs[1] is None:
        assert back.kind == MIRRORED[kind]
    else:
        assert back.pairs[1] is not None
        assert {*back.pairs[1].kinds} == {MIRRORED[one] for one in there.pairs[1].kinds}


def test_a_declared_flush_is_no_mismatch() -> None:
    flushed = error(**CLEAN | {"correct": 999, "flushed": 1}, max_ulp=0.5, range=0)
    assert versus(clean(), clean(error=flushed, ftz=True)).kind == "equal"


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_mismatches_are_counted_against_the_truth_of_the_maximum(found: list[int]) -> None:
    """Overflow to an infinity may be right for the scalar as the kernel takes it, and wrong for it as it was given."""

    def one(exact: int, rounded: int, truth: str) -> dict[str, Any]:
        def wrong(count: int) -> dict[str, Any]:
            return error(**CLEAN | {"correct": 1000 - count, "inf_mismatch": count}, max_ulp=0.5, range=0)

        bound = {**BOUND, "metric": "ulp", "truth": truth}
        return clean(bound=bound, error=wrong(exact), error_rounded_scalar=wrong(rounded))

    def expected(a: int, b: int) -> str:
        return "equal" if a == b else "more mismatches" if b > a else "fewer mismatches"

    a, b, c, d = found
    for truth, (before, after) in {"exact": (a, b), "rounded": (c, d)}.items():
        row = versus(one(a, c, truth), one(b, d, truth))
        assert (row.kind, row.truth) == (expected(before, after), truth)
        told = [side["mismatches"] for side in compare.row_json(row)["sides"]]
        assert told == [{"inf_mismatch": count} if count else {} for count in (before, after)]
        if before != after:
            found_ = compare.compare([source(one(a, c, truth)), source(one(b, d, truth), file="b.json")])
            table = compare_page(found_).blocks[0]
            assert isinstance(table, Table)
            shown = table.rows[1].cells[2:4]
            assert all(f"{n} inf-mismatch" in text for n, text in zip((before, after), shown, strict=True))
    # bounds of different truths: both sides as the scalars were given
    assert versus(one(a, c, "exact"), one(b, d, "rounded")).kind == expected(a, b)


def test_a_refusal_says_what_differs() -> None:
    def why(**domain: Any) -> str:
        return versus(clean(), clean(domain={**clean()["domain"], **domain})).reason

    assert why(size=16, seed=3) == "the inputs differ: strata of 1000, seed 0 against strata of 16, seed 3"
    assert why(digest="ffff").endswith("strata of 1000, seed 0 on both sides, digest 00ff against ffff")
    assert why(digest="") == "the inputs may differ: a report has no digest of them"


# Bits


def large(chunks: list[str], digest: str = "ab12", size: int = 4 << 20) -> dict[str, Any]:
    return clean(chunks=chunks, digest=digest, domain={**clean()["domain"], "size": size})


@pytest.mark.parametrize(
    ("a", "b", "bits"),
    [
        (large(CHUNKS), large(CHUNKS), (0, 4, None)),
        (large(CHUNKS), large([*CHUNKS[:2], "f" * 16, CHUNKS[3]], "cd34"), (1, 4, 2)),
        (large(CHUNKS), large(["f" * 16, *CHUNKS[1:3], "f" * 16], "cd34"), (2, 4, 0)),
        (large([]), large(CHUNKS), (0, None, None)),
        (large([]), large(CHUNKS, "cd34"), (None, None, None)),  # a trimmed report
        (large(CHUNKS[:3]), large(CHUNKS, "cd34"), (None, None, None)),
        (clean(), clean(digest="cd34"), (1, 1, 0)),  # a domain of one chunk needs no list
        (large([], size=1 << 20), large([], "cd34", size=1 << 20), (1, 1, 0)),
        (large([], size=(1 << 20) + 1), large([], "cd34", size=(1 << 20) + 1), (None, None, None)),
    ],
)
def test_share_and_first_of_the_chunks_whose_bits_differ(a: Any, b: Any, bits: tuple[Any, ...]) -> None:
    for one in (versus(a, b).pairs[1], versus(b, a).pairs[1]):
        assert one is not None and one.bits is not None
        assert (one.bits.differing, one.bits.chunks, one.bits.first) == bits
        assert one.kind == ("equal" if one.bits.equal else "other bits")


def test_only_a_domain_of_elements_has_as_many_outputs_as_inputs() -> None:
    problem = {**clean()["domain"], "kind": "256 of 8388608"}
    one = versus(clean(domain=problem), clean(domain=problem, digest="cd34")).pairs[1]
    assert one is not None and one.bits == compare.Bits()


def test_means_and_misrounded_elements_are_not_called_equal() -> None:
    """The gate judges both; here neither is looked at."""
    more = clean(error=error(**{**CLEAN, "correct": 900, "faithful": 100}, max_ulp=0.5, range=0, mean_ulp=0.4))
    found = compare.compare([source(clean()), source(more, file="b.json")])
    assert found.counts == {"equal": 1}
    assert "1 of 1 compared cell equal in maxima, mismatches, formula and bits" in printed(compare_page(found))


def test_a_report_whose_digests_contradict_each_other_is_refused() -> None:
    assert "contradicts itself" in versus(large(CHUNKS), large([*CHUNKS[:3], "f" * 16])).reason
    assert "contradicts itself" in versus(large(CHUNKS), large(CHUNKS, "cd34")).reason


def test_a_chunk_is_what_the_walk_digests() -> None:
    assert compare.CHUNK == domains.CHUNK


# Whole reports

kernels = st.lists(st.sampled_from(["add", "pow", "exp", "lerp"]), min_size=1, max_size=4, unique=True)


@st.composite
def sides(draw: st.DrawFn, kernel: str) -> dict[str, Any]:
    """A cell in one of few states, so that two drawn ones are often equal in parts."""
    state = draw(st.sampled_from(["ran", "ran", "ran", "ran", "not-run", "error"]))
    domain = {"kind": "strata", "size": draw(st.sampled_from([1000, 1000, 3 << 20])), "seed": 0, "digest": "00ff"}
    if state == "not-run":
        return not_run(kernel=kernel)
    if state == "error":
        return {**not_run(kernel=kernel), "status": "error", "reason": "r", "domain": {**domain, "digest": ""}}
    wrong = draw(st.sampled_from([{}, {}, {"nan_mismatch": 2}, {"zero_sign": 2, "nan_mismatch": 1}]))
    counts = CLEAN | {"correct": 1000 - sum(wrong.values())} | wrong
    measured = error(
        **counts,
        range=0,
        max_ulp=draw(st.sampled_from([0.0, 0.5, 1.5])),
        max_scaled_ulp=draw(st.sampled_from([0.5, 2])),
    )
    chunks = draw(st.sampled_from([[], CHUNKS[:3], [CHUNKS[0], "f" * 16, CHUNKS[2]]]))
    return cell(
        kernel=kernel,
        status=draw(st.sampled_from(["passed", "passed", "exceeds-bound", "oracle-violation"])),
        error=measured,
        bound=draw(st.sampled_from([None, BOUND, {**BOUND, "metric": "ulp"}])),
        domain={**domain, "digest": draw(st.sampled_from(["00ff", "00ff", "00ff", "0100"]))},
        formula=draw(st.sampled_from([None, {"identified": "a+b", "mismatches": {}}, cell()["formula"]])),
        chunks=chunks,
        digest={(): draw(st.sampled_from(["", "d0", "d1"])), tuple(CHUNKS[:3]): "d0"}.get(tuple(chunks), "d1"),
        against_eager=None,
    )


some_cells = kernels.flatmap(lambda names: st.tuples(*(sides(name) for name in names)))


def comparison(*sources: Source) -> Comparison | None:
    try:
        return compare.compare(sources)
    except NothingToCompare:
        return None


@given(some_cells)
def test_comparing_a_report_with_itself_is_empty(cells: Sequence[dict[str, Any]]) -> None:
    found = comparison(source(*cells), source(*cells))
    if found is None:
        assert all(one["status"] == "not-run" for one in cells)
        return
    assert set(found.counts) <= {"equal", "not run"}
    assert not any(row.telling for row in found.rows)
    page = compare_page(found)
    assert not any(isinstance(block, Table) for block in page.blocks)
    assert json.loads("".join(compare.json_lines(found, every=False)))["cells"] == []


@given(some_cells, some_cells)
def test_comparing_the_other_way_round_is_the_mirror_image(a: Any, b: Any) -> None:
    there, back = comparison(source(*a), source(*b)), comparison(source(*b), source(*a))
    assert (there is None) == (back is None)
    if there is None or back is None:
        return
    mirrored = {row.place: row for row in back.rows}
    assert mirrored.keys() == {row.place for row in there.rows}
    for row in there.rows:
        other = mirrored[row.place]
        for one, mirror in zip(row.pairs, other.pairs, strict=True):
            assert (one is None) == (mirror is None)
            if one is not None and mirror is not None:
                assert mirror.kinds == tuple(MIRRORED[kind] for kind in one.kinds)
        if row.pairs[1] is None:
            assert other.kind == MIRRORED[row.kind]
        assert other.values == row.values[::-1]
        assert (other.metric, other.truth) == (row.metric, row.truth)
        assert [one.bits for one in other.pairs if one] == [one.bits for one in row.pairs if one]
    for kind in ("equal", "not compared", "one side only", "not run"):
        assert there.counts.get(kind) == back.counts.get(kind)
    assert there.compared == back.compared


@given(some_cells, some_cells, some_cells)
def test_rows_are_in_the_promised_order_and_no_cell_is_lost(a: Any, b: Any, c: Any) -> None:
    sources = [source(*cells) for cells in (a, b, c)]
    found = comparison(*sources)
    if found is None:
        return
    order = [KINDS.index(row.kind) for row in found.rows]
    assert order == sorted(order)
    assert [len(row.cells) for row in found.rows] == [3] * len(found.rows)
    for index, one in enumerate(sources):
        assert {row.cells[index] for row in found.rows if row.cells[index]} == set(one.cells)
    for row in found.rows:
        for cell_, value in zip(row.cells, row.values, strict=True):
            if cell_ is not None and value is not None:
                assert value == (cell_.value if row.metric == cell_.metric else cell_.max_ulp)


def test_within_a_kind_the_worst_comes_first() -> None:
    base = {name: clean(kernel=name, max_ulp=1.0) for name in ("a", "b", "c", "d", "e", "f")}
    worse = {
        "a": clean(kernel="a", max_ulp=2.0),
        "b": clean(kernel="b", max_ulp=1.5),
        "c": clean(kernel="c", max_ulp=64.0),
        "d": clean(kernel="d", status="exceeds-bound", reason="r"),
        "e": clean(kernel="e", status="oracle-violation", reason="r"),
        "f": clean(kernel="f"),
    }
    found = compare.compare([source(*base.values()), source(*worse.values(), file="b.json")])
    assert [row.place.kernel for row in found.rows] == ["e", "d", "c", "a", "b", "f"]
    few, many = large([*CHUNKS[:3], "f" * 16], "d1"), large(["f" * 16] * 4, "d2")
    found = compare.compare(
        [
            source(*({**large(CHUNKS), "kernel": name} for name in "ab")),
            source({**few, "kernel": "a"}, {**many, "kernel": "b"}),
        ]
    )
    assert [row.place.kernel for row in found.rows] == ["b", "a"]


# Columns


def test_reports_of_other_backends_are_aligned_across_them() -> None:
    cells = [
        [clean(backend="cuda", max_ulp=0.75), clean(backend="cuda", lowering="eager")],
        [clean(backend="rocm", max_ulp=1.5), clean(backend="rocm", lowering="eager", digest="cd34")],
        [clean(backend="mps", max_ulp=0.5)],
    ]
    chips = [chip("NVIDIA H200"), chip("AMD Instinct MI300X", backend="rocm"), chip("Apple M4", "2.12.1", "mps")]
    found = compare.compare(
        [source(*c, file=f"{n}.json", **e) for n, (c, e) in enumerate(zip(cells, chips, strict=True))]
    )
    assert [column.label for column in found.columns] == [
        "NVIDIA H200, torch 2.13.0",
        "AMD Instinct MI300X, torch 2.13.0",
        "Apple M4, torch 2.12.1",
    ]
    assert [(row.place.lowering, row.kind, row.values) for row in found.rows] == [
        ("inductor", "larger maximum", (0.75, 1.5, 0.5)),
        ("eager", "other bits", (0.5, 0.5, None)),
    ]
    shown = printed(compare_page(found), 200)
    head = next(line for line in shown.splitlines() if line.startswith("cell"))
    assert re.findall("NVIDIA H200|MI300X|Apple M4|other bits", " ".join(shown.split("───")[0].split())) and head
    assert "cpu" not in shown  # no column for a backend of which no report is given


def test_reports_of_the_same_backends_keep_them_apart() -> None:
    pair = [clean(), clean(backend="cuda")]
    found = compare.compare([source(*pair), source(*pair, file="b.json")])
    assert [row.place.backend for row in found.rows] == ["cpu", "cuda"]
    assert found.counts == {"equal": 2}


def test_each_backend_of_a_report_is_a_column_where_the_reports_backends_differ() -> None:
    both, one = [clean(), clean(backend="cuda", digest="cd34")], [clean(digest="cd34")]
    found = compare.compare([source(*both), source(*one, file="b.json")])
    assert [(column.source, column.backends) for column in found.columns] == [
        (0, ("cpu",)),
        (0, ("cuda",)),
        (1, ("cpu",)),
    ]
    assert len(found.rows) == 1
    assert len(compare.compare([source(*both)]).columns) == 2  # one report's backends with one another
    with pytest.raises(UsageError, match=r"'a\.json' alone holds one backend, cpu; give two"):
        compare.compare([source(clean())])


@pytest.mark.parametrize(
    ("environments", "labels"),
    [
        ((chip("X"), chip("Y")), ["X, torch 2.13.0", "Y, torch 2.13.0"]),
        ((chip("X"), chip("X", "2.14")), ["X, torch 2.13.0", "X, torch 2.14"]),
        (
            (chip("X", capability="AVX2"), chip("X", capability="DEFAULT")),
            ["X, torch 2.13.0, AVX2", "X, torch 2.13.0, DEFAULT"],
        ),
        (
            (chip("X", triton="3.6"), chip("X", triton="3.7")),
            ["X, torch 2.13.0, triton 3.6", "X, torch 2.13.0, triton 3.7"],
        ),
        ((chip("X"), chip("X")), ["X, torch 2.13.0, 0.json", "X, torch 2.13.0, 1.json"]),
        (({"environment": {"cuda": 3}}, {"environment": {}}), ["cuda, 0.json", "cuda, 1.json"]),
    ],
)
def test_a_columns_label_is_its_device_and_what_tells_it_apart(environments: Any, labels: list[str]) -> None:
    sources = [source(clean(backend="cuda"), file=f"x/{n}.json", **env) for n, env in enumerate(environments)]
    assert [column.label for column in compare.compare(sources).columns] == labels


def test_labels_stay_unique_for_one_file_given_twice() -> None:
    labels = [column.label for column in compare.compare([source(clean())] * 3).columns]
    assert len(set(labels)) == 3


# Printing


def test_numbers_that_differ_never_print_the_same() -> None:
    found = compare.compare([source(clean(max_ulp=0.50000001)), source(clean(max_ulp=0.50000002))])
    table = next(block for block in compare_page(found).blocks if isinstance(block, Table))
    assert table.rows[1].cells[2] != table.rows[1].cells[3]


def test_spellings_that_agree_share_a_row_and_the_rest_are_named() -> None:
    names = ["out-of-place", "in-place", "_foreach_"]
    a = [clean(spelling=name) for name in names]
    agree = compare.compare([source(*a), source(*(clean(spelling=name, digest="d1") for name in names))])
    split = compare.compare(
        [source(*a), source(clean(spelling=names[0]), *(clean(spelling=n, digest="d1") for n in names[1:]))]
    )

    def first(found: Comparison) -> list[str]:
        table = next(block for block in compare_page(found).blocks if isinstance(block, Table))
        return [row.cells[0] for row in table.rows if not row.heading]

    assert first(agree) == ["addcmul inductor float32 value=0.3"]
    assert first(split) == ["addcmul inductor float32 value=0.3 (in-place, _foreach_)"]


def test_rows_beyond_the_limit_are_counted() -> None:
    cells = [clean(kernel=f"k{n}") for n in range(7)]
    found = compare.compare([source(*cells), source(*(dict(c, digest="d1") for c in cells))])
    shown = printed(compare_page(found, limit=3))
    assert "other bits: 7" in shown and "and 4 rows more:" in shown and "k2" in shown and "k3" not in shown
    whole = printed(compare_page(found))
    assert "k6" in whole and "more" not in whole


@pytest.mark.parametrize("width", [30, 80, 120])
def test_tables_fit_the_width(width: int) -> None:
    long = clean(max_ulp=35127296.00000799, lowering="triton-libdevice-nofuse", scalars={"value": 0.30000000000000004})
    sources = [
        source({**long, "backend": b, "digest": b}, file=f"{b}.json", **chip(f"Chip of {b}", backend=b))
        for b in ("cuda", "rocm", "mps")
    ]
    shown = printed(compare_page(compare.compare(sources)), width)
    assert "35130000" in shown.split()
    if width >= 80:
        assert max(len(line.rstrip()) for line in shown.splitlines()) <= width


# The command


def invoke(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = commands.main(["compare", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_difference_is_no_failure_and_is_written_where_asked(tmp_path: Path, capsys: Any) -> None:
    a = written(tmp_path, "a.json", clean(), clean(kernel="pow"))
    b = written(tmp_path, "b.json", clean(), clean(kernel="pow", status="exceeds-bound", reason="r", max_ulp=3.0))
    code, out, err = invoke(capsys, a, b, "--json", str(tmp_path / "c.json"), "--markdown", str(tmp_path / "c.md"))
    assert (code, err) == (0, "")
    assert "new failure: 1" in out and "1 of 2 compared cells equal" in out and "\x1b" not in out
    told = json.loads((tmp_path / "c.json").read_text())
    assert told["counts"] == {"new failure": 1, "equal": 1}
    assert [one["kernel"] for one in told["cells"]] == ["pow"]
    assert "**new failure: 1**" in (tmp_path / "c.md").read_text()
    code, out, err = invoke(capsys, a, b, "--all", "--json", "-")
    assert [one["kernel"] for one in json.loads(out)["cells"]] == ["pow", "addcmul"]
    assert "equal: 1" in err
    code, out, err = invoke(capsys, a, b, "--markdown", "-")
    assert out.startswith("**2 columns") and "new failure" in err
    code, out, _ = invoke(capsys, a, b, "--only", "p*", "--only", "exp*", "--lowering", "ind*", "--dtype", "float32")
    assert code == 2  # exp* fits nothing
    code, out, _ = invoke(capsys, a, b, "--only", "p*", "--lowering", "ind*", "--dtype", "float32")
    assert code == 0 and "addcmul" not in out and "pow" in out


def test_nothing_in_common_is_exit_3(tmp_path: Path, capsys: Any) -> None:
    a = written(tmp_path, "a.json", clean())
    for name, other, why in (
        ("b.json", clean(kernel="pow"), "2 cells: one side only"),
        ("c.json", clean(domain={**clean()["domain"], "digest": "ffff"}), "1 cell: the inputs differ"),
        ("d.json", not_run(backend="cpu"), "1 cell: one side only"),
    ):
        code, out, err = invoke(capsys, a, written(tmp_path, name, other))
        assert (code, out) == (3, "")
        assert err.startswith("verify: nothing to compare") and why in err and err.count("\n") == 1
    assert invoke(capsys, a, written(tmp_path, "e.json"))[0] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 3, "cells": []}', "schema 3; this version reads schema 1 or 2; upgrade"),
        ('{"schema": 0}', "schema 0; this version reads schema 1 or 2"),
        ("", "not a complete JSON file"),
        ('{"schema": 1, "cells": [', "not a complete JSON file"),
    ],
)
def test_what_is_no_report_is_exit_2_and_named(text: str, message: str, tmp_path: Path, capsys: Any) -> None:
    a = written(tmp_path, "a.json", clean())
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    for order in ((a, str(bad)), (str(bad), a)):
        code, out, err = invoke(capsys, *order)
        assert (code, out) == (2, "")
        assert "bad.json" in err and message in err and err.count("\n") == 1


def test_duplicate_cells_a_huge_file_and_bad_options_are_exit_2(tmp_path: Path, capsys: Any) -> None:
    a = written(tmp_path, "a.json", clean())
    twice = tmp_path / "twice.json"
    lines = Path(a).read_text().splitlines()
    twice.write_text("\n".join([lines[0], lines[1] + ",", lines[1], lines[2]]))
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(1 << 30)  # sparse
    for arguments, message in (
        ((a, str(twice)), "repeats addcmul inductor"),
        ((a, str(huge)), "larger than 512 MiB"),
        ((a, str(tmp_path / "none.json")), "No such file"),
        ((a,), "give two reports"),
        ((a, a, "--only", "addcmull"), "unknown kernel in these reports 'addcmull'; did you mean addcmul"),
        ((a, a, "--lowering", "x*"), "unknown lowering in these reports"),
        ((a, a, "--dtype", "float23"), "unknown dtype 'float23'; did you mean"),
        ((a, a, "--dtype", "float64"), "unknown dtype in these reports 'float64'"),
        ((a, a, "--limit", "-1"), "--limit"),
        ((a, a, "--json", "-", "--markdown", "-"), "only one file"),
        ((a, a, "--json", "none/c.json"), "cannot write to 'none/c.json'"),
        ((a, a, "--exchange", "none/x.npz"), "cannot write to 'none/x.npz'"),
        ((a, a, "--exchange", "x.npz", "--exchange-from", "y.npz"), "give one of them"),
        ((), "A.json"),
    ):
        code, out, err = invoke(capsys, *arguments)
        assert (code, out) == (2, ""), arguments
        assert message in err and err.count("\n") == 1, err


HOSTILE = "\x1b[31mred\x1b]0;t\x07|<b>`x`</b>[l](http://x)\u202e"


def test_hostile_names_come_out_as_text_everywhere(tmp_path: Path, capsys: Any) -> None:
    names = {"kernel": HOSTILE, "lowering": HOSTILE, "spelling": HOSTILE, "scalars": {HOSTILE: 1.0}, "output": HOSTILE}
    formula = {"identified": HOSTILE, "mismatches": {}}
    a = written(tmp_path, "a.json", clean(**names, formula=formula), clean(), **chip(HOSTILE, backend="cpu"))
    b = written(
        tmp_path, "b.json", clean(**names, digest="d1"), clean(digest="d2"), **chip(HOSTILE + "2", HOSTILE, "cpu")
    )
    code, out, _ = invoke(capsys, a, b, "--markdown", str(tmp_path / "c.md"))
    assert code == 0
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out)
    assert "\\x1b[31mred\\x1b]0;t\\x07|<b>`x`</b>[l](http://x)\\u202e" in "".join(out.split())
    text = (tmp_path / "c.md").read_text()
    assert "<b>" not in text and "\x1b" not in text and "](" not in text and "http://" not in text


def test_compare_imports_neither_torch_nor_triton_nor_duckdb(tmp_path: Path) -> None:
    a = written(tmp_path, "a.json", clean())
    program = (
        "import sys; from verify.cli.commands import main; code = main(['compare', sys.argv[1], sys.argv[1]]); "
        "assert not {'torch', 'triton', 'duckdb', 'numpy', 'mpmath'} & sys.modules.keys(), "
        "{'torch', 'triton', 'duckdb', 'numpy', 'mpmath'} & sys.modules.keys(); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, a], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 compared cell equal" in done.stdout


# Reading cell by cell


def by_read(path: Path) -> list[Any]:
    return [facts_of(one) for one in store.read(path).cells]


LINES = "".join(store.lines(Report.model_validate(report(clean(), clean(kernel="b"), clean(kernel="c"))))).splitlines()


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines,
        lambda lines: [lines[0], "]}"],
        lambda lines: [lines[0].replace('"cells":[', '"cells": ['), *lines[1:]],
        lambda lines: [*lines, ""],
        lambda lines: [" ".join(lines)],  # another layout
        lambda lines: [json.dumps(json.loads("".join(lines)), indent=2)],
        lambda lines: ["\n".join(lines).replace(",\n", "\n,")],
        # broken
        lambda lines: lines[:-1],
        lambda lines: lines[:2],
        lambda lines: lines[:1],
        lambda lines: [*lines, "x"],
        lambda lines: [*lines[:-2], lines[-2] + ",", "]}"],
        lambda lines: [lines[0], lines[1].removesuffix(","), *lines[2:]],
        lambda lines: [lines[0], "", *lines[1:]],
        lambda lines: [*lines[:2], *lines[1:]],
        lambda lines: [lines[0], lines[1].replace('"status":"passed"', '"status":"fine"'), *lines[2:]],
        lambda lines: [lines[0].replace('"schema":1', '"schema":2'), *lines[1:]],
        lambda lines: [lines[0], "]}", "]}"],
    ],
)
def test_reading_cell_by_cell_is_reading(change: Callable[[list[str]], list[str]], tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("\n".join(change(list(LINES))))
    try:
        expected = by_read(path)
    except UsageError as error:
        with pytest.raises(UsageError, match=re.escape(str(error))):
            store.scan(path, facts_of)
        return
    head, found = store.scan(path, facts_of)
    assert found == expected
    assert head == store.read(path).model_copy(update={"cells": []})


def test_a_file_of_one_line_a_cell_is_never_held_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "r.json", clean(), clean(kernel="b"))
    monkeypatch.setattr(store, "read", lambda path: pytest.fail("read whole"))
    assert len(store.scan(path, facts_of)[1]) == 2


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    a = written(tmp_path, "a.json", clean())
    os.mkfifo(tmp_path / "pipe")
    text = Path(a).read_text().replace("\n", " \n \n")  # not the layout that is read cell by cell
    command = [sys.executable, "-m", "verify", "compare", str(tmp_path / "pipe"), a]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            (tmp_path / "pipe").write_text(text)
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()  # where it waits for a second writer
    assert process.returncode == 0 and "1 of 1 compared cell equal" in out


# Exchange: the file

ENTRY = {
    "kernel": "add", "lowering": "eager", "spelling": "out-of-place", "backend": "cpu", "dtype": "float32",
    "scalars": {"alpha": 1.0}, "output": "", "format": "float32", "chunk": 0, "elements": 3, "digest": "0" * 16,
}  # fmt: skip


def archive(path: Path, header: Any, **arrays: Any) -> Path:
    told = header if isinstance(header, np.ndarray) else np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez_compressed(path, header=told, **arrays)
    return path


def head(*entries: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"schema": 1, "what": "ulproof exchange", "device": "d", "entries": list(entries), **changes}


def test_an_exchange_file_reads_back(tmp_path: Path) -> None:
    patterns = np.array([0, 0x7FC00001, 0xFFFFFFFF], dtype=np.uint32)
    size = exchange.write(tmp_path / "x.npz", "d", [(exchange.Entry.model_validate(ENTRY), patterns)])
    assert size == (tmp_path / "x.npz").stat().st_size
    header, outputs = exchange.read(tmp_path / "x.npz")
    assert header.device == "d" and [entry.model_dump() for entry in header.entries] == [ENTRY]
    assert outputs(0).tolist() == patterns.tolist()
    with np.load(tmp_path / "x.npz", allow_pickle=False) as found:  # readable without us
        assert found["chunk0"].tolist() == patterns.tolist()


def test_what_is_no_exchange_file_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    good = np.zeros(3, dtype=np.uint32)

    def refused(message: str, entry: bool = False) -> None:
        read = (lambda: exchange.read(path)[1](0)) if entry else (lambda: exchange.read(path))
        with pytest.raises(UsageError, match=message) as caught:
            read()
        assert "\n" not in str(caught.value) and "x.npz" in str(caught.value)

    refused("No such file")
    path.write_bytes(b"not a zip")
    refused("not a zip file")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("other.npy", b"x")
    refused("header")
    archive(path, head(schema=2))
    refused("schema 2; this version reads 1; upgrade")
    archive(path, head(what="else"))
    refused(r"not an exchange file of `verify compare`: \$\.what")
    archive(path, [1])
    refused("not an exchange file")
    archive(path, np.array([{"a": 1}], dtype=object))
    refused(r"header is \|O")  # a pickle is not opened
    for change in (
        {"format": "int8"},
        {"digest": "xyz"},
        {"elements": 0},
        {"elements": 1 << 21},
        {"chunk": -1},
        {"more": 1},
    ):
        archive(path, head(ENTRY | change), chunk0=good)
        refused("entries")
    archive(path, head(ENTRY))
    refused("chunk0", entry=True)
    for array in (good[:2], good.reshape(1, 3), good.astype(np.uint16), good.astype(np.float32), good.astype(">u4")):
        archive(path, head(ENTRY), chunk0=array)
        refused("chunk0", entry=True)
    archive(path, head(ENTRY), chunk0=np.zeros(1 << 24, dtype=np.uint32))  # 64 MiB in 64 KiB
    refused("chunk0 has 67108992 bytes; expected 4108 at most", entry=True)
    archive(path, head(ENTRY), chunk0=good)
    path.write_bytes(path.read_bytes()[:-40])
    refused("not a zip file")
    archive(path, head(ENTRY), chunk0=good)
    with zipfile.ZipFile(path, "w") as file:  # an array that says it is longer than it is
        file.writestr("header.npy", npy(np.frombuffer(json.dumps(head(ENTRY)).encode(), dtype=np.uint8)))
        file.writestr("chunk0.npy", npy(good)[:-4])
    refused("buffer", entry=True)


def npy(array: Any) -> bytes:
    data = io.BytesIO()
    np.save(data, array)
    return data.getvalue()


# Exchange: two CPUs that truly differ, by ATEN_CPU_CAPABILITY


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with here.json, of this process, there.json of a CPU without vector instructions, and its x.npz."""
    folder = tmp_path_factory.mktemp("machines")
    run = ["kernel", "addcmul", "--dtype", "float32", "--lowering", "eager", "--backend", "cpu", "--profile", "quick"]
    run += ["--spelling", "out-of-place", "--json"]
    assert commands.main([*run, str(folder / "here.json")]) == 0
    program = (
        "import json, sys; from verify.cli.commands import main; "
        "sys.exit(main(json.loads(sys.argv[1])) or main(json.loads(sys.argv[2])))"
    )
    there = [*run, str(folder / "there.json")]
    other = ["compare", str(folder / "there.json"), str(folder / "here.json"), "--exchange", str(folder / "x.npz")]
    command = [sys.executable, "-c", program, json.dumps(there), json.dumps(other)]
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    reports = [store.read(folder / name) for name in ("here.json", "there.json")]
    here, other_ = ({one.digest for one in one_report.cells} for one_report in reports)
    if here == other_:
        pytest.skip(f"this CPU computes the same bits without vector instructions: {reports[0].environment['cpu']}")
    for made in reports:
        assert isinstance(made.environment["created"], int)  # what `verify history` orders by
    assert done.returncode == 0, done.stderr
    assert "exchange: " in done.stdout and "written to" in done.stdout
    return folder


def test_two_machines_name_the_elements_on_which_they_differ(machines: Path, capsys: Any, monkeypatch: Any) -> None:
    import torch

    from verify.facts.formats import FORMATS
    from verify.facts.kernel import load
    from verify.walk import recompute

    monkeypatch.setattr(recompute, "SHOWN", 400)  # the first ones are zeros of other signs, equally far
    here, there, file = (str(machines / name) for name in ("here.json", "there.json", "x.npz"))
    code, out, err = invoke(capsys, here, there, "--exchange-from", file, "--json", "-")
    assert code == 0, err
    told = json.loads(out)["exchange"]
    assert told["left_out"] == {} and told["chunks"] == told["cells"] == len(told["findings"]) > 0
    assert "outputs differ in chunk 0" in " ".join(err.split()) and "verify explain addcmul" in err
    header, outputs = exchange.read(file)
    fmt, facts, seen = FORMATS["float32"], load("addcmul"), set()
    for number, (one, entry) in enumerate(zip(told["findings"], header.entries, strict=True)):
        value = entry.scalars["value"]
        meant = float(np.float32(value)) if one["truth"] == "rounded" else value
        domain = domains.domain_of(facts, fmt, {"value": value}, "quick", 0)
        a, b, c = domain.chunk(0, "cpu")
        mine = torch.addcmul(a, b, c, value=value)
        theirs = torch.from_numpy(outputs(number).view("<i4").copy()).view(torch.float32)
        differ = (mine.view(torch.int32) != theirs.view(torch.int32)) & ~(mine.isnan() & theirs.isnan())
        indices = differ.nonzero()[:, 0].tolist()
        assert one["differing"] == len(indices) and one["elements"] == len(mine)
        assert [element["index"] for element in one["first"]] == indices[:400]
        for element in one["first"]:
            index = element["index"]
            assert element["inputs"] == [fmt.hex(bits) for bits in domain.replay(index)]
            assert fmt.parse(element["own"]) == int(mine.view(torch.int32)[index]) & 0xFFFFFFFF
            assert fmt.parse(element["other"]) == int(theirs.view(torch.int32)[index]) & 0xFFFFFFFF
            if {element["own"], element["other"]} & {"nan", "inf", "-inf"}:
                continue
            exact = sum_exactly(fmt, element["inputs"], meant)
            distances = [abs(fmt.fraction(fmt.parse(element[k])) - exact) for k in ("own", "other")]
            nearer = "tied" if distances[0] == distances[1] else "own" if distances[0] < distances[1] else "other"
            assert element["closer"] == nearer
            seen.add(nearer)
            assert float(element["exact"]) == pytest.approx(float(exact), rel=1e-15)
    assert seen == {"own", "other", "tied"}


def sum_exactly(fmt: Any, inputs: list[str], value: float) -> Any:
    from fractions import Fraction

    a, b, c = (fmt.fraction(fmt.parse(text)) for text in inputs)
    return a + Fraction(value) * b * c


def test_a_machine_that_no_longer_gives_its_reports_bits_says_so(machines: Path, capsys: Any, tmp_path: Path) -> None:
    here, there, file = (str(machines / name) for name in ("here.json", "there.json", "x.npz"))
    code, out, err = invoke(capsys, there, here, "--exchange", str(tmp_path / "y.npz"))
    assert (code, out) == (3, "") and "stale: this machine no longer gives the bits" in err
    assert not (tmp_path / "y.npz").exists()
    code, _, err = invoke(capsys, there, here, "--exchange-from", file)
    assert code == 3 and "no report given but the first has these outputs" in err
    code, _, err = invoke(capsys, here, here, "--exchange", str(tmp_path / "y.npz"))
    assert code == 3 and "nothing to exchange" in err


def test_a_damaged_exchange_file_names_no_element(machines: Path, capsys: Any, tmp_path: Path) -> None:
    with np.load(machines / "x.npz", allow_pickle=False) as found:
        arrays = {name: found[name].copy() for name in found.files}
    arrays["chunk0"][-1] ^= 1  # no NaN, all of which have one digest
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    here, there = (str(machines / name) for name in ("here.json", "there.json"))
    code, out, _ = invoke(capsys, here, there, "--exchange-from", str(tmp_path / "x.npz"), "--json", "-")
    told = json.loads(out)["exchange"] if out else None
    if len(arrays) == 2:  # the header and this one
        assert code == 3
    else:
        assert told is not None and list(told["left_out"]) == [
            "the file is damaged: outputs do not have the digest that it gives them"
        ]


def test_the_budget_of_an_exchange_file_is_kept_and_told(machines: Path, capsys: Any, monkeypatch: Any) -> None:
    from verify.walk import recompute

    monkeypatch.setattr(exchange, "BYTES_TAKEN", 1)
    here, there = (str(machines / name) for name in ("here.json", "there.json"))
    found = compare.compare(compare.load([here, there]))
    told = recompute.write(found, machines / "small.npz")
    wanted = exchange.wanted(found)
    assert told.cells == 1 and len(wanted) > 1
    assert [count for _, count in told.left_out] == [len(wanted) - 1]
    assert "--only" in told.left_out[0][0]
