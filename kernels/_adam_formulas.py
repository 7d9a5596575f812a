"""Adam's formulas bit for bit: the algorithms that are tried, and what each predicts after the steps of a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from verify.facts.formats import FORMATS
from verify.facts.oracle import Formula
from verify.families.composite import KEPT, Problem
from verify.kernels._adam import PLACES, kept_format, states, steps_of, switches
from verify.kernels._adam_numbers import DOUBLE, Multiprecision
from verify.numbers.ieee import BLOCK, HOST, IeeeSystem, Rounded
from verify.oracles import _adam as a
from verify.oracles._adam import Algorithm, rounded_step

Tensor = torch.Tensor
FLOAT32 = FORMATS["float32"]
POWER_BITS = 192


def values(n: Any, problem: Problem, power: Callable[..., Any], **library: Any) -> SimpleNamespace:
    """The values k of all steps, as the host's doubles meet the tensors; without bias corrections."""
    s = dict(problem.scalars)
    k = switches(problem)
    k.scalars, k.host, k.power = s, n.at(DOUBLE), power
    for name, what in library.items():
        setattr(k, name, what)
    h = k.host
    k.beta1, k.beta2 = n.scalar(s["beta1"]), n.scalar(s["beta2"])
    k.rest1, k.rest2 = (n.value(1 - h.scalar(s[beta])) for beta in ("beta1", "beta2"))
    if "lr" in s:
        k.lr, k.eps, k.weight_decay = n.scalar(s["lr"]), n.scalar(s["eps"]), n.scalar(s["weight_decay"])
        product = h.scalar(s["lr"]) * h.scalar(s["weight_decay"])
        k.decay, k.lr_decay = n.value(1 - product), n.value(product)
    return k


def corrected(n: Any, algorithm: Algorithm, k: SimpleNamespace, t: Any) -> SimpleNamespace:
    """k at step t, with the bias corrections of the algorithm; or at the steps t, where `k.power` takes several."""
    if "lr" not in k.scalars:
        return k
    step, root2 = algorithm.bias.evaluate(n, k, t)
    inverse = n.value(1 / k.host.sqrt(1 - k.power(k.host, k.scalars["beta2"], t)))
    return SimpleNamespace(**vars(k), step=step, root2=root2, inverse_root2=inverse)


# ---------------------------------------------------------------- predictions


def _power(n: IeeeSystem, base: float, t: int) -> Rounded:
    """base^t of the base rounded to the compute format, rounded once; the host's own pow in double."""
    if n.compute == DOUBLE:
        return n.scalar(base**t)
    given = n.scalar(base).tensor.item()
    wide = Multiprecision(POWER_BITS)
    truth = wide.pow(wide.const(given), t).truth()
    return n.scalar(float(n.compute.fraction(n.compute.round(truth.lo))))


def _library_power(device: Any, n: IeeeSystem, base: float, t: int) -> Rounded:
    """torch.pow of a float32 tensor on the device."""
    found = torch.pow(base, torch.tensor(float(t), dtype=torch.float32, device=device))
    return n.scalar(found.double().item())


def _library_sqrt(device: Any, n: IeeeSystem, x: Rounded) -> Rounded:
    """torch.sqrt of a float32 tensor on the device."""
    return Rounded(torch.sqrt(x.tensor.to(device, torch.float32)).to(x.tensor.device).double(), n)


def system(problem: Problem) -> IeeeSystem:
    return IeeeSystem(FLOAT32, FORMATS[kept_format(problem)])


def predict(problem: Problem, algorithm: Algorithm, home: Any = HOST) -> dict[int, Tensor]:
    """What the algorithm gives after all steps, by place in a state, in the dtype that is kept. home: the device of
    torch's functions."""
    n = system(problem)
    device = problem.tensors["exp_avg"].device
    library = {"library_power": partial(_library_power, home), "library_sqrt": partial(_library_sqrt, home)}
    k = values(n, problem, _power, **library)
    k.rest = leftover(problem)
    steps = [corrected(n, algorithm, k, t) for t in steps_of(problem)]
    count = problem.tensors["exp_avg"].numel()
    block = BLOCK if device == HOST else count
    parts = [_predicted(n, problem, algorithm, steps, slice(start, start + block)) for start in range(0, count, block)]
    return {place: torch.cat([part[place] for part in parts]) for place in parts[0]}


def leftover(problem: Problem) -> Tensor:
    """Elements that the fused kernel of the host leaves to its scalar loop: those beyond a tensor's last whole vector.

    Threads share a tensor by cache lines, so that only its end is left; the kernel is dispatched to AVX2 at most,
    vectors of 32 bytes (FusedAdamKernel.cpp).
    """
    lanes = 32 // problem.tensors["grads"].element_size()
    masks = [torch.arange(size) >= size // lanes * lanes for size in problem.parameters["sizes"]]
    return torch.cat(masks).to(problem.tensors["exp_avg"].device)


def _predicted(
    n: IeeeSystem, problem: Problem, algorithm: Algorithm, steps: list[SimpleNamespace], part: slice
) -> dict[int, Tensor]:
    state: list[Any] = [None if t is None else n.input(t[part]) for t in states(problem)]
    for all_, row in zip(steps, problem.tensors["grads"], strict=True):
        k = SimpleNamespace(**vars(all_))
        k.rest = k.rest[part]
        g = Rounded(row[part].double(), n)
        g = -g if k.maximizes else g
        if state[0] is None:
            _, m, v, _ = state
            state = [None, *(n.cast(one, n.storage) for one in a.averages(n, algorithm, k, None, m, v, g)[:2]), None]
        else:
            p, m, v, x = state
            state = list(rounded_step(n, algorithm, k, p, m, v, x, g))
    return {place: n.result(one) for place, one in enumerate(state) if one is not None}


def candidates(problem: Problem, device: str, output: str) -> Mapping[str, Callable[[], Tensor]]:
    """`Composite.formulas` of lowerings on a device, see `verify.kernels._adam`."""
    k, home = switches(problem), torch.device(device)
    place = PLACES[output]
    alone = place in (1, 2, 3) and not k.couples
    found: dict[str, Callable[[], Tensor]] = {}
    skipped = LIBRARY_BIASES if _library_power_rounds_once(problem, home) else ()
    for text, algorithm in _recurrences(problem, place) if alone else algorithms(problem, k, home == HOST):
        if algorithm.bias not in skipped:
            found.setdefault(text, partial(_outcome, problem, algorithm, home, place, output))
    return found


SINGLE_BIASES = (a.in_tensor, a.in_tensor_library)
LIST_BIASES = (a.in_tensors, a.in_tensors_library)
LIBRARY_BIASES = (a.in_float32_library, a.in_tensor_library, a.in_tensors_library)


def _library_power_rounds_once(problem: Problem, home: Any) -> bool:
    """Whether torch.pow is correctly rounded for every bias correction of the problem: then one formula will do."""
    if "lr" not in problem.scalars:
        return True
    n = system(problem)
    return all(
        bool(_power(n, problem.scalars[beta], t).tensor == _library_power(home, n, problem.scalars[beta], t).tensor)
        for beta in ("beta1", "beta2")
        for t in steps_of(problem)
    )


def _outcome(problem: Problem, algorithm: Algorithm, home: Any, place: int, output: str) -> Tensor:
    """A prediction, kept with the problem: the other outputs ask for it again."""
    kept = problem.extra["cache"].setdefault("predictions", {})
    predicted = kept.get(algorithm)
    if predicted is None:
        predicted = predict(problem, algorithm, home)
        size = sum(t.nbytes for t in predicted.values())
        if (len(kept) + 1) * size <= KEPT:
            kept[algorithm] = predicted
    found: Tensor = predicted[place]
    return found.to(problem.tensors["param"].dtype) if output == "param" else found


def _suits(one: Formula, problem: Problem) -> bool:
    """Where storage is float32, formulas that differ by it only are dropped."""
    return one.suits(dict(problem.scalars)) and not (kept_format(problem) == "float32" and "storage(" in one.text)


def _recurrences(problem: Problem, place: int) -> Iterator[tuple[str, Algorithm]]:
    """Each recurrence of one average, beside whichever of the other."""
    if place == 1:
        for first in a.FIRST:
            if _suits(first, problem):
                yield first.text, Algorithm(first, a.square_first)
    else:
        for second in a.SECOND:
            if _suits(second, problem):
                yield second.text, Algorithm(a.ema_separate, second)


def algorithms(problem: Problem, k: SimpleNamespace, host: bool) -> Iterator[tuple[str, Algorithm]]:
    """Whole steps: what torch 2.11 to 2.13 computes on the host or on a GPU, contracted or not, and the hand-written
    step."""
    half = kept_format(problem) != "float32"
    far = problem.scalars["beta1"] <= 0.5
    for first, listed in ((a.lerp_fused, a.lerp_stored_weight_fused), (a.lerp_separate, a.lerp_stored_weight)):
        l2 = a.l2_fused if first is a.lerp_fused else a.l2_separate
        for family in (
            *(_eager_cpu(first, half) if host else _eager_gpu(first, half)),
            # fused on a CPU
            *(Algorithm(first, second) for second in (a.square_last_fused, a.square_last, a.square_by_place) if host),
            # compiled, single-tensor and capturable; without contraction; each traced operation stored
            *(_stored_operations() if half and first is a.lerp_separate else ()),
            *(Algorithm(a.lerp_separate, a.square_first, bias, update=a.quotient_separate) for bias in SINGLE_BIASES),
            *(
                Algorithm(first, a.square_first_fused, bias, denominator=denominator, update=update)
                for bias in SINGLE_BIASES
                for denominator, update in ((a.quotient, a.quotient_fused), (a.folded, a.plain_quotient))
            ),
            # compiled and eager, capturable foreach
            *(
                Algorithm(
                    listed if half and far else first, second, bias, denominator=a.divided, update=a.plain_quotient
                )
                for second in (a.square_first, a.square_first_fused)
                for bias in LIST_BIASES
            ),
        ):  # fmt: skip
            for algorithm in dict.fromkeys((family, family._replace(l2=l2))):
                yield algorithm.text(k), algorithm
    # fused on CUDA
    for decay in (a.decay_contracted, a.decay_subtracted):
        for bias in (a.in_float32, a.in_float32_library):
            for l2 in (a.l2_fused, a.l2_separate):
                algorithm = Algorithm(a.ema_two_fused, a.square_two_fused, bias, decay, l2=l2)
                yield algorithm.text(k), algorithm
    for fuses in (True, False):
        own = hand_written(problem, fuses)
        yield own.text(k), own


def _eager_cpu(first: Formula, half: bool) -> Iterator[Algorithm]:
    """Contracted where lerp is; scalars of halves taken in float32 or in the dtype."""
    fused = first is a.lerp_fused
    if not half:
        second = a.square_last_fused if fused else a.square_last
        for denominator in (a.quotient, a.library_quotient):
            yield Algorithm(first, second, denominator=denominator)
        return
    for second, update, decay in (
        (a.square_last_fused_stored if fused else a.square_last_stored, a.product_over, a.decay_factor_stored),
        (
            a.square_last_fused_stored_weight if fused else a.square_last_stored_weight, a.stored_product_over,
            a.decay_factor_stored,
        ),
        (
            a.square_last_fused_stored_beta if fused else a.square_last_stored_beta, a.product_over,
            a.decay_stored_factor,
        ),
    ):  # fmt: skip
        for denominator in (a.quotient_stored, a.quotient_stored_eps):
            yield Algorithm(
                first, second, a.in_double, decay, denominator, update,
                a.l2_stored_weight_fused if fused else a.l2_stored_weight, stored=True,
            )  # fmt: skip


def _eager_gpu(first: Formula, half: bool) -> Iterator[Algorithm]:
    """Single-tensor steps divide by a scalar through its reciprocal, lists do not; capturable ones fold the step in."""
    second = a.square_first_fused_stored if half else a.square_first_fused
    decay = a.decay_factor_stored if half else a.decay_factor
    denominators = (
        (a.reciprocal_stored, a.quotient_stored) if half else (a.reciprocal, a.reciprocal_host_separate, a.quotient)
    )
    for denominator in denominators:
        yield Algorithm(first, second, a.in_double, decay, denominator, a.quotient_fused, stored=half)
    folded, divided = (a.folded_stored, a.divided_stored) if half else (a.folded, a.divided)
    for biases, denominator in ((SINGLE_BIASES, folded), (LIST_BIASES, divided)):
        for bias in biases:
            yield Algorithm(first, second, bias, decay, denominator, a.plain_quotient, stored=half)


def _stored_operations() -> Iterator[Algorithm]:
    """Inductor under emulate_precision_casts, in torch 2.11 and in 2.13."""
    for first in (a.lerp_stored, a.lerp_separate):
        for second, update in (
            (a.square_stored_first_fused, a.stored_quotient_fused),
            (a.square_stored_products, a.stored_quotient_separate),
        ):
            for denominator in (a.quotient_stored_root, a.quotient_stored):
                for bias in SINGLE_BIASES:
                    yield Algorithm(
                        first, second, bias, a.decay_factor_stored, denominator, update, a.l2_stored, stored=True
                    )


def hand_written(problem: Problem, fuses: bool = True) -> Algorithm:
    """The Triton step (`verify.kernels.triton.adam`), or what an interpreter makes of it whose fma rounds twice."""
    near = problem.scalars["beta1"] > 0.5
    if not fuses:
        return Algorithm(
            a.lerp_separate if near else a.lerp_one_sided, a.square_lerp, a.in_double, a.decay_host_separate,
            a.reciprocal_host_separate, a.quotient_separate, a.l2_separate,
        )  # fmt: skip
    return Algorithm(
        a.lerp_fused if near else a.lerp_one_sided_fused, a.square_lerp_fused, a.in_double, a.decay_host,
        a.reciprocal_host, a.quotient_fused, a.l2_fused,
    )  # fmt: skip
