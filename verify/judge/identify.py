"""Which formula the bits obey: candidates of the oracle, evaluated in `ieee`, against the outputs.

A candidate survives while it reproduces every output bit (NaNs count as equal). The survivors are one formula, which is
identified, unless they give different bits on other inputs: then the domain could not tell them apart, and the
identification is ambiguous. A candidate that does not survive has the input of the lowest index that refutes it.

What is known of one formula is a `Fit`, which merges in any order (`verify.judge.tally`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from verify.facts.formats import FORMATS, Format
from verify.facts.oracle import Formula, Oracle
from verify.inputs.draws import to_tensor
from verify.judge.chunk import differing, patterns
from verify.judge.reduce import first_of
from verify.judge.tally import Fit
from verify.numbers import ieee
from verify.numbers.casts import words

Tensor = torch.Tensor
PROBED = 1 << 14  # inputs of each of the two kinds on which survivors are compared


@dataclass(frozen=True)
class Probe:
    """What some formulas give for inputs that a domain may lack, as flat tensors, and these inputs (those of a
    composite kernel's elements are not told)."""

    predictions: Mapping[str, Tensor]
    inputs: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Identification:
    """fits: what the domain's outputs say of each formula. apart: survivors that differ from the first one on other
    inputs, with the first such input (patterns). sure: whether survivors were compared on other inputs, or the domain
    is all inputs."""

    fits: Mapping[str, Fit]
    apart: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sure: bool = True

    @property
    def survivors(self) -> tuple[str, ...]:
        return tuple(text for text, fit in self.fits.items() if not fit.mismatches)

    @property
    def ambiguous(self) -> tuple[str, ...]:
        """The survivors, where they are not known to be one formula."""
        several = len(self.survivors) > 1 and (self.apart or not self.sure)
        return self.survivors if several else ()

    @property
    def identified(self) -> str | None:
        """The formula: the first survivor, unless there is none or it is ambiguous."""
        return self.survivors[0] if self.survivors and not self.ambiguous else None

    def record(self, fmt: Format) -> dict[str, Any]:
        """As the report has it. witnesses: against each formula that does not survive the input of the lowest index;
        of ambiguous ones the input, not of the domain, that would tell them from the first."""
        refuted = {text: fit.witness.key for text, fit in self.fits.items() if fit.mismatches and fit.witness}
        return {
            "identified": self.identified,
            "ambiguous": list(self.ambiguous),
            "survivors": list(self.survivors),
            "mismatches": {text: fit.mismatches for text, fit in self.fits.items()},
            "witnesses": {text: [fmt.hex(p) for p in key] for text, key in (refuted | dict(self.apart)).items()},
        }


def identify(
    fits: Mapping[str, Fit], probes: Callable[[Sequence[str]], Iterable[Probe]] | None = None
) -> Identification:
    """Identify the formula from the fits of a whole domain. probes(survivors): their results on other inputs, called
    where several survive; empty where the domain is all inputs. None: there are no other inputs, so several survivors
    are ambiguous.
    """
    found = Identification(fits, sure=probes is not None)
    first, *others = found.survivors or ("",)
    apart: dict[str, tuple[int, ...]] = {}
    if others and probes is not None:
        for probe in probes(found.survivors):
            for text in others:
                if text in apart or text not in probe.predictions or first not in probe.predictions:
                    continue
                place = first_of(differing(probe.predictions[text], probe.predictions[first]))
                if place >= 0:
                    apart[text] = tuple(patterns(t[place : place + 1], _format(t))[0] for t in probe.inputs)
    return Identification(fits, apart, found.sure)


def candidates(oracle: Oracle, scalars: Mapping[str, float], fmt: Format) -> tuple[Formula, ...]:
    """The formulas that apply; those that differ only by a rounding to the compute format are dropped."""
    dropped = {64: ("storage(",), 32: ("storage(", "single(")}.get(fmt.bits, ("single(",))
    return tuple(f for f in oracle.formulas if f.suits(dict(scalars)) and not any(cast in f.text for cast in dropped))


def predict(
    formulas: tuple[Formula, ...], fmt: Format, names: tuple[str, ...], inputs: tuple[Tensor, ...],
    scalars: Mapping[str, float],
) -> dict[str, Tensor]:  # fmt: skip
    """Output of every formula on this chunk, in the storage dtype."""
    tensors = dict(zip(names, inputs, strict=True))
    return {f.text: ieee.evaluate(_system(fmt), f.evaluate, tensors, scalars) for f in formulas}


def predictor(
    formulas: tuple[Formula, ...], fmt: Format, names: tuple[str, ...], scalars: Mapping[str, float]
) -> Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]:
    """As `predict`, a pure function of the inputs that can be traced: no blocks."""
    n = _system(fmt)

    def predicted(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        values = {name: n.input(t) for name, t in zip(names, inputs, strict=True)}
        return tuple(n.result(f.evaluate(n, **values, **scalars)) for f in formulas)

    return predicted


def _system(fmt: Format) -> ieee.IeeeSystem:
    """Half formats are computed in float32."""
    return ieee.IeeeSystem(FORMATS["float32"] if fmt.bits < 32 else fmt, fmt)


def probing(
    formulas: Sequence[Formula], fmt: Format, names: tuple[str, ...], scalars: Mapping[str, float], device: Any
) -> Callable[[Sequence[str]], Iterator[Probe]]:
    """Probes of an elementwise kernel: inputs of any pattern, and numbers of like size, whose roundings differ."""

    def probes(texts: Sequence[str]) -> Iterator[Probe]:
        some = tuple(f for f in formulas if f.text in texts)
        for near in (False, True):
            inputs = tuple(_drawn(fmt, k, near).to(device) for k in range(len(names)))
            yield Probe(predict(some, fmt, names, inputs, scalars), inputs)

    return probes


def _drawn(fmt: Format, lane: int, near: bool) -> Tensor:
    """PROBED numbers with hashed significands: of any exponent, special values too, or within a factor of 16 of 1."""
    word = torch.from_numpy(words(100 + lane, PROBED))
    bits = word & ((1 << fmt.bits) - 1) if fmt.bits < 64 else word
    if near:
        exponent = fmt.emax - 4 + (torch.from_numpy(words(200 + lane, PROBED)) >> 40 & 7)
        rest = ~(fmt.inf_bits) & ((1 << fmt.bits) - 1) if fmt.bits < 64 else ~fmt.inf_bits
        bits = (bits & rest) | (exponent << fmt.mantissa_bits)
    drawn: Tensor = to_tensor(fmt, bits)
    return drawn


def _format(t: Tensor) -> Format:
    return FORMATS[str(t.dtype).removeprefix("torch.")]
