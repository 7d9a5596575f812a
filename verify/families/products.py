"""Matrix products: act(alpha s_i t_j (a b)_ij + beta bias_ij). Here is what one declares.

A kernel is its facts and one call of `kernel`. Beside this module are its matrices (`products_data`) and problems
(`products_settings`), and truth, bounds, lowerings and formulas, which need torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from verify.facts.kernel import Composite, Setting, lazily
from verify.families import products_settings
from verify.families.products_data import Shape, problem, strata
from verify.lower.stubs import expression

if TYPE_CHECKING:
    from verify.families.composite import Problem

Tensor = Any


@dataclass(frozen=True)
class Place:
    """Where a product runs, as far as its algorithm depends on it. architecture: of `verify.numbers.units`, '' where
    there is no matrix unit; operands and result: names of dtypes; bias, scaled: what follows the product; coded: see
    `Products`; capability: the device's, for code that a library has for some alone."""

    lowering: str
    backend: str
    architecture: str
    operands: str
    result: str
    shape: Shape
    scalars: Mapping[str, float]
    bias: bool = False
    scaled: bool = False
    coded: bool = False
    capability: str = ""


@dataclass(frozen=True)
class Products:
    """What the family knows of a kernel.

    call      call(torch, a, b, [scale_a, scale_b,] [bias,] [scale, zero,] **scalars) -> the output, in torch's words
    bias      whether there is a `bias` (n,); `scales`: factors `scale_a` (m, 1) and `scale_b` (1, n) in float32
    activated whether its settings name an activation
    stacked   whether its settings may have a batch
    coded     whether b holds 4-bit codes of weights, with `scale` and `zero` (k / group, n) for each group of k terms
    exact     whether every sum is exact (of integers), so that any other bit is a fault
    result    result(dtype of a and b) -> the format in which outputs are judged
    triton    the module of the Triton kernel, with `run` and `interpreted`
    stub      the start of a user's own lowering, where `call` is not a single expression
    scalars   choices of its scalars, each of which is tried in problems of all kinds, with what `custom` is given too
    """

    call: Callable[..., Any]
    bias: bool = False
    scales: bool = False
    activated: bool = False
    stacked: bool = False
    coded: bool = False
    exact: bool = False
    result: Callable[[str], str] = lambda dtype: dtype
    triton: str | None = None
    stub: str = ""
    scalars: tuple[tuple[Mapping[str, float], Mapping[str, str]], ...] = (({}, {}),)


def _searched(facts: Products, problem: Problem, backend: Any, output: str, y: Tensor) -> Mapping[str, Any]:
    searched = lazily("verify.families.products_formulas", "searched")
    return {} if facts.exact else searched(problem, backend, facts.result(problem.dtype), y)


#: In the order of `products_lowerings`, which imports torch.
LOWERINGS = (
    "eager", "eager-tf32", "eager-allow-tf32", "eager-high", "eager-medium", "eager-full", "eager-fp16-sums",
    "inductor", "inductor-template", "inductor-decompose-k", "triton", "triton-tf32", "triton-tf32x3", "triton-bf16x3",
    "triton-bf16x6", "triton-split-k", "triton-fp16-sums", "triton-promoted", "triton-interpreter",
)  # fmt: skip


def kernel(
    name: str,
    summary: str,
    facts: Products,
    *,
    dtypes: tuple[str, ...] = ("float16", "bfloat16", "float32", "float64"),
    settings: tuple[Setting, ...] = products_settings.SETTINGS,
    cases: tuple[Mapping[str, float], ...] = ({},),
    quick_cases: int = 1,
    defaults: Mapping[str, float] = MappingProxyType({}),
    further: tuple[tuple[Mapping[str, str], Mapping[str, float]], ...] = (),
    notes: tuple[str, ...] = (),
) -> Composite:
    """The facts about one product."""
    inputs = ("a", "b", *(("scale_a", "scale_b") if facts.scales else ()), *(("bias",) if facts.bias else ()),
              *(("scale", "zero") if facts.coded else ()))  # fmt: skip
    scalars = tuple(dict.fromkeys(scalar for case in cases for scalar in case))
    words = (*scalars, "group") if facts.coded else scalars
    told = facts.stub or expression(facts.call, *inputs, **{word: word for word in scalars})
    if facts.activated:
        words = (*words, "activation")
        told = f"{{'none': lambda y: y, 'relu': torch.relu, 'silu': torch.nn.functional.silu}}[activation]({told})"
    return Composite(
        name=name,
        summary=summary,
        inputs=inputs,
        settings=tuple(replace(one, dtypes=dtypes) for one in settings),
        parameters={
            k: v
            for k, v in products_settings.PARAMETERS.items()
            if {"batch": facts.stacked, "activation": facts.activated, "group": facts.coded}.get(k, True)
        },
        custom=functools.partial(products_settings.custom, dtypes=dtypes, coded=facts.coded),
        sized=functools.partial(products_settings.sized, stacked=facts.stacked, coded=facts.coded),
        further=(
            *((one, {}) for one in (*products_settings.forms(facts), *products_settings.extremes(facts))),
            *further,
        ),
        drawn=functools.partial(products_settings.drawn, facts),
        related=products_settings.related(facts),
        crossed=functools.partial(products_settings.crossed, facts),
        many=products_settings.many(facts),
        again=products_settings.again(facts),
        problem=functools.partial(problem, facts=facts),
        truth=functools.partial(lazily("verify.families.products_truth", "Truths"), facts),
        limit=lazily("verify.families.products_limits", "limit"),
        orders=not facts.exact,
        strata=functools.partial(strata, facts=facts),
        family=facts,
        searched=functools.partial(_searched, facts),
        asks=lambda parameters: ("activation",) * (parameters.get("activation", "none") != "none"),
        implementations="verify.families.products_lowerings",
        lowerings=LOWERINGS,
        dtypes=dtypes,
        cases=cases,
        quick_cases=quick_cases,
        defaults=defaults,
        ways=lazily("verify.families.products_limits", "ways"),
        held="sums of products in 32-bit integers"
        if facts.exact
        else "sums of exact products in float32 (float64 of float64) in any order, or by the device's "
        "matrix unit in any pieces, rounded to the result's dtype before or after what follows"
        + ("; weights in float32 or in the dtype, rounded after each operation" if facts.coded else "")
        + ("; silu with exp(-y) within 2 ULP, or as exp2(-y log2(e))" if facts.activated else ""),
        stub=f"def {name}({', '.join((*inputs, *words))}):\n    return {told}\n",
        notes=notes,
    )
