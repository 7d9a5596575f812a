"""Facts that the Adam kernels share: problems, their truth over all steps, the proven bound of an algorithm, and the
formulas that are tried. The recurrences and roundings are `verify.oracles._adam`, lowerings `_adam_lowerings`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from verify.facts.kernel import Composite, Setting, UsageError, drawn_size, in_pairs, lazily, parted, whole_number
from verify.facts.oracle import single

if TYPE_CHECKING:
    from verify.facts.formats import Format
    from verify.facts.kernel import Scalars
    from verify.families.composite import Problem
    from verify.inputs.draws import Draw

DTYPES = ("float32", "bfloat16")
#: In the order of `_adam_lowerings`, which imports torch.
LOWERINGS = (
    "eager",
    "foreach",
    "fused",
    "capturable",
    "capturable-foreach",
    "inductor",
    "inductor-strict",
    "inductor-combo",
    "inductor-foreach",
    "inductor-foreach-combo",
    "inductor-fused",
    "inductor-capturable",
    "inductor-capturable-foreach",
    "triton",
    "triton-interpreter",
)
IMPLEMENTATIONS = "verify.kernels._adam_lowerings"
#: Sizes of a setting's parameters: whole vectors, tails of every kind, and a single element.
SIZES = (2048, 1024, 1000, 16, 7, 1)
#: Sizes for many steps: each step takes milliseconds.
FEW = (1000, 16, 7, 1)
#: Formulas are tried up to so many steps: each costs a millisecond a step, and 10 steps tell them apart.
IDENTIFIED_STEPS = 10
MOST_STEPS = 100_000
MOST_ELEMENTS = 1 << 28
#: float32's largest number, rounded down.
LARGEST = 3.4e38

PARAMETERS: Mapping[str, str] = {
    "steps": "number of steps, at least 1",
    "start": "steps taken before the first; above 0 the averages are drawn, else they are zero",
    "sizes": "elements of each parameter tensor, e.g. 1024x7x1",
    "amsgrad": "0 or 1: divide by the running maximum of exp_avg_sq",
    "maximize": "0 or 1: negate the gradients",
    "master": "0 or 1: bfloat16 parameters and gradients, float32 master copy and averages",
    "gradients": "mixed; large: without those that are small or mostly zeros; faint: with squares below the smallest "
    "normal number; non-finite: with NaN and infinities among them; special: among parameters and averages too; "
    "extreme: these and gradients at the ends of the range, see EXTREME; exact: numbers for EXACT, see there",
}
GRADIENTS = ("mixed", "large", "faint", "non-finite", "special", "extreme", "exact")
#: Scalars with which no algorithm rounds in one step from `gradients=exact`, not even in bfloat16: lr / (1 - beta1),
#: sqrt(1 - beta2) and eps are powers of two, and 1 - lr weight_decay has few bits.
EXACT: Scalars = {"lr": 0.125, "beta1": 0.5, "beta2": 0.75, "eps": 0.25, "weight_decay": 2.0}
#: ... and in many steps: averages that forget at once, and a parameter at rest between decay and update, or
#: alternating.
RESTING: Scalars = {**EXACT, "beta1": 0.0, "beta2": 0.0}
SWINGING: Scalars = {**RESTING, "weight_decay": 0.0}
#: Gradients G (with L2 decay) and second averages v for them, in units of eps and of its square: 3 v + G^2 is the
#: square of 2^k - 1, and so sqrt(v') / sqrt(1 - beta2) + eps is 2^k.
PAIRS = (
    (1, 0), (3, 0), (7, 0), (15, 0), (0, 3), (1, 16), (5, 8), (2, 15), (4, 11), (3, 72), (6, 63), (9, 48),
)  # fmt: skip


# ---------------------------------------------------------------- what is given


def setting(
    name: str, *, quick: bool = False, dtypes: tuple[str, ...] = DTYPES, cases: tuple[Scalars, ...] = (), **given: Any
) -> Setting:
    parameters: dict[str, Any] = {
        "steps": 1, "start": 0, "sizes": list(SIZES), "amsgrad": 0, "maximize": 0, "master": 0, "gradients": "mixed",
    }  # fmt: skip
    given = {key: list(value) if key == "sizes" else value for key, value in given.items()}
    resolves = given.get("gradients") == "exact"
    parameters |= given
    work = 6 * parameters["steps"] * sum(parameters["sizes"])
    return Setting(name, parameters, dtypes, quick, cases, given.get("steps", 1), resolves, work)


def custom(known: Mapping[str, str]) -> Callable[[Mapping[str, str]], Setting]:
    """`Composite.custom` of a kernel that takes the parameters `known`."""

    def parse(given: Mapping[str, str]) -> Setting:
        found: dict[str, Any] = {}
        for name, text in given.items():
            if name not in known:
                raise UsageError(f"--set {name}={text}; expected one of {', '.join(known)}")
            found[name] = _parsed(name, text)
        one = setting("own", **found)
        require(one.parameters)
        return replace(one, dtypes=("bfloat16",)) if one.parameters["master"] else one

    return parse


def _parsed(name: str, text: str) -> Any:
    if name == "gradients":
        if text not in GRADIENTS:
            raise UsageError(f"--set gradients={text}; expected one of {', '.join(GRADIENTS)}")
        return text
    if name != "sizes":
        return whole_number(name, text)
    try:
        return [int(word) for word in text.split("x") if word]
    except ValueError:
        raise UsageError(f"sizes={text}: expected whole numbers joined by x, e.g. 1024x7x1") from None


def require(parameters: Mapping[str, Any]) -> None:
    """Raise UsageError for parameters that make no problem."""
    steps, start, sizes = parameters["steps"], parameters["start"], parameters["sizes"]
    if not 1 <= steps <= MOST_STEPS:
        raise UsageError(f"steps={steps}; expected 1 to {MOST_STEPS}: nothing is compared after no step")
    if not 0 <= start < 1 << 24:
        raise UsageError(f"start={start}; expected 0 to 2^24 - 1, a step count that float32 holds exactly")
    if start + steps > 1 << 24:
        raise UsageError(f"start={start} and steps={steps}; expected at most 2^24 together, what float32 counts to")
    if not sizes:
        raise UsageError("sizes is empty: a list of no parameters; expected one size at least, e.g. sizes=1024x7")
    if min(sizes) < 1 or sum(sizes) > MOST_ELEMENTS:
        raise UsageError(f"sizes={'x'.join(map(str, sizes))}; expected positive numbers, 2^28 at most together")
    for name in ("amsgrad", "maximize", "master"):
        if parameters[name] not in (0, 1):
            raise UsageError(f"{name}={parameters[name]}; expected 0 or 1")


def require_scalars(scalars: Scalars) -> None:
    """Raise UsageError for hyperparameters that torch.optim.Adam refuses, and for those that are no numbers."""
    for name, value in scalars.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise UsageError(f"{name}={value}; expected a finite number")
        if name in ("beta1", "beta2") and not 0 <= value < 1:
            raise UsageError(f"{name}={value}; expected 0 <= {name} < 1")
        if name in ("lr", "eps", "weight_decay") and value < 0:
            raise UsageError(f"{name}={value}; expected {name} >= 0")
        if value > LARGEST:
            raise UsageError(f"{name}={value}; expected at most {LARGEST:g}: kernels take it in float32")


# ---------------------------------------------------------------- inputs

#: Gradients of position j take the recipe j // 16 mod 16: ordinary numbers, four ranges of small ones (around eps,
#: whose squares vanish beside eps^2, whose squares underflow), large and huge ones, and below those, by name.
ALTERNATING, CONSTANT, SPARSE, ZERO, WIDE, POWERS = range(10, 16)
#: Recipes of small ones.
SMALL = range(4, 8)
#: Exponents of faint ones beside half of the smallest normal number's: their squares lie around it, with 1 - beta2.
FAINT = (-8, 6)
#: Exponents of gradients, averages, their squares and parameters that are `extreme`, position by position as recipes
#: are; None: zeros. What is flushed, clamped or left alone shows where nothing larger hides it. Squares of the last
#: leave the range, and of them it is stated only that they are not finite; averages stay in it, corrected or not, and
#: so does what a parameter decays by.
EXTREME = (
    ((-149, -127), (-149, -127), None, (-8, 2)),
    ((-126, -67), (-126, -67), None, (-8, 2)),
    ((-74, -64), (-74, -64), (-149, -127), (-8, 2)),
    (None, (-3, 1), None, (-8, 2)),
    (None, (-3, 1), (-149, -100), (-8, 2)),
    (None, (-140, -124), (-1, 2), (-149, -124)),
    (None, None, (-1, 2), (-126, -67)),
    (None, None, None, (-149, -100)),
    (None, None, (100, 114), (112, 125)),
    ((-3, 1), (-3, 1), (-1, 2), (17, 60)),
    ((-3, 1), (40, 60), (-1, 2), (-8, 2)),
    ((50, 62), None, None, (-8, 2)),
    ((50, 62), (50, 62), (100, 114), (-8, 2)),
    ((60, 62), (61, 62), (108, 114), (-8, 2)),
    ((64, 125), (64, 125), (100, 125), (-8, 2)),
    ((66, 125), (66, 125), (100, 125), (17, 60)),
)
#: How rarely numbers of a state are `special`: one of so many of each tensor.
RARELY = 16
_LOW = (-3, -3, -2, -4, -20, -32, -45, -120, 10, 50, -2, -2, -3, -3, -30, -8)
_HIGH = (1, 1, 1, 0, -10, -22, -35, -100, 20, 58, 0, 1, 1, 1, 5, 4)
#: Step k's gradients are those of step 0 moved by k * STRIDE positions along one stream, which keeps every recipe in
#: its place: 1,000 steps of 10^6 parameters need 1.3 10^6 numbers.
STRIDE = 256


def _stream(dtype: str, length: int, seed: int, kind: str) -> Any:
    """Gradients of the positions 0.. as patterns (int64)."""
    import torch

    from verify.facts.formats import FORMATS
    from verify.inputs.draws import Draw, pack

    fmt = FORMATS[dtype]
    index = torch.arange(length)
    if kind == "extreme":
        return _extreme(Draw(fmt, index, seed, "extreme gradients"), 0)
    recipe = _recipes(index, kind)
    low, high = _exponents(fmt, recipe, kind)
    d = Draw(fmt, index, seed, "gradients")
    fixed = Draw(fmt, index % STRIDE, seed, "fixed gradients")
    bits = d.value(d.integer(low, high))
    bits = fixed.value(fixed.integer(low, high)).where((recipe == CONSTANT) | (recipe == ALTERNATING), bits)
    magnitude, sign = bits & (fmt.sign_bit - 1), (index // STRIDE & 1) * fmt.sign_bit
    bits = (magnitude | sign).where(recipe == ALTERNATING, bits)
    bits = d.signed(pack(fmt, d.integer(low, high), index * 0)).where(recipe == POWERS, bits)
    bits = (bits * 0).where((recipe == SPARSE) & (d.integer(0, 15) != 0), bits)
    bits = d.signed(bits * 0).where(recipe == ZERO, bits)
    if kind in ("non-finite", "special"):
        special = d.pick([fmt.nan_bits, fmt.inf_bits, fmt.inf_bits | fmt.sign_bit])
        bits = special.where((recipe < 4) & (d.integer(0, 31) == 0), bits)
    return bits


def _extreme(d: Draw, column: int) -> Any:
    """Numbers of a column of EXTREME, as patterns. Zeros of a state are +0: what becomes of -0 depends on the
    spelling."""
    import torch

    from verify.inputs.draws import pack

    fmt = d.fmt
    given = [row[column] for row in EXTREME]
    ends = torch.tensor([one or (0, 0) for one in given])
    recipe = d.index // 16 % len(EXTREME)
    low, high = ends[recipe].unbind(-1)
    bits = pack(fmt, d.integer(low, high), d.significand())
    # no subnormal number is rounded away, of which bfloat16 has few
    some = torch.tensor([one is not None for one in given])[recipe]
    bits = bits.clamp(min=1).where(some, 0)
    return bits if column == 2 else d.signed(bits).where(some | (column == 0), bits)


def _exponents(fmt: Format, recipe: Any, kind: str) -> tuple[Any, Any]:
    """The least and the largest of the gradients of each recipe."""
    import torch

    if kind == "faint":
        return tuple(torch.full_like(recipe, fmt.emin // 2 + one) for one in FAINT)  # type: ignore[return-value]
    return torch.tensor(_LOW)[recipe], torch.tensor(_HIGH)[recipe]


def _recipes(index: Any, kind: str) -> Any:
    """The recipe of each position; ordinary ones stand in where all are to be large."""
    recipe = index // 16 % 16
    return (recipe % 4).where(_weak(recipe), recipe) if kind == "large" else recipe


def _weak(recipe: Any) -> Any:
    """Whether L2 decay may outweigh all of its gradients."""
    return (recipe >= SMALL.start) & (recipe < SMALL.stop) | (recipe == SPARSE) | (recipe == ZERO)


def _values(dtype: str, count: int, seed: int, kind: str, coupled: bool) -> tuple[Any, Any, Any]:
    """Parameters, and averages as of training under way, as patterns. coupled: L2 decay feeds the parameter's error
    back into the gradient."""
    import torch

    from verify.facts.formats import FORMATS
    from verify.inputs.draws import Draw, pack

    fmt = FORMATS[dtype]
    index = torch.arange(count)
    if kind == "extreme":
        d = Draw(fmt, index, seed, "extreme parameters")
        first, second, parameter = (_extreme(d, column) for column in (1, 2, 3))
        return parameter, first, second
    recipe = _recipes(index, kind)
    low, high = _exponents(fmt, recipe, kind)
    d = Draw(fmt, index, seed, "parameters")
    # a parameter whose gradient is decay alone must not cross 0, where its error would be as large as itself
    alone = _weak(recipe) & coupled
    exponent = d.integer(-8, 2)
    exponent = exponent.clamp(min=-5).where(alone, exponent)
    exponent = d.integer(5, 10).where(d.integer(0, 7) == 0, exponent)
    parameter = d.value(exponent)
    # +0 only: the sign of a decayed -0 depends on the spelling, p (1 - c) keeps it and p - c p does not
    parameter = (parameter * 0).where((d.integer(0, 15) == 0) & ~alone, parameter)
    first = d.value(d.integer(low - 3, high - 1))
    second = pack(fmt, d.integer(2 * low - 1, 2 * high), d.significand())
    still = (recipe == ZERO) & (index % 2 == 0)
    first, second = (first * 0).where(still, first), (second * 0).where(still, second)
    if kind == "special":  # squares are not negative
        kinds = [fmt.nan_bits, fmt.inf_bits, fmt.inf_bits | fmt.sign_bit]
        parameter, first, second = (
            d.pick(some).where(d.integer(0, RARELY - 1) <= 3 * still, bits)  # what is zero meets each of them
            for bits, some in ((parameter, kinds), (first, kinds), (second, kinds[:2]))
        )
    return parameter, first, second


def _exact(one: Setting, scalars: Scalars, seed: int, coupled: bool) -> dict[str, Any]:
    """Gradient of the one step, parameter, averages and maximum as float64: few bits each, see EXACT and PAIRS."""
    import torch

    from verify.facts.formats import FORMATS
    from verify.inputs.draws import Draw

    eps, steps = EXACT["eps"], one.parameters["steps"]
    d = Draw(FORMATS["float32"], torch.arange(sum(one.parameters["sizes"])), seed, "exact")
    pick = d.integer(0, (len(PAIRS) if steps == 1 else 4) - 1)
    whole, square = (torch.tensor(column, dtype=torch.float64)[pick] for column in zip(*PAIRS, strict=True))
    gradient = whole * (1.0 - 2.0 * d.integer(0, 1).double()) * eps
    parameter = d.integer(-6, 6).double() * eps
    gradient = gradient * (-1.0 if one.parameters["maximize"] else 1.0)
    average = d.integer(-3, 3).double() * eps
    # with the root 7.5 eps (7 where there is no history), or zero
    top = d.integer(0, 1).double() * ((7.5 if steps == 1 else 7.0) * eps) ** 2
    decay = scalars.get("weight_decay", 0.0)
    grads = gradient[None].expand(steps, -1)
    if steps > 1 and decay:  # g / (|g| + eps) + weight_decay p = 0
        root = torch.maximum(gradient.abs(), top.sqrt()) if one.parameters["amsgrad"] else gradient.abs()
        parameter = -gradient / (root + eps) / decay
    elif steps > 1:
        grads = grads * (1.0 - 2.0 * (torch.arange(steps) % 2).double())[:, None]
    elif coupled:
        grads = grads + decay * parameter * (1.0 if one.parameters["maximize"] else -1.0)
    return {
        "grads": grads,
        "param": parameter,
        "exp_avg": average,
        "exp_avg_sq": square * eps**2,
        "max_exp_avg_sq": top,
    }


def problem_of(step: Callable[..., Any]) -> Callable[..., Problem]:
    """`Composite.problem` of the kernel whose real function is `step`."""
    name = step.__name__

    def make(dtype: str, one: Setting, scalars: Scalars, seed: int) -> Problem:
        import torch

        from verify.facts.formats import FORMATS
        from verify.families.composite import Problem
        from verify.inputs.draws import to_tensor
        from verify.numbers.transforms import round_to

        parameters = one.parameters
        require(parameters)
        require_scalars(scalars)
        if parameters["master"] and dtype != "bfloat16":
            raise UsageError(f"master=1 with {dtype}; expected --dtype bfloat16: the parameters, whose copy is float32")
        if dtype not in DTYPES:
            raise UsageError(f"{name} has no {dtype}; expected one of {', '.join(DTYPES)}")
        kept = FORMATS["float32" if parameters["master"] else dtype]
        steps, count = parameters["steps"], sum(parameters["sizes"])
        stream = to_tensor(
            FORMATS[dtype],
            _stream(dtype, count + STRIDE * (steps - 1), seed, parameters["gradients"]),
        )
        coupled = name == "adam_step" and steps > 1 and bool(scalars.get("weight_decay"))
        patterns = _values(kept.name, count, seed, parameters["gradients"], coupled)
        parameter, first, second = (to_tensor(kept, bits) for bits in patterns)
        if not parameters["start"]:
            first, second = torch.zeros_like(first), torch.zeros_like(second)
        grads = stream.as_strided((steps, count), (STRIDE, 1))
        drawn: dict[str, Any] = {}
        if parameters["gradients"] == "exact":
            drawn = _exact(one, scalars, seed, name == "adam_step")
            grads = drawn["grads"].to(stream.dtype)
            parameter, first, second = (drawn[part].to(first.dtype) for part in ("param", "exp_avg", "exp_avg_sq"))
        tensors = {"param": parameter, "grads": grads}
        if parameters["master"]:
            tensors["param"] = round_to(parameter.double(), FORMATS[dtype]).to(stream.dtype)
        tensors |= {"exp_avg": first, "exp_avg_sq": second}
        if parameters["amsgrad"]:
            top = torch.maximum(second, second.roll(1)) if parameters["start"] else second.clone()
            tensors["max_exp_avg_sq"] = drawn["max_exp_avg_sq"].to(top.dtype) if drawn else top
        if parameters["master"]:
            tensors["master"] = parameter
        if name == "adam_ema":
            del tensors["param"]
        extra = {"kernel": name, "step": step, "decoupled": name == "adamw_step", "cache": {}}
        return Problem(tensors, dict(parameters), dict(scalars), dtype, extra, steps)

    return make


def strata(problem: Problem, output: str) -> tuple[tuple[str, ...], Any]:
    """`Composite.strata`: the recipes of the gradients."""
    import torch

    places = torch.arange(problem.tensors["exp_avg"].numel())
    if problem.parameters["gradients"] == "exact":
        return ("exact",), places * 0
    if problem.parameters["gradients"] == "extreme":
        return tuple(f"extreme {k}" for k in range(len(EXTREME))), places // 16 % len(EXTREME)
    names = tuple(f"gradients {low} to {high}" for low, high in zip(_LOW, _HIGH, strict=True))
    return names, _recipes(places, problem.parameters["gradients"])


def kept_format(problem: Problem) -> str:
    """The dtype in which parameters and averages are kept from step to step."""
    return "float32" if problem.parameters["master"] else problem.dtype


# ---------------------------------------------------------------- formulas


def formulas(problem: Problem, backend: Any, output: str) -> Mapping[str, Callable[[], Any]]:
    """`Composite.formulas`: whole algorithms for the parameter and where L2 decay couples all; else one recurrence."""
    if problem.parameters["steps"] > IDENTIFIED_STEPS or problem.parameters["gradients"] == "exact":
        return {}  # too many steps; or all formulas agree
    tried = lazily("verify.kernels._adam_formulas", "candidates")
    found: Mapping[str, Callable[[], Any]] = tried(problem, backend.check_device, output)
    return found


def switches(problem: Problem) -> SimpleNamespace:
    """The switches in `k`, which are not numbers."""
    decay = problem.scalars.get("weight_decay", 0.0)
    decoupled = problem.extra["decoupled"]
    return SimpleNamespace(
        near1=single(1 - problem.scalars["beta1"]) < 0.5,  # float32, in which lerp decides
        maximizes=bool(problem.parameters["maximize"]),
        amsgrad=bool(problem.parameters["amsgrad"]),
        decays=bool(decay) and decoupled,
        couples=bool(decay) and not decoupled,
    )


def steps_of(problem: Problem) -> Iterator[int]:
    """Step counts as the bias corrections take them."""
    start = problem.parameters["start"]
    return iter(range(start + 1, start + 1 + problem.parameters["steps"]))


def states(problem: Problem) -> tuple[Any, Any, Any, Any]:
    """p, m, v, x before the first step, as tensors or None."""
    t = problem.tensors
    parameter = t.get("master", t.get("param"))
    return parameter, t["exp_avg"], t["exp_avg_sq"], t.get("max_exp_avg_sq")


def defined(one: Setting) -> tuple[str, ...]:
    """The outputs that a setting of a step has."""
    parts = {"max_exp_avg_sq": one.parameters["amsgrad"], "master": one.parameters["master"]}
    return tuple(name for name in PLACES if parts.get(name, True))


#: Place of each output in a state.
PLACES = {"param": 0, "exp_avg": 1, "exp_avg_sq": 2, "max_exp_avg_sq": 3, "master": 0}


# ---------------------------------------------------------------- kernels

STALLS = (
    "a bfloat16 average stalls: a step by (1 - beta)(g - m) is less than half its last place where beta is near 1; "
    "over 1,000 steps the proven bound is as large as the numbers themselves"
)
FEEDS_BACK = (
    "L2 decay is a part of the gradient, and an error of the parameter with it: where no gradient outweighs it, "
    "nothing is proved after many steps; so 100 steps with decay have large gradients, in float32 (bfloat16: 10 steps)"
)
NOTES = (
    "settings with start above 0 resume from drawn averages: after one step from zero, formulas of the averages agree",
    STALLS,
    FEEDS_BACK,
)
#: Keywords of a user's own lowering besides parameters and scalars.
TENSORS = {
    "max_exp_avg_sq": "a tensor, where amsgrad is 1",
    "master": "0, or 1: a float32 tensor holds the parameters and param is its rounded copy",
}
AVERAGES = """\
        g = (-grad if maximize else grad).to(m.dtype)
{decay}        m = torch.lerp(m, g, 1 - beta1)
        v = (v * beta2).addcmul(g, g, value=1 - beta2)
"""
EMA = f"""\
def adam_ema(grads, exp_avg, exp_avg_sq, beta1, beta2, maximize):
    m, v = exp_avg, exp_avg_sq
    for grad in grads:  # of shape (steps, elements)
{AVERAGES.format(decay="")}\
    return {{"exp_avg": m, "exp_avg_sq": v}}
"""
STEP = f"""\
def {{name}}(
    param, grads, exp_avg, exp_avg_sq, lr, beta1, beta2, eps, weight_decay, start, maximize,
    master, max_exp_avg_sq=None,
):
    wide = torch.is_tensor(master)  # a float32 copy of the parameters
    p, m, v, top = master if wide else param, exp_avg, exp_avg_sq, max_exp_avg_sq
    for t, grad in enumerate(grads, start + 1):  # grads: of shape (steps, elements)
{AVERAGES.format(decay="{decay}")}\
        if top is not None:
            top = torch.maximum(top, v)
        denominator = (v if top is None else top).sqrt() / (1 - beta2**t) ** 0.5 + eps
        p = p.addcdiv(m, denominator, value=-lr / (1 - beta1**t))
    found = {{{{"param": p.to(param.dtype), "exp_avg": m, "exp_avg_sq": v}}}}
    if top is not None:
        found["max_exp_avg_sq"] = top
    if wide:
        found["master"] = p
    return found
"""
#: Every two of which meet in a problem, options as texts and scalars as numbers: few numbers, whole vectors between
#: parts of them, more tensors than a launch takes of five lists each.
TOGETHER: tuple[tuple[Mapping[str, Any], ...], ...] = (
    tuple({"sizes": sizes, "steps": "2"} for sizes in ("33", "2056x7x16", "x".join(["5"] * 40))),
    ({}, {"maximize": "1"}),
    ({}, {"start": "20"}),
)
#: The same of whole steps.
OF_STEPS: tuple[tuple[Mapping[str, Any], ...], ...] = (
    ({}, {"amsgrad": "1"}),
    ({}, {"master": "1"}),
    ({}, {"weight_decay": 0.0}, {"lr": 0.0}),
)
#: Scalars that meet each other and the options, of few numbers: of which some code takes 0 apart, and torch.lerp a
#: weight of 1/2 and more; and those of whole steps.
APART: tuple[tuple[Mapping[str, Any], ...], ...] = (
    ({}, {"beta1": 0.0}, {"beta1": 0.3}),
    ({}, {"beta2": 0.0}, {"beta2": 0.4}),
)
APART_OF_STEPS: tuple[tuple[Mapping[str, Any], ...], ...] = (
    ({}, {"amsgrad": "1"}),
    ({}, {"weight_decay": 0.0}, {"lr": 0.0}),
    ({}, {"eps": 0.0}, {"eps": 0.75}),
)
#: The same of whole vectors and blocks, which code has fast paths for, with gradients of each kind.
WHOLE: tuple[tuple[Mapping[str, Any], ...], ...] = (
    ({"sizes": "1024", "steps": "2"}, {"sizes": "64", "steps": "3"}),
    ({}, {"maximize": "1"}),
    ({}, {"start": "20"}, {"start": "5000"}),
    ({}, {"gradients": "special"}, {"gradients": "extreme"}, {"gradients": "non-finite"}),
    ({}, {"beta1": 0.9, "beta2": 0.999}),
)
WHOLE_OF_STEPS: tuple[tuple[Mapping[str, Any], ...], ...] = (
    ({}, {"amsgrad": "1"}),
    ({}, {"master": "1"}),
    ({}, {"weight_decay": 0.0}),
    ({}, {"eps": 1e-8}),
)
MISALIGNED = ("grads", "exp_avg", "exp_avg_sq")
DECAYS = {
    "adam_step": "        g = g.add(p, alpha=weight_decay) if weight_decay else g\n",
    "adamw_step": "        p = p * (1 - lr * weight_decay)\n",
}


def _drawn(draw: Random, ema: bool) -> dict[str, str]:
    """`Composite.drawn`."""
    sizes = [drawn_size(draw, 3000) for _ in range(drawn_size(draw, 8))]
    found = {"sizes": "x".join(map(str, sizes)), "steps": f"{draw.randrange(1, 5)}"}
    found |= {"start": f"{drawn_size(draw, 1 << 16)}"} if draw.randrange(2) else {}
    switches = ("maximize",) if ema else ("maximize", "amsgrad", "master")
    return found | {name: "1" for name in switches if draw.randrange(2)}


def kernel(
    step: Callable[..., Any], summary: str, settings: tuple[Setting, ...], cases: tuple[Scalars, ...]
) -> Composite:
    """A Composite of the family; `step` is its oracle."""
    name = step.__name__
    ema = name == "adam_ema"
    parameters = {k: v for k, v in PARAMETERS.items() if not ema or k not in ("amsgrad", "master")}
    few = {"steps": "3", "sizes": "33"}
    # options that the settings only combine, and scalars for which code omits terms
    further: tuple[tuple[dict[str, str], Scalars], ...] = (
        (few | {"maximize": "1"}, {}),
        (few, {"beta1": 0.0}),
        # scalars that seem to be none, or another
        (few, {"beta1": 0.8995}),
        (few, {"beta1": 0.9, "beta2": 0.99999}),
        ({"sizes": "300", "steps": "2", "gradients": "faint"}, {"beta1": 0.9, "beta2": 0.999}),
        # more than the 2^16 elements of which a block of torch's fused kernels takes as many
        ({"sizes": "65537", "steps": "1", "start": "5"}, {}),
        # torch's kernels take at most 110 tensors at a time, and a byte counts 256
        ({"sizes": "x".join(["3", "2"] * 130), "steps": "2"}, {}),
        *(({"sizes": "1031", "steps": "2", "start": "3", "gradients": name}, {}) for name in ("special", "extreme")),
        # tensors after one of several of those blocks, also of several smaller ones, and more elements than a grid may
        # take at once
        ({"sizes": "70000x3x5000", "steps": "1"}, {}),
        ({"sizes": "270000", "steps": "1", "start": "2", "maximize": "1"}, {}),
        ({"sizes": "8200", "steps": "2", "start": "3", "gradients": "special"}, {}),
        # any rest of vectors, torch's own scalars
        *(({"sizes": f"{32 + rest}", "steps": "2"}, {}) for rest in range(2, 16)),
        *(({"sizes": "300", "steps": "2"} | more, cases[1]) for more in ({}, {"gradients": "faint"})),
    )
    if not ema:
        special = {"amsgrad": "1", "gradients": "non-finite", "steps": "5", "sizes": "1025"}
        further += (
            (few | {"amsgrad": "1"}, {}),
            # more steps than other problems have
            *((few | {"steps": "12", "start": "5", name: "1"}, {}) for name in ("amsgrad", "master")),
            (special, {}),
            *((special | {"sizes": sizes, "steps": "2"}, {}) for sizes in ("8200", "20000")),
            (few | {"start": "65536"}, {}),  # where a count of 16 bits begins anew
            (few | {"start": "5", "amsgrad": "1", "maximize": "1"}, {}),
            (few, {"weight_decay": 0.0}),
            (few | {"sizes": "300"}, {"weight_decay": 1e-5}),
            *(({"sizes": "300", "steps": "1"} | more, {"eps": 1e-15}) for more in ({}, {"master": "1"})),
            (few, {"lr": 0.0}),
            (few | {"sizes": "80"}, {"eps": 0.0}),
            ({"sizes": "300", "steps": "2"}, cases[2]),
            *(({"sizes": "300", "steps": "2", "master": "1"}, case) for case in cases[1:]),
            # options in more than two blocks, and in less than a vector
            ({"sizes": "20000", "steps": "1", "maximize": "1"}, {"weight_decay": 0.0}),
            *(({"sizes": sizes, "steps": "2", "master": "1"}, {}) for sizes in ("9", "20000")),
            ({"sizes": "9", "steps": "2", "maximize": "1"}, {}),
            (few | {"amsgrad": "1", "maximize": "1"}, {"weight_decay": 0.0}),
            *((few | {"master": "1", name: "1"}, {}) for name in ("master", "maximize", "amsgrad")),
            (few | {"master": "1", "steps": "1", "sizes": "1031"}, {"weight_decay": 0.0}),
            (few | {"master": "1", "start": "7"}, {}),
            (few | {"master": "1", "steps": "1"}, {}),
            *((few | {"master": "1", "start": start}, {"beta1": 0.9, "beta2": 0.999}) for start in ("2100", "7000")),
            (few | {"master": "1", "start": "50000"}, {"beta1": 0.9, "beta2": 0.99999, "lr": 2e-5}),
            (special | {"master": "1"}, {}),
            (few | {"master": "1", "maximize": "1", "amsgrad": "1"}, {}),
            (few | {"master": "1", "amsgrad": "1", "start": "5"}, {}),
            (few | {"master": "1"}, {"lr": 1e-3, "weight_decay": 0.1}),
            (few | {"start": "2000"}, {"beta1": 0.9, "beta2": 0.999}),
            (few | {"start": "9000"}, {"beta1": 0.9, "beta2": 0.999, "lr": 1.0}),
            # where a correction seems to be over, and is not
            (few | {"start": "48"}, {"beta1": 0.9, "beta2": 0.999}),
            *((few | {"start": start}, {"beta1": 0.99, "beta2": 0.999}) for start in ("300", "650")),
            *((few | {"start": start}, {"beta1": 0.995, "beta2": 0.999}) for start in ("700", "1100")),
            (few | {"start": "600"}, {"beta1": 0.999, "beta2": 0.9999}),
            (few | {"start": "1050"}, {"beta1": 0.99, "beta2": 0.99}),
            (few | {"sizes": "64", "start": "300"}, {"beta1": 0.99, "beta2": 0.999}),
            *((few | {"sizes": "300", "start": start}, {"beta2": 0.9999}) for start in ("5000", "50000")),
            # late in the tuning of a large model
            (few | {"start": "50000"}, {"beta1": 0.9, "beta2": 0.99999, "lr": 2e-5}),
            (few | {"start": "20000", "amsgrad": "1"}, {"beta1": 0.9, "beta2": 0.9999}),
            (few | {"start": "5"}, {"weight_decay": 0.0}),
            (few, {"beta2": 0.0}),
            (few, {"lr": 2.0}),
            (few, {"lr": 1.0, "weight_decay": 2.0}),
            *((few | {"sizes": "80", name: "1"}, {"eps": 0.0}) for name in ("amsgrad", "maximize")),
            ({"sizes": "70000", "steps": "3", "start": "5", "amsgrad": "1", "maximize": "1"}, {}),
            *(
                ({"sizes": "1031", "steps": "2", "start": "3", "gradients": name} | more, scalars)
                for name in ("special", "extreme")
                for more, scalars in (
                    ({"amsgrad": "1"}, {}),
                    ({"master": "1"}, {}),
                    # decay hides gradients, and what is infinite
                    ({}, {"weight_decay": 0.0}),
                    ({"amsgrad": "1", "maximize": "1"}, {"weight_decay": 0.0}),
                    ({"master": "1"}, {"weight_decay": 0.0}),
                )
            ),
        )
    pairs = [*in_pairs([*TOGETHER, *([] if ema else OF_STEPS)])]
    for copied in ({},) if ema else ({}, {"master": "1"}):  # of half types alone
        of = [[{"sizes": "33", "steps": "2"} | copied], *TOGETHER[1:], *APART, *([] if ema else APART_OF_STEPS)]
        pairs += in_pairs(of, lambda one: not one.get("lr", 1.0) == one.get("eps", 1.0) == 0.0)  # no step over 0
    pairs += in_pairs([*WHOLE, *([] if ema else WHOLE_OF_STEPS)])
    further += tuple((given, scalars) for given, _, scalars in map(parted, pairs))
    return Composite(
        name=name,
        summary=summary,
        inputs=("grads", "exp_avg", "exp_avg_sq") if ema else ("param", "grads", "exp_avg", "exp_avg_sq"),
        outputs=("exp_avg", "exp_avg_sq") if ema else tuple(PLACES),
        defined=None if ema else defined,
        settings=settings,
        parameters=parameters,
        custom=custom(parameters),
        further=further,
        drawn=partial(_drawn, ema=ema),
        sized=lambda n: ({"sizes": f"{n}", "steps": "2"}, {"sizes": f"{n}x3"}),
        # zero gradients, with which the averages go on, whole chunks of many, and of a tensor after another with the
        # steps' gradients one after another (a problem's own overlap, see STRIDE)
        related=(
            *((few | more, {"grads": "grads * 0"}) for more in ({}, {"sizes": "1"}, {"start": "5"}, {"sizes": "1024"})),
            (
                {"sizes": "1024", "steps": "2"},
                {name: f"torch.cat([{name}[..., :1], {name}], -1)[..., 1:]" for name in MISALIGNED},
            ),
            # a parameter that nothing has reached so far
            (few | {"start": "999"}, {name: f"{name}.abs() * 0" for name in ("exp_avg", "exp_avg_sq")}),
            *([(few | {"start": "5", "amsgrad": "1"}, {"max_exp_avg_sq": "max_exp_avg_sq * 0"})] * (not ema)),
            ({"sizes": "65536", "steps": "1"}, {}),
            ({"sizes": "3x131072", "steps": "2", "start": "5"}, {"grads": "grads.contiguous()"}),
        ),
        crossed=lambda: () if ema else ((few, {"param": "param.repeat_interleave(2)[::2]"}, {"weight_decay": 0.0}),),
        problem=problem_of(step),
        truth=lazily("verify.kernels._adam_truth", "Trajectory"),
        limit=lazily("verify.kernels._adam_algorithms", "limit_of"),
        strata=strata,
        formulas=formulas,
        pointwise=True,
        implementations=IMPLEMENTATIONS,
        lowerings=LOWERINGS,
        cases=cases,
        defaults=cases[1],
        dtypes=DTYPES,
        notes=NOTES,
        ways=lazily("verify.kernels._adam_algorithms", "ways"),
        held="the largest bound of the listed lowerings' algorithms, element by element",
        stub=EMA if ema else STEP.format(name=name, decay=DECAYS[name]),
        keywords={} if ema else TENSORS,
        asks=lambda parameters: tuple(name for name in ("maximize",) + ("start",) * (not ema) if parameters[name]),
    )


def common_settings(cases: tuple[Scalars, ...], decoupled: bool = False) -> tuple[Setting, ...]:
    """cases: the kernel's, the first with all terms visible in bfloat16, the second torch's own."""
    torchs, known, ema = cases[1:2], tuple(cases[0]), "lr" not in cases[0]
    # where an error of the parameter feeds back into the gradient, see FEEDS_BACK
    coupled = tuple(case for case in cases if not (ema or decoupled) and case["weight_decay"])
    free = tuple(case for case in cases if case not in coupled)
    seen = ({**cases[0], "weight_decay": 0.0} if coupled else cases[0],)
    exact, still = (({name: case[name] for name in known},) for case in (EXACT, RESTING if decoupled else SWINGING))
    found = [
        setting("1 step, resumed", start=1000),
        setting("2 steps, resumed early", quick=True, start=3, steps=2),
        setting("10 steps", quick=True, steps=10),
        setting("exact", quick=True, gradients="exact", cases=exact),
        setting("exact, 10 steps", quick=True, gradients="exact", steps=10, cases=still),
        # in float32 others resolve; the bounds of inexact roots do not come to rest, which takes long
        setting("exact, 100 steps", dtypes=("bfloat16",), gradients="exact", steps=100, cases=still),
        setting("exact, 1000 steps", dtypes=("bfloat16",), gradients="exact", steps=1000, cases=still),
        setting("1 step"),
        setting("100 steps", dtypes=("float32",), steps=100, cases=free if coupled else ()),
        setting("100 steps, large", dtypes=("bfloat16",), steps=100, gradients="large", cases=free if coupled else ()),
        setting("1000 steps", dtypes=("float32",), steps=1000, sizes=FEW, cases=torchs),
        setting("1000 steps, short memory", dtypes=("bfloat16",), steps=1000, sizes=FEW, cases=seen),
        setting("non-finite", steps=10, gradients="non-finite"),
    ]
    if coupled:
        found += [setting("100 steps, decay", dtypes=("float32",), steps=100, gradients="large", cases=coupled)]
    if ema:
        found += [setting("maximize", steps=10, maximize=1)]
    else:
        found += [
            setting("amsgrad, maximize", steps=10, amsgrad=1, maximize=1),
            setting("exact, amsgrad, maximize", quick=True, gradients="exact", amsgrad=1, maximize=1, cases=exact),
            setting("exact, amsgrad, 10 steps", gradients="exact", amsgrad=1, steps=10, cases=still),
            setting("master", dtypes=("bfloat16",), steps=10, master=1),
            setting("master, 1000 steps", dtypes=("bfloat16",), steps=1000, sizes=FEW, master=1, cases=torchs),
        ]
    return tuple(found)
