"""`verify.sweep` on the host: the same tallies as `verify.run.walk`, whatever thread judges, and each worst case found.

Chunks of 2^14 elements are 60 times as many and as quick; they share one exponent as those of 2^20 do.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verify import backends, check, domains, kernel, run, sweep
from verify.check import Checked, Checker
from verify.cli import main
from verify.decide import bound_of
from verify.formats import FORMATS
from verify.identify import Identification
from verify.lowerings import EAGER, Lowering, Target
from verify.numbers.ball import Ball64
from verify.numbers.predicates import Answer, Predicates
from verify.run import Case, Job, Selection, fill, walk
from verify.tally import Tally, Worst

Call = Callable[..., torch.Tensor]
SMALL = 1 << 14
F32, F16 = FORMATS["float32"], FORMATS["float16"]
ONE = 0x3F800000
#: Patterns whose chunks are walked: zero and subnormals, normal edges, 1, results that over- and underflow, the
#: largest finite, infinity and NaNs, of both signs.
PLACES = (
    0, 0x00400000, 0x007FC000, 0x20000000, ONE - SMALL, ONE, 0x42B14000, 0x45000000, 0x7F7FC000, 0x7F800000, 0x7FC00000,
)  # fmt: skip
UNARY = [
    ("exp", {}), ("log", {}), ("tanh", {}), ("sigmoid", {}), ("reciprocal", {}), ("sqrt", {}), ("rsqrt", {}),
    ("div", {"b": 7.0}), ("pow", {"y": 3.7}), ("pow", {"y": -1.0}),
]  # fmt: skip


@dataclass(frozen=True)
class Numbers(domains.Domain):
    """Some chunks of every float32 pattern."""

    numbers: tuple[int, ...] = ()

    def chunks(self) -> Any:
        return self.numbers


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (domains, sweep, run):
        monkeypatch.setattr(module, "CHUNK", SMALL)
    monkeypatch.setattr(check, "SAMPLE", 2)  # elements of each chunk of the walk: multiprecision takes most of the time
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # one to launch, one to judge
    yield
    torch.set_num_threads(before)


def case_of(name: str, scalars: dict[str, float], numbers: Sequence[int], call: Call | None = None) -> tuple[Case, Job]:
    """The case of a kernel on those chunks, and a lowering: eager, or `call`, a user's own."""
    facts, backend = kernel.load(name), backends.load("cpu")
    spelling = next(s for s, facts_of in facts.spellings.items() if facts_of.applies(scalars))
    target = Target(facts, scalars, spelling, "float32", backend)
    domain = Numbers("exhaustive", F32, facts.tensors(scalars), numbers=tuple(numbers))
    lowering = EAGER if call is None else Lowering("mine", lambda target: call, lambda target: None)
    return Case(facts, scalars, "float32", backend, domain), Job(target, lowering, mine=call is not None)


def numbers_of(places: Sequence[int]) -> list[int]:
    return sorted({(p | sign) // SMALL for p in places for sign in (0, F32.sign_bit)})


def both(
    name: str, scalars: dict[str, float], call: Call | None = None, places: Sequence[int] = PLACES
) -> tuple[sweep.Swept, dict[str, Checked], Identification]:
    case, job = case_of(name, scalars, numbers_of(places), call)
    reference = None if call is None else EAGER.build(job.target)
    swept = sweep.sweep(case, job, reference)
    again = Case(case.kernel, case.scalars, case.dtype, case.backend, case.domain)
    found, formula, *_ = walk(again, job, reference)
    return swept, found, formula


def same(swept: Checked, walked: Checked) -> None:
    """Equal bytes, apart from what the sweep has no need of (digests of its inputs) and the binades, below."""
    for mine, other in ((swept.main, walked.main), (swept.range, walked.range)):
        cut = [replace(t, binades=(), input_digests=()) for t in (mine, other)]
        assert cut[0].to_bytes() == cut[1].to_bytes()
        mine.check()
    assert swept.excess == walked.excess


@pytest.mark.parametrize(("name", "scalars"), UNARY, ids=[f"{n} {s}" for n, s in UNARY])
def test_a_sweep_gives_the_bytes_of_the_walk(name: str, scalars: dict[str, float]) -> None:
    swept, found, formula = both(name, scalars)
    assert swept.found.keys() == found.keys()
    for truth, checked in found.items():
        same(swept.found[truth], checked)
    assert swept.formula.mismatches == formula.mismatches
    assert swept.formula.identified == formula.identified
    by_walk = {f.text for f in kernel.load(name).oracle.formulas if not f.rounds_once}
    for text in by_walk & formula.witnesses.keys():
        assert swept.formula.witnesses[text] == formula.witnesses[text]
    assert swept.found["exact"].all.undecided == 0
    assert swept.found["exact"].main.inputs + swept.found["exact"].range.inputs == len(numbers_of(PLACES)) * SMALL


@pytest.mark.parametrize(("name", "scalars"), [("exp", {}), ("pow", {"y": 3.7})])
def test_a_wrong_lowering_against_eager(name: str, scalars: dict[str, float]) -> None:
    """Every class of failure: flushed, zeros for results, infinities, NaNs, signs and large errors."""
    eager = EAGER.build(case_of(name, scalars, [0])[1].target)

    def spoilt(x: torch.Tensor) -> torch.Tensor:
        y, bits = eager(x), x.view(torch.int32)
        for k, wrong in enumerate((-y, y * 0, y * 1.5, y + torch.inf, y * torch.nan, torch.zeros_like(y))):
            y = torch.where(bits % 1009 == k, wrong, y)
        return torch.where(y.abs() < 2.0**-126, y * 0, y)

    swept, found, _ = both(name, scalars, spoilt, (0, 0x00400000, ONE, 0x45000000, 0x7F800000))
    for truth, checked in found.items():
        same(swept.found[truth], checked)
    whole = swept.found["exact"].all
    assert min(whole.worse, whole.inf_mismatch, whole.nan_mismatch, whole.zero_sign, whole.different) > 0
    assert whole.different == whole.closer + whole.farther + whole.tied


def test_errors_outside_the_normal_range_are_ranked_apart() -> None:
    """Of which intermediates leave it: larger errors, that are none of the others'."""

    def spoilt(x: torch.Tensor) -> torch.Tensor:
        y, bits = torch.reciprocal(x), x.view(torch.int32)
        wrong = (bits & 0x7FFFFFFF < 0x00800000) & (bits % 512 == 100)
        return (y.view(torch.int32) + 3 * wrong.int()).view(torch.float32)

    swept, found, _ = both("pow", {"y": -1.0}, spoilt, (0x00400000, 0x007FC000, ONE))
    checked = swept.found["exact"]
    same(checked, found["exact"])
    assert checked.main.max_ulp < 0.5 and checked.range.max_ulp > 2 and len(checked.range.worst) == 5


@pytest.mark.parametrize(("name", "scalars"), [("exp", {}), ("reciprocal", {})])
def test_statistics_by_binade(name: str, scalars: dict[str, float]) -> None:
    swept, found, _ = both(name, scalars)
    mine, walked = dict(swept.found["exact"].main.binades), dict(found["exact"].main.binades)
    assert mine.keys() == walked.keys() and len(mine) >= 4
    for exponent, other in walked.items():
        one = mine[exponent]
        assert replace(one, maximum=0) == replace(other, maximum=0), exponent
        assert abs(one.maximum - other.maximum) <= 1, exponent


def test_whole_chunks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2^20 elements, in which worst cases are ranked block by block."""
    for module in (domains, sweep, run):
        monkeypatch.setattr(module, "CHUNK", 1 << 20)
    case, job = case_of("exp", {}, [0x42B00000 >> 20])
    swept = sweep.sweep(case, job, None)
    found, *_ = walk(Case(case.kernel, {}, "float32", case.backend, case.domain), job, None)
    same(swept.found["exact"], found["exact"])


# Worst cases


HARD = 0x0EFA43  # a significand whose reciprocal lies close to a midpoint: an error of 0.4999999466 ULP


def ranked(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """First indices of the chunks that are judged whole, or looked through, for their worst cases."""
    seen: dict[str, list[int]] = {"whole": [], "looked through": []}
    judge, rank = Checker.check, sweep.Judged.rank

    def checked(self: Checker, start: int, *rest: Any, **options: Any) -> Checked:
        if options.get("floor") != math.inf:
            seen["whole"].append(start)
        return judge(self, start, *rest, **options)

    def counted(self: sweep.Judged, number: int, *rest: Any) -> None:
        seen["looked through"].append(number * SMALL)
        rank(self, number, *rest)

    monkeypatch.setattr(Checker, "check", checked)
    monkeypatch.setattr(sweep.Judged, "rank", counted)
    return seen


def test_equal_errors_of_many_binades_need_no_second_judgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """1/x has the same errors in every binade, and enclosures cannot tell that none of them is larger."""
    places = [exponent << 23 | HARD for exponent in range(1, 250, 3)]
    seen = ranked(monkeypatch)
    case, job = case_of("reciprocal", {}, numbers_of(places))
    worst = sweep.sweep(case, job, None).found["exact"].main.worst
    assert [w.index for w in worst] == sorted(places)[:5]
    assert len({w.ulp for w in worst}) == 1 and worst[0].ulp > 0.49999
    assert len(seen["whole"]) == 1 and len(seen["looked through"]) == len(numbers_of(places))


def test_one_error_that_is_larger_by_the_least_is_found_among_equal_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result off by one step, in the last binade of all; and its equals of higher index are not reported for it."""
    places = [exponent << 23 | HARD for exponent in range(1, 250, 3)]
    late = places[-2]

    def spoilt(x: torch.Tensor) -> torch.Tensor:
        y = torch.reciprocal(x)
        return torch.where(x.view(torch.int32) == late, (y.view(torch.int32) + 1).view(torch.float32), y)

    seen = ranked(monkeypatch)
    case, job = case_of("reciprocal", {}, numbers_of(places), spoilt)
    worst = sweep.sweep(case, job, None).found["exact"].main.worst
    assert worst[0].index == late and worst[0].ulp > 0.5
    assert [w.index for w in worst[1:]] == sorted(places)[:4]
    assert len(seen["whole"]) == 1


def test_equal_errors_against_an_exact_truth_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest finite number for an infinite result is one ULP off, in 2^20 elements and more."""

    def saturating(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x).clamp(max=torch.finfo(torch.float32).max)

    numbers = range(0x44400000 // SMALL, 0x44800000 // SMALL)
    seen = ranked(monkeypatch)
    case, job = case_of("exp", {}, numbers, saturating)
    main = sweep.sweep(case, job, None).found["exact"].main
    assert main.max_ulp == 1.0 and main.inf_mismatch == len(numbers) * SMALL
    assert [w.index for w in main.worst] == [0x44400000 + k for k in range(5)]
    assert len(seen["looked through"]) == 1


def test_equal_errors_of_lower_index_are_looked_for() -> None:
    """Against an exact truth too, where an enclosure of chunk 7 had a wider bound and was looked through before; and an
    error that is larger by the least, of any index."""
    judged = sweep.Judged(case_of("exp", {}, [])[0].checkers["exact"])
    wide, larger = bound_of(1.0) * (1 + 2.0**-40), bound_of(1.0 + 2.0**-52)
    judged._uppers = [(bound_of(1.0), 3), (wide, 7), (bound_of(1.0), 9), (larger, 11)]
    judged._exact = {3, 9, 11}
    seen = []
    for number in judged.contenders():
        seen.append(number)
        judged._main.hold(Tally(worst=tuple(Worst(1.0, number * SMALL + k) for k in range(5))))
    assert seen == [7, 11, 3]


def test_a_chunk_of_many_contenders_is_judged_whole() -> None:
    """Every error of 0.75 ULP and equal: more contenders than are ranked by themselves, the lowest of them reported."""

    def shifted(x: torch.Tensor) -> torch.Tensor:
        return (torch.reciprocal(x).view(torch.int32) + 3).view(torch.float32)

    places = [ONE, ONE + SMALL]
    swept, found, _ = both("reciprocal", {}, shifted, places)
    same(swept.found["exact"], found["exact"])
    assert swept.found["exact"].main.max_ulp > 2


def test_an_element_that_multiprecision_judged_is_reported_once() -> None:
    """It is ranked with its chunk again."""
    case, job = case_of("log", {}, numbers_of([ONE - SMALL, ONE]))
    worst = sweep.sweep(case, job, None).found["exact"].main.worst
    assert len({w.index for w in worst}) == len(worst) == 5
    judged = sweep.Judged(case.checkers["exact"])
    inputs = case.domain.chunk(ONE // SMALL, "cpu")
    for _ in range(2):
        judged.rank(ONE // SMALL, inputs, torch.log(inputs[0]))
    indices = [w.index for w in judged.value.main.worst]
    assert len(set(indices)) == len(indices) == 5


# Threads


def test_what_a_thread_raises_is_raised() -> None:
    """Multiprecision contradicts an enclosure in whichever thread: the cell says so."""
    case, job = case_of("exp", {}, range(512 * (ONE // SMALL // 512), 512 * (ONE // SMALL // 512) + 1600, 512))
    checker = case.checkers["exact"]
    wrong = {"exp": lambda x: torch.exp(x) * (1 + 2.0**-30)}
    checker.ball = Ball64("cpu", checker.ball.bounds, wrong)
    cell = fill(job, case, Selection(("exp",), profile="exhaustive"))
    assert cell["status"] == "oracle-violation" and "misses the truth" in cell["reason"]


@pytest.mark.parametrize("cores", [1, 2, 3, 5])
def test_work_is_shared_and_threads_are_given_back(cores: int) -> None:
    before, done, threads = torch.get_num_threads(), [], set()
    torch.set_num_threads(cores)
    try:
        with sweep._sharing() as share:
            assert torch.get_num_threads() in (1, 2)
            for k in range(40):

                def work(k: int = k) -> None:
                    done.append(k)
                    threads.add((threading.get_ident(), torch.get_num_threads()))

                share(work)
        assert sorted(done) == list(range(40))
        assert torch.get_num_threads() == cores
        assert len(threads) <= 1 + cores // 2
        assert all(n == 1 for ident, n in threads if ident != threading.get_ident())
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("problem", [KeyboardInterrupt, ValueError])
def test_an_exception_while_sharing_ends_it(problem: type[BaseException]) -> None:
    before, started = torch.get_num_threads(), threading.Event()

    def work() -> None:
        started.set()
        raise ValueError("in the other thread")

    def pause() -> None:
        threading.Event().wait(0.001)

    def sharing() -> None:
        with sweep._sharing() as share:
            share(work)
            started.wait(10)
            if problem is KeyboardInterrupt:
                raise problem
            for _ in range(200):  # what another thread raised is raised as soon as it is seen
                share(pause)

    with pytest.raises(problem):
        sharing()
    assert torch.get_num_threads() == before


def test_a_users_buffer_that_is_used_again_is_judged_in_time() -> None:
    """While one chunk is judged in a thread, the lowering writes the next one over the first's memory."""
    buffer = torch.empty(SMALL)

    def reusing(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x, out=buffer)

    numbers = range(ONE // SMALL, ONE // SMALL + 40)
    case, job = case_of("exp", {}, numbers, reusing)
    mine = sweep.sweep(case, job, None)
    plain, its = case_of("exp", {}, numbers)
    theirs = sweep.sweep(plain, its, None)
    assert mine.found["exact"].main.to_bytes() == theirs.found["exact"].main.to_bytes()


def test_multiprecision_runs_in_one_thread_at_a_time() -> None:
    """mpmath keeps constants, and `Exact` its verdicts, in plain variables."""
    inside, most = [0], [0]

    class Slow:
        name = "kept"

        def verdict(self) -> None:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            threading.Event().wait(0.002)
            inside[0] -= 1

    case, _ = case_of("exp", {}, [0])
    checker = case.checkers["exact"]
    original = checker.exact
    checker.exact = Slow()  # type: ignore[assignment]
    with sweep._one_at_a_time((checker,)):
        threads = [threading.Thread(target=checker.exact.verdict) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert most == [1] and isinstance(checker.exact, Slow)
    checker.exact = original


# Rows on whole chunks


@dataclass(frozen=True)
class Asked:
    """A predicate as Hypothesis draws it: in words, and as a function of (n, x)."""

    text: str
    of: Callable[[Any, Any], Any]


def compared(name: str, c: float, size: bool) -> Asked:
    return Asked(f"{'|x|' if size else 'x'}.{name}({c})", lambda n, x: getattr(abs(x) if size else x, f"__{name}__")(c))


def named(name: str, minus: bool) -> Asked:
    return Asked(f"{name}({'-' if minus else ''}x)", lambda n, x: getattr(n, name)(-x if minus else x))


CONSTANTS = (0.0, 1.0, -1.0, 2.0**-20, 600.0, -600.0, math.inf, -math.inf)
LEAVES = [compared(op, c, size) for op in ("lt", "le", "gt", "ge", "eq") for c in CONSTANTS for size in (False, True)]
LEAVES += [
    named(predicate, minus)
    for predicate in ("is_nan", "is_inf", "is_zero", "signbit", "is_integer", "is_odd")
    for minus in (False, True)
]


def asked() -> st.SearchStrategy[Asked]:
    def combine(parts: st.SearchStrategy[Asked]) -> st.SearchStrategy[Asked]:
        two = st.tuples(parts, parts)
        return st.one_of(
            two.map(lambda p: Asked(f"({p[0].text} & {p[1].text})", lambda n, x: p[0].of(n, x) & p[1].of(n, x))),
            two.map(lambda p: Asked(f"({p[0].text} | {p[1].text})", lambda n, x: p[0].of(n, x) | p[1].of(n, x))),
            parts.map(lambda p: Asked(f"~{p.text}", lambda n, x: ~p.of(n, x))),
        )

    return st.recursive(st.sampled_from(LEAVES), combine, max_leaves=4)


#: float16 patterns of leaves' constants, infinity and the first integers that are even for sure.
EDGES = (0, 0x0010, 0x3C00, 0x60B0, 0x6400, 0x6800, 0x7C00)


def firsts() -> st.SearchStrategy[int]:
    near = st.builds(lambda edge, k: max(edge - k, 0), st.sampled_from(EDGES), st.integers(0, 64))
    return st.one_of(near, st.integers(0, 0x7FFF))


def sound(what: Asked, first: int, last: int) -> None:
    """The answer neither denies an element of the run nor claims all of it wrongly."""
    n, ball = Predicates(), Ball64("cpu")
    answer = what.of(n, n.input(first, last, F16))
    x = torch.arange(first, last + 1, dtype=torch.int32).to(torch.int16).view(torch.float16)
    hits = what.of(ball, ball.input(x))
    assert bool(hits.any()) <= answer.some, (what.text, hex(first), hex(last))
    assert answer.every <= bool(hits.all()), (what.text, hex(first), hex(last))
    assert first != last or answer.some == answer.every, f"{what.text} of {first:#x} alone is not decided"


@settings(max_examples=200)
@given(asked(), firsts(), st.integers(0, 64), st.booleans())
def test_predicates_of_a_run_are_sound(what: Asked, first: int, length: int, minus: bool) -> None:
    sign = F16.sign_bit if minus else 0
    sound(what, first | sign, min(first + length, 0x7FFF) | sign)


@pytest.mark.parametrize("sign", [0, F16.sign_bit])
def test_single_predicates_around_their_constants_are_sound(sign: int) -> None:
    for edge in EDGES:
        for first, last in ((edge - 1, edge + 1), (edge, edge + 1), (edge - 1, edge), (edge, edge)):
            for what in LEAVES:
                sound(what, max(first, 0) | sign, last | sign)


def test_answers_of_leaves_are_sharp() -> None:
    """On the runs of a sweep, where an unknown answer would cost a chunk its short way."""
    n = Predicates()
    chunk = n.input(0x42C80000, 0x42D7FFFF, F32)
    assert (chunk > 99.0, chunk > 200.0) == (Answer(True, True), Answer(False, False))
    assert (chunk > 100.0) == Answer(True, False)
    assert n.is_nan(n.input(0x7F900000, 0x7F9FFFFF, F32)) == Answer(True, True)
    assert n.is_nan(n.input(0x7F800000, 0x7F8FFFFF, F32)) == Answer(True, False)
    assert n.is_zero(n.input(0x80000000, 0x800FFFFF, F32)) == Answer(True, False)
    assert n.signbit(n.input(0x80000000, 0x800FFFFF, F32)) == Answer(True, True)
    assert n.is_odd(n.const(3.0)) == Answer(True, True) and n.is_integer(n.const(3.7)) == Answer(False, False)
    with pytest.raises(ValueError, match="no run of float32 patterns of one sign"):
        n.input(0x7FFFFFFF, 0x80000000, F32)


def rows(name: str, scalars: dict[str, float]) -> Iterator[tuple[str | Fraction, Callable[[Any, Any], Any]]]:
    facts = kernel.load(name)
    (tensor,) = facts.tensors(scalars)
    for row in facts.oracle.rows:

        def when(n: Any, x: Any, row: Any = row) -> Any:
            return row.when(n, **{tensor: x}, **{s: n.const(v) for s, v in scalars.items()})

        yield row.gives, when


@pytest.mark.parametrize(("name", "scalars"), UNARY, ids=[f"{n} {s}" for n, s in UNARY])
def test_a_chunk_is_prepared_as_its_rows_say(name: str, scalars: dict[str, float]) -> None:
    case, _ = case_of(name, scalars, [])
    checker = case.checkers["exact"]
    prepare, used = sweep.Prepare(checker), set()
    for number in numbers_of(PLACES):
        (x,) = case.domain.chunk(number, "cpu")
        given = prepare(number, x)
        values = checker.ball.input(x)
        taken = torch.zeros_like(x, dtype=torch.bool)
        covering = None
        for gives, when in rows(name, scalars):
            hit = torch.as_tensor(when(checker.ball, values)).expand(x.shape) & ~taken
            covering = gives if bool(hit.all()) else covering
            taken = taken | hit
        if given is None:
            used.add("closer")
            continue
        full = checker.enclose((x.reshape(1, -1),), x.reshape(1, -1))
        assert torch.equal(given.mid.expand_as(full.mid).nan_to_num(7.0), full.mid.nan_to_num(7.0))
        used.add("plain" if covering is None else "constant")
        assert bool(taken.any()) == (covering is not None)
        assert (given.mid.stride(-1) == 0) == (covering is not None)
    assert used >= {"plain", "closer"} and ("constant" in used) == bool(kernel.load(name).oracle.rows)


def test_binades_of_a_first_chunk_of_subnormals_are_kept() -> None:
    """Its elements have many exponents, of which the ends know two."""
    swept, found, _ = both("div", {"b": 7.0}, places=[0, 0x00400000])
    mine, walked = ([e for e, _ in f["exact"].main.binades if e < -130] for f in (swept.found, found))
    assert mine == walked and len(mine) >= 14


def test_the_sum_of_parts_does_not_depend_on_their_order() -> None:
    parts = [Checked(Tally(inputs=k, correct=k, digests=((k, k),)), upper=float(k)) for k in range(1, 12)]
    sums = []
    for order in (parts, parts[::-1]):
        total = sweep.Sum()
        for part in order:
            total.add(part)
        sums.append(total.value)
    assert sums[0] == sums[1] and sums[0].main.inputs == 66


# A GPU


@given(memory=st.integers(0, 1 << 38))
def test_a_launch_fits_the_memory(memory: int) -> None:
    rows = sweep.rows_in(memory)
    needed = rows * domains.CHUNK * sweep.BYTES
    assert rows.bit_count() == 1 and rows <= sweep.ROWS
    assert needed <= memory or rows == 1
    assert 2 * needed > memory or rows == sweep.ROWS


ONE_NAN = """
import torch

def one_nan(x):
    return torch.where(x == 3.0, torch.nan, torch.exp(x))
"""


@pytest.mark.gpu
def test_a_gpus_sweep_finds_one_wrong_pattern_of_all(tmp_path: Path) -> None:
    where = next(b.name for b in map(backends.load, backends.names()) if b.name != "cpu" and not b.unavailable())
    own, out = tmp_path / "mine.py", tmp_path / "report.json"
    own.write_text(ONE_NAN)
    which = ["--lowering", f"{own}:one_nan", "--dtype", "float32", "--backend", where, "--profile", "exhaustive"]
    assert main(["kernel", "exp", *which, "--json", str(out)]) == 1
    cells = {cell["lowering"]: cell for cell in json.loads(out.read_text())["cells"]}
    mine, eager = cells["mine.py:one_nan"], cells["eager"]
    assert mine["inputs"] == eager["inputs"] == 1 << 32
    assert mine["status"] == "exceeds-bound" and "1 nan mismatch" in mine["reason"]
    assert mine["error"]["undecided"] == eager["error"]["undecided"] == 0
    assert mine["error"]["nan_mismatch"] == 1 and eager["error"]["nan_mismatch"] == 0
    numbers = [sum(cell["error"][c] for c in ("correct", "faithful", "worse")) for cell in (mine, eager)]
    assert numbers[0] == numbers[1] - 1
    assert mine["against_eager"]["farther"] == 1 and mine["against_eager"]["closer"] == 0
