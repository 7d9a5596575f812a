"""Every kernel, lowering and dtype on every backend present: a search for a failure of its bound and of its laws.

On the CPU each of Inductor's kernels takes seconds to compile, so that float32 in the default spelling stands for
the others there; `verify run` walks all of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from corpus.collect import key
from corpus.collect import rows as corpus
from searching import (
    SIZES_FLOAT64,
    Descriptor,
    Failure,
    Subject,
    bisect,
    broken_law,
    descriptors,
    expand,
    failure_on,
    first_failure,
    judged,
    outputs,
    require,
)
from verify import backends
from verify.facts.formats import FORMATS
from verify.facts.kernel import DTYPES, Kernel, Property, elementwise_names, load
from verify.inputs.domains import Domain
from verify.judge import ledger
from verify.judge.chunk import patterns
from verify.judge.regions import REGIONS
from verify.lower.lowering import Lowering
from verify.lower.lowerings import lowerings
from verify.walk.explain import COPIES
from verify.workers.launch import bits

#: Examples of a search, and of one law in one spelling, per max_examples of the profile (50 under `gate`).
SHARE, LAW_SHARE = 8, 20
#: One size where each is compiled for.
COMPILED = (8 * COPIES,)
#: One kernel for each number of inputs: the interpreter is slow.
INTERPRETED = {len(load(name).inputs): name for name in elementwise_names()}.values()


def subjects() -> Iterator[Any]:
    """What is tested here: one parameter each, those of a GPU under the marker `gpu`."""
    for backend in map(backends.load, backends.names()):
        host = torch.device(backend.device).type == torch.get_default_device().type
        for name in elementwise_names():
            kernel = load(name)
            for lowering in lowerings(kernel):
                for dtype in kernel.dtypes:
                    if host and not on_host(kernel, lowering, dtype):
                        continue
                    subject = Subject(kernel, lowering, dtype, backend)
                    marks = [] if host else [pytest.mark.gpu]
                    if not host and dtype != "float32" and lowering.name != "eager":
                        marks.append(pytest.mark.exhaustive)  # compiled, minutes in all
                    yield pytest.param(subject, id=subject.name, marks=marks)


def on_host(kernel: Kernel, lowering: Lowering, dtype: str) -> bool:
    if lowering.name == "eager":
        return True
    if lowering.name == "triton-interpreter":
        return dtype == "float32" and kernel.name in INTERPRETED
    return dtype == "float32" and lowering.name == "inductor"


def narrowed(subject: Subject) -> tuple[Sequence[tuple[int, str]], Sequence[int] | None]:
    """Places and sizes: all for what is ready to run, one for what has to be compiled. Skips what does not exist."""
    if (reason := subject.backend.unavailable()) is not None:
        pytest.skip(reason)
    if not subject.places:
        pytest.skip(f"{subject.name} does not exist on this backend")
    if subject.lowering.name == "eager":
        return subject.places, None
    return subject.places[:1], SIZES_FLOAT64[-1:] if subject.fmt.bits == 64 else COMPILED


def examples(share: int) -> settings:
    """The loaded profile with a part of its examples."""
    return settings(max_examples=max(1, settings().max_examples // share))


ALL = list(subjects())


@pytest.mark.part(2)
@pytest.mark.parametrize("subject", ALL)
def test_no_batch_exceeds_the_bound(subject: Subject) -> None:
    places, sizes = narrowed(subject)

    @examples(SHARE)
    @given(descriptors(subject, places, sizes))
    def search(d: Descriptor) -> None:
        require(subject, d, first_failure(subject, d))

    search()


def stored(subject: Subject, case: int, spelling: str) -> Iterator[tuple[Descriptor, tuple[torch.Tensor, ...]]]:
    """The corpus of the case in batches of one size, since compiled code is compiled for it."""
    fmt, size = subject.fmt, SIZES_FLOAT64[-1] if subject.fmt.bits == 64 else COMPILED[0]
    names = subject.kernel.tensors(subject.kernel.cases[case])
    kept = corpus(subject.kernel.name).get(key(subject.dtype, subject.kernel.cases[case]), [])
    for start in range(0, len(kept), size):
        rows = [tuple(map(fmt.parse, row)) for row in kept[start : start + size]]
        filled = tuple(itertools.islice(itertools.cycle(rows), size))
        inputs = Domain("list", fmt, names, patterns=filled).span(0, size, subject.backend.check_device)
        yield Descriptor(case, spelling, "corpus", size, 0, start), inputs


@pytest.mark.part(2)
@pytest.mark.parametrize("subject", ALL)
def test_the_worst_inputs_of_any_report_keep_the_bound(subject: Subject) -> None:
    places, _ = narrowed(subject)
    for case, spelling in places:
        for d, inputs in stored(subject, case, spelling):
            require(subject, d, failure_on(subject, d, inputs))


@pytest.mark.parametrize("kernel", elementwise_names())
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_stored_input_reaches_the_lowering(kernel: str, dtype: str) -> None:
    seen: set[tuple[str, ...]] = set()
    fmt = FORMATS[dtype]

    def recorded(y: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        seen.update(zip(*(map(fmt.hex, patterns(t, fmt)) for t in inputs), strict=True))
        return y

    subject = planted(recorded, kernel, dtype)
    for case, scalars in enumerate(load(kernel).cases):
        seen.clear()
        for d, inputs in stored(subject, case, subject.places[0][1]):
            outputs(subject, d, inputs)
        assert seen == set(corpus(kernel).get(key(dtype, scalars), [])), scalars


def test_what_is_wrong_at_one_stored_input_is_found() -> None:
    row = corpus("exp")["float32"][0]

    def wrong(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x == float.fromhex(row[0]), y * 1.5, y)

    subject = planted(wrong, "exp")
    found = [failure_on(subject, d, inputs) for d, inputs in stored(subject, 0, "out-of-place")]
    assert [failure.kind for failure in found if failure] == ["bound"]


@pytest.mark.part(2)
@pytest.mark.parametrize("subject", ALL)
def test_the_laws_that_a_lowering_promises_hold(subject: Subject) -> None:
    places, sizes = narrowed(subject)
    for case, spelling, law in subject.laws:
        if (case, spelling) in places:
            hold(subject, law, (case, spelling), sizes)


def hold(subject: Subject, law: Property, place: tuple[int, str], sizes: Sequence[int] | None) -> None:
    @examples(LAW_SHARE)
    @given(descriptors(subject, [place], sizes))
    def search(d: Descriptor) -> None:
        require(subject, d, broken_law(subject, d, law))

    search()


# The search is tested: what is planted must be found, and told so that it can be replayed.


def planted(wrong: Callable[..., torch.Tensor], kernel: str = "addcmul", dtype: str = "float32") -> Subject:
    """A lowering of ours: eager, but wrong where `wrong(result, *tensors)` says so."""
    eager = lowerings(load(kernel))[0]

    def build(target: Any) -> Callable[..., torch.Tensor]:
        call = eager.build(target)
        return lambda *tensors: wrong(call(*tensors), *tensors)

    return Subject(load(kernel), replace(eager, name="planted", build=build), dtype, backends.load("cpu"))


def flushing(y: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return torch.where(y.abs() < torch.finfo(y.dtype).tiny, torch.zeros_like(y), y)


def two_steps_off(y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Where a is about twice b: one element in some hundreds of a stratum."""
    hit = (a / b > 1.5) & (a / b < 2.5) & torch.isfinite(y) & (y.abs() > 1e-20)
    return torch.where(hit, torch.nextafter(torch.nextafter(y, y + torch.inf), y + torch.inf), y)


def swapped(y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return torch.addcmul(b, a, c)


def nan_to_zero(y: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isnan(y), torch.zeros_like(y), y)


@pytest.mark.parametrize("wrong", [flushing, two_steps_off, swapped, nan_to_zero])
def test_a_planted_mutant_is_found_and_told_by_one_element(wrong: Callable[..., torch.Tensor]) -> None:
    subject = planted(wrong)

    @settings(settings.get_profile("gate"), suppress_health_check=list(HealthCheck))
    @given(descriptors(subject, subject.places[:1]))
    def search(d: Descriptor) -> None:
        require(subject, d, first_failure(subject, d))

    with pytest.raises(AssertionError) as failure:
        search()
    said = str(failure.value)
    hexes = r"-?(?:0x[0-9a-f.]+p[+-]\d+|inf|nan\S*)"
    assert re.search(rf"^  inputs a={hexes}, b={hexes}, c={hexes}$", said, re.MULTILINE), said
    assert re.search(rf"^  output {hexes}, truth ", said, re.MULTILINE), said
    assert re.search(r"^  error (none|[\d.e+]+ ulp).*, class \S+$", said, re.MULTILINE), said
    command = re.search(r"^  replay: (verify explain addcmul .*--input=\S+)$", said, re.MULTILINE)
    assert command, said
    assert said.count("replay:") == 1


def test_a_broken_law_is_found_and_told_by_one_element() -> None:
    def uneven(y: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.where(b > 1e3, torch.nextafter(y, y + 1), y)

    subject = planted(uneven)
    case, spelling, law = next(found for found in subject.laws if found[2].name == "sign of the product")

    @settings(settings.get_profile("gate"), suppress_health_check=list(HealthCheck))
    @given(descriptors(subject, [(case, spelling)]))
    def search(d: Descriptor) -> None:
        require(subject, d, broken_law(subject, d, law))

    with pytest.raises(AssertionError, match="the law 'sign of the product' is broken") as failure:
        search()
    assert str(failure.value).count("replay:") == 1


def test_a_law_of_two_neighbours_is_told_by_two_elements() -> None:
    def bumpy(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.where((x > 1) & (x < 1.5), y * 3, y)

    subject = planted(bumpy, "sqrt")
    law = next(law for law in subject.kernel.properties if law.name == "monotone")
    place = subject.places[0]
    binades = next(name for name in subject.strata(place[0]) if name == "binades")
    failure = broken_law(subject, Descriptor(*place, binades, 64 * COPIES, 0, 1), law)
    assert failure is not None
    assert failure.inputs[0].numel() == 2


def test_what_the_ledger_does_not_expect_still_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry accounts for its kinds of failure, in its spellings and as far as it goes; those of several add up."""
    entry = ledger.Deviation("planted", ("addcmul",), ("*",), id="flushes", reason="flushes", source="here",
                             regions=REGIONS, kinds=("flush",), where="abs(a) >= 0")  # fmt: skip
    # subnormal results below 4 ULP are an error, larger ones a flush
    strays = replace(entry, id="strays", kinds=("bound",), where="", at_most={"ulp": 4.0}, spelling=("in-place",))
    subject, tiny = planted(flushing), Descriptor(0, "in-place", "one-zero", 512, 0, 1)

    def found(d: Descriptor, *entries: ledger.Deviation) -> Failure | None:
        monkeypatch.setattr(ledger, "deviations", lambda backend: entries if backend == "cpu" else ())
        return first_failure(subject, d)

    assert found(tiny, entry, strays) is None
    inputs = expand(subject, tiny)
    concluded = judged(subject, tiny, inputs, outputs(subject, tiny, inputs)).concluded
    assert (concluded["status"], concluded["ledger"]) == ("deviates", ["flushes", "strays"])
    for entries, kind in (
        ((), "bound"),
        ((entry,), "bound"),
        ((strays,), "flush"),
        ((entry, replace(strays, at_most={"ulp": 2.0})), "bound"),
        ((replace(entry, where="abs(a) > 1"), strays), "flush"),
        ((replace(entry, regions=("normal",)), strays), "flush"),
    ):
        failure = found(tiny, *entries)
        assert failure is not None and failure.inputs[0].numel() == 1, entries
        assert kind != "flush" or failure.kind == "flush", entries
    assert found(replace(tiny, spelling="out-of-place"), entry, strays) is not None


def test_bisection_gives_exactly_one_element() -> None:
    asked = []

    def fails(index: torch.Tensor) -> bool:
        asked.append(index.numel())
        return 777 in index

    assert bisect(fails, torch.arange(4096)).tolist() == [777]
    assert len(asked) <= 2 * 12
    assert bisect(lambda index: len({3, 9} & set(index.tolist())) > 0, torch.arange(16)).numel() == 1
    assert sorted(bisect(lambda index: {3, 900} <= set(index.tolist()), torch.arange(1000)).tolist()) == [3, 900]


def test_a_descriptor_is_always_the_same_batch_and_seeds_differ() -> None:
    subject = Subject(load("lerp"), lowerings(load("lerp"))[0], "float16", backends.load("cpu"))
    d = Descriptor(0, "out-of-place", "ordinary", 512, 4, 7)
    batch = expand(subject, d)
    assert [t.shape for t in batch] == [(512,)] * 3
    assert all(torch.equal(bits(x), bits(y)) for x, y in zip(batch, expand(subject, d), strict=True))
    # half-precision values repeat by chance; drawn one by one, arrays held three distinct values in a median batch
    assert all(len(bits(t).unique()) > 300 for t in batch)
    assert not torch.equal(bits(batch[0]), bits(expand(subject, replace(d, seed=8))[0]))
    special = expand(subject, replace(d, specials=16))[0]
    assert len(bits(special).unique()) < 60
    assert special.isnan().any()
    assert special.isinf().any()
