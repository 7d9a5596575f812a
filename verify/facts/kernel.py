"""The facts about a kernel under test: inputs, cases, spellings, bounds, domain, properties.

Files in `kernels/` hold one `KERNEL` each; the registry finds them by file name. No torch here:
spellings receive the torch module when they are launched.
"""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import math
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from verify.facts.oracle import Oracle

METRICS = ("ulp", "int_ulp", "scaled_ulp")
DTYPES = ("float16", "bfloat16", "float32", "float64")
PROFILES = ("quick", "default", "exhaustive")
#: Formats of inputs only, which matrix products take.
NARROW = ("float8_e4m3fn", "float8_e5m2", "int8")
Scalars = Mapping[str, float]
#: How the names of virtual devices begin, whose results are predictions.
VIRTUAL = "virtual-"


def told_apart(scalars: Scalars) -> str:
    """What only the same scalars have: -0.0 equals 0.0, and is another one."""
    return repr(sorted(scalars.items()))


def facts_of(backend: str) -> str:
    """The backend whose bounds, orders and known deviations apply: for a virtual device, the one that it imitates."""
    return backend.removeprefix(VIRTUAL).partition("-")[0] if backend.startswith(VIRTUAL) else backend


class UsageError(Exception):
    """A user's mistake: printed as one line, exit code 2."""


class Unfinished(UsageError):
    """A file of kernels/ or oracles/ from which no kernel can be made; the message names it and its line."""


class NothingToCompare(Exception):
    """Nothing could run, for example because a backend is not present: the reason, exit code 3."""


class BackendAbsent(NothingToCompare):
    """A backend that was asked for is not present."""

    @classmethod
    def of(cls, reasons: Mapping[str, str]) -> BackendAbsent:
        """reasons: by the names of backends."""
        return cls("; ".join(f"backend {name} is not present: {why}" for name, why in reasons.items()))


@dataclass(frozen=True)
class Spelling:
    """One way to call the operation. `call(torch, **inputs)` returns the result tensor.

    `applies(scalars)` says for which cases it exists. `layout` names the arrangement of the
    tensors (see `verify.lower.layouts`; None: contiguous). `quick`: also run by the quick profile. `omits`: the
    scalar that the call leaves out, which has the operation's default.
    """

    call: Callable[..., Any]
    applies: Callable[[Scalars], bool] = lambda scalars: True
    layout: str | None = None
    quick: bool = False
    omits: str = ""


def is_file(lowering: str) -> bool:
    """Whether a lowering is a user's FILE.py:FUNCTION, well-formed or not, rather than a registered name or pattern."""
    return lowering.endswith(".py") or ".py:" in lowering


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether any of the shell patterns matches the name."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def means(pattern: str, lowering: str) -> bool:
    """Whether the shell pattern of a bound, a law or a known deviation matches the lowering. Only '*' and USERS match a
    user's own, whose file may be called inductor.py."""
    return pattern == "*" or (is_file(lowering) == is_file(pattern) and fnmatch.fnmatchcase(lowering, pattern))


USERS = "*.py:*"  # the pattern of all lowerings of users' own


@dataclass(frozen=True)
class Bound:
    """An error limit that a lowering must keep on elements inside the normal range.

    `metric` is one of METRICS; `value` is in that metric. `lowering`, `backend` and `spelling`
    are shell patterns. `truth` is 'exact' (scalars as given) or 'rounded' (scalars rounded to
    the operands' dtype). `source` cites a specification, a proof or a measurement. `by_scalars`
    gives the bound of a case with these scalars in place of this one.
    """

    value: float
    metric: str
    source: str
    lowering: str = "*"
    backend: str = "*"
    spelling: str = "*"
    dtypes: tuple[str, ...] = DTYPES
    applies: Callable[[Scalars], bool] = lambda scalars: True
    truth: str = "exact"
    by_scalars: Callable[[Scalars], Bound] | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"bound metric {self.metric!r}; expected one of {METRICS}")
        if not self.source:
            raise ValueError("a bound needs a source")

    def suits(self, *, lowering: str, backend: str, spelling: str, dtype: str, scalars: Scalars) -> bool:
        return (
            means(self.lowering, lowering)
            and fnmatch.fnmatchcase(backend, self.backend)
            and fnmatch.fnmatchcase(spelling, self.spelling)
            and dtype in self.dtypes
            and self.applies(scalars)
        )


@dataclass(frozen=True)
class Property:
    """A law that outputs obey whatever the formula, e.g. exact points, symmetry, monotonicity.

    `check(run, inputs)`: `run(**tensors)` launches the lowering; returns a boolean tensor, True
    where the law holds. `inputs` are the case's tensors by name, `run` returns the result tensor.
    `lowerings` and `spellings` are shell patterns of those that promise it.
    """

    name: str
    check: Callable[..., Any]
    applies: Callable[[Scalars], bool] = lambda scalars: True
    lowerings: tuple[str, ...] = ("*",)
    spellings: tuple[str, ...] = ("*",)

    def suits(self, *, lowering: str, spelling: str, scalars: Scalars) -> bool:
        return (
            any(means(pattern, lowering) for pattern in self.lowerings)
            and fits(spelling, self.spellings)
            and self.applies(scalars)
        )


@dataclass(frozen=True)
class Checks:
    """What the tests hold a kernel's oracle and domain to, written apart from both. They demand it of every kernel.

    second     second(**inputs): the real function, otherwise spelled than in the oracle; of Fractions where it is
               `rational`, else of python-flint's arb, whose methods do
    within     within(**inputs), of Fractions: where `second` is defined and affordable, and no saturation row applies
    reference  reference(c, **inputs), of numpy's float64: as IEEE 754 evaluates it with the C library `c`, to the
               class of every result (default: the C library's function of the kernel's name)
    corners    by name: corner(format, values, t, s), of float64 tensors (inputs by name, the result and its scale): a
               kernel wrong there alone must be caught, so that the default domain must aim at it
    in_cases   corners of further cases of scalars than the first: (scalars, corners)
    scalars    cases beside the kernel's that tell its formulas apart
    """

    second: Callable[..., Any]
    corners: Mapping[str, Callable[..., Any]]
    within: Callable[..., bool] = lambda **inputs: True
    reference: Callable[..., Any] | None = None
    rational: bool = False
    in_cases: tuple[tuple[Scalars, Mapping[str, Callable[..., Any]]], ...] = ()
    scalars: tuple[Scalars, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """An operation under test.

    inputs     all parameters of the oracle, in order
    cases      which of them are Python scalars, and their values: {} is all-tensor
    quick_cases  the quick profile runs the first so many cases, in the quick spellings
    spellings  by name; the first that applies to a case is the default
    domain     domain(dtype, tensors, scalars) -> strata (see `verify.inputs.domains`)
    checks     what the tests hold the oracle and the domain to
    stub       the expression that `verify show --stub` begins with where torch's own is not to be copied
    apart      by scalar, numbers that code of this kernel treats apart, or that lie near to such ones: other calls
               have them too
    triton     module with `lowerings()`; imported only on launch
    compiling  how many times as long as usual its lowerings take to compile: those that take long begin first
    """

    name: str
    summary: str
    oracle: Oracle
    inputs: tuple[str, ...]
    spellings: Mapping[str, Spelling]
    domain: Callable[..., Any]
    bounds: tuple[Bound, ...]
    checks: Checks
    cases: tuple[Scalars, ...] = ({},)
    quick_cases: int = 1
    dtypes: tuple[str, ...] = DTYPES
    properties: tuple[Property, ...] = ()
    triton: str | None = None
    notes: tuple[str, ...] = field(default=())
    stub: str = ""
    apart: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    compiling: float = 1.0

    def tensors(self, scalars: Scalars) -> tuple[str, ...]:
        """Names of the inputs that are tensors in the case `scalars`."""
        return tuple(name for name in self.inputs if name not in scalars)

    def default_spelling(self, scalars: Scalars) -> str:
        """The first spelling that applies to a case."""
        return next(name for name, spelling in self.spellings.items() if spelling.applies(scalars))

    def targets(self, profile: str) -> Iterator[tuple[Scalars, str]]:
        """Every (case, spelling) that `profile` runs, in the order declared: under 'default' each case in its default
        spelling, and `some` of them in the others."""
        quick = profile == "quick"
        cases = self.cases[: self.quick_cases] if quick else self.cases
        tried: dict[str, list[Scalars]] = {}
        for number, (name, spelling) in enumerate(self.spellings.items()):
            suited = [scalars for scalars in cases if spelling.applies(scalars)]
            tried[name] = some(suited, number) if profile == "default" else suited
        for scalars in cases:
            first = self.default_spelling(scalars)
            for name, spelling in self.spellings.items():
                if (name == first or scalars in tried[name]) and (spelling.quick or not quick):
                    yield scalars, name

    def bound(self, *, lowering: str, backend: str, spelling: str, dtype: str, scalars: Scalars) -> Bound | None:
        """The first declared bound that suits, or None."""
        for bound in self.bounds:
            if bound.suits(lowering=lowering, backend=backend, spelling=spelling, dtype=dtype, scalars=scalars):
                return bound.by_scalars(scalars) if bound.by_scalars else bound
        return None


def some(cases: Sequence[Scalars], number: int) -> list[Scalars]:
    """Of the cases with the same scalars, the first and one other. `number` picks the other, so that spellings or
    settings that do not run every case run different ones."""
    groups: dict[tuple[str, ...], list[Scalars]] = {}
    for scalars in cases:
        groups.setdefault(tuple(sorted(scalars)), []).append(scalars)
    picked = []
    for group in groups.values():
        picked += group[:1] + ([group[1 + number % (len(group) - 1)]] if len(group) > 1 else [])
    return [scalars for scalars in cases if scalars in picked]


@dataclass(frozen=True)
class Setting:
    """One arrangement of a composite kernel: the cell's spelling, and what it needs to be made.

    `parameters` are JSON values: shape, dim, layout, recipe of the data, mask, steps...
    `dtypes`: those it exists for. `quick`: also run by the quick profile. `cases`: the scalars that it is made for, if
    not the kernel's. `length`: what tells it from longer ones of its kind; `resolves`: its data resolve every output of
    that length, so that other settings of the length, run beside it, need not (0: each for itself). `work`: how long
    it takes, roughly, in elements of a row of `softmax`, by which jobs are ordered.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = DTYPES
    quick: bool = False
    cases: tuple[Scalars, ...] = ()
    length: int = 0
    resolves: bool = False
    work: int = 0


@dataclass(frozen=True)
class Composite:
    """A kernel whose outputs depend on many inputs or many steps: a scan, an optimizer, attention.

    inputs      names of the tensors, in the order in which a lowering takes them
    outputs     names of the tensors it returns, one cell each; ('',) where there is one
    defined     defined(setting) -> those of `outputs` that the setting has; all without it
    settings    what is run, see `Setting`; the first is the default
    parameters  what `--set NAME=VALUE` may give, with a line of help each
    custom      custom(given) -> Setting from NAME -> text; raises UsageError
    batched     batched(rows, length) -> what is given to `custom` for a batch of rows; see `verify.walk.invariance`
    sized       sized(n) -> what is given to `custom` for problems of the size n, in each sense that the kernel has; ()
                where that is too much for a small problem; see `verify.walk.calls_of_problems`
    further     what else a user's own lowering is called with: what is given to `custom`, and other scalars
    drawn       drawn(random.Random) -> what is given to `custom` for a problem of drawn sizes and options
    related     problems in no other layouts, some of whose tensors are made of one another: what is given to `custom`,
                and expressions of the tensors by the name of the one that they take the place of; the same may be two
    crossed     crossed() -> problems in which every two of many conditions meet: what is given to `custom`, expressions
                of the tensors as in `related`, or of each tensor t that they take the place of, and other scalars
    many        problems of too many rows for all to be judged: what is given to `custom`, what for those that are, and
                which these are: expressions of each tensor t that has rows, and under '' of an output
    again       what it is called with twice, with other numbers: the first of `sized(33)` unless given
    problem     problem(dtype, setting, scalars, seed) -> verify.families.composite.Problem, on the host
    truth       truth(problem, device, bounds) -> verify.families.composite.Source
    limit       limit(problem, target, lowering, output) -> verify.families.composite.Limit or None
    orders      whether `limit` asks for the order that a user declares of a lowering of their own (`Lowering.order`)
    strata      strata(problem, output) -> names of the kinds of data, and which of them each element is of (int64, in
                the output's shape)
    family      what the kernel's family keeps of it, see `verify.families`
    formulas    formulas(problem, backend, output) -> {text: function giving the outputs that it predicts}; torch's own
                functions are those of the backend's device, wherever the problem lies
    searched    searched(problem, backend, output, y) -> the same, those that are looked for among many by outputs y;
                of a large output the function may give a `verify.families.composite.Part`
    implementations  module with `lowerings() -> tuple[Lowering, ...]`, the reference first; `build`
                gives a callable of the problem that returns {output: tensor}
    lowerings   their names, in that order: listing them must not import torch
    pointwise   whether each element comes from those at its place alone, and is rounded by itself
    held        what a user's own lowering is held to, in words
    stub        the source of a function that begins one, see `verify.lower.stubs`
    ways        ways(problem, target) -> {text: limit, a function as below}: single algorithms that a user's own may
                run, unless it declares an order; the bound of `limit` is as wide as that of any
    keywords    what it may take by keyword beside the setting's parameters and scalars, with a line of help each;
                `problem` puts them under "keywords" of its `extra`, tensors beyond `inputs` among its tensors
    asks        asks(setting's parameters) -> the names of what the setting asks for that not every function offers: a
                user's own without a parameter of such a name, or of a tensor beyond `inputs`, is not run there
    defaults    what the operation takes for scalars that are left out: a user's own without a parameter for one is run
                where it has that value, or the one that the user names
    spared      those of `inputs`, the last ones, that a user's own may have no parameter for, since some outputs need
                none of them
    cases, quick_cases, dtypes, properties, notes, compiling  as in `Kernel`
    """

    name: str
    summary: str
    inputs: tuple[str, ...]
    settings: tuple[Setting, ...]
    problem: Callable[..., Any]
    truth: Callable[..., Any]
    limit: Callable[..., Any]
    implementations: str
    lowerings: tuple[str, ...]
    held: str
    stub: str
    sized: Callable[[int], tuple[Mapping[str, str], ...]]
    further: tuple[tuple[Mapping[str, str], Scalars], ...] = ()
    drawn: Callable[[Random], Mapping[str, str]] | None = None
    related: tuple[tuple[Mapping[str, str], Mapping[str, str]], ...] = ()
    crossed: Callable[[], tuple[tuple[Mapping[str, str], Mapping[str, str], Scalars], ...]] = tuple
    many: tuple[tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]], ...] = ()
    again: tuple[Mapping[str, str], ...] = ()
    ways: Callable[..., Mapping[str, Callable[..., Any]]] = lambda problem, target: {}
    keywords: Mapping[str, str] = field(default_factory=dict)
    asks: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda parameters: ()
    defaults: Scalars = field(default_factory=dict)
    spared: tuple[str, ...] = ()
    orders: bool = False
    strata: Callable[..., Any] | None = None
    family: Any = None
    outputs: tuple[str, ...] = ("",)
    defined: Callable[..., tuple[str, ...]] | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    custom: Callable[[Mapping[str, str]], Setting] | None = None
    batched: Callable[[int, int], Mapping[str, str]] | None = None
    formulas: Callable[..., Any] | None = None
    pointwise: bool = False
    searched: Callable[..., Any] | None = None
    cases: tuple[Scalars, ...] = ({},)
    quick_cases: int = 1
    dtypes: tuple[str, ...] = DTYPES
    properties: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    compiling: float = 1.0

    def outputs_of(self, setting: Setting) -> tuple[str, ...]:
        """The outputs that the setting has."""
        return self.outputs if self.defined is None else self.defined(setting)

    @property
    def spellings(self) -> dict[str, Setting]:
        return {setting.name: setting for setting in self.settings}


def names() -> list[str]:
    """All registered kernels, by file name in `kernels/`."""
    package = importlib.import_module("verify.kernels")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not (m.ispkg or m.name.startswith("_")))


def load(name: str) -> Kernel | Composite:
    """The kernel `name`. Raises UsageError with near names when there is none, Unfinished where its files are."""
    module = f"verify.kernels.{name}"
    imported = hasattr(sys.modules.get(module), "KERNEL")
    if not imported and name not in (known := names()):  # which looks into the folder
        raise UsageError(suggest("kernel", name, known))
    try:
        kernel = getattr(importlib.import_module(module), "KERNEL", None)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("verify."):
            raise  # a package that is not installed
        raise Unfinished(_unreadable(name, error)) from error
    if not isinstance(kernel, (Kernel, Composite)):
        raise Unfinished(f"kernels/{name}.py defines no KERNEL; expected KERNEL = Kernel(...), see CONTRIBUTING.md")
    if kernel.name != name:
        raise Unfinished(f"kernels/{name}.py names its kernel {kernel.name!r}; expected {name!r}, the file's name")
    return kernel


def finished(known: Iterable[str]) -> tuple[list[Kernel | Composite], list[Unfinished]]:
    """The kernels of these names, and what is wrong with the files of the others."""
    kernels, wrong = [], []
    for name in known:
        try:
            kernels.append(load(name))
        except Unfinished as error:
            wrong.append(error)
    return kernels, wrong


#: Subnormal numbers, and large ones with which products of these are none, as expressions of a tensor of floats.
SUBNORMAL = "{0} * (torch.finfo({0}.dtype).smallest_normal / 8)"
LARGE = "{0} / torch.finfo({0}.dtype).smallest_normal ** 0.5"


def in_pairs(
    options: Sequence[Sequence[Mapping[str, Any]]], fits: Callable[[Mapping[str, Any]], bool] = lambda one: True
) -> Iterator[dict[str, Any]]:
    """Problems in which every two of these options meet, few of them: each takes, option by option, what meets most of
    those that it has not met. Most faults of programs need one or two conditions at once
    (Kuhn, Wallace, Gallo, IEEE Transactions on Software Engineering 30(6), 2004, table 1).

    fits    whether what two or more options give may be part of a problem; where it is, some value of each other option
            is to fit too
    """

    def merged(taken: Mapping[int, int]) -> dict[str, Any]:
        return {k: v for m in sorted(taken) for k, v in options[m][taken[m]].items()}

    kinds = range(len(options))
    left = {(i, a, j, b) for i in kinds for j in kinds if i < j
            for a in range(len(options[i])) for b in range(len(options[j])) if fits(merged({i: a, j: b}))}  # fmt: skip
    while left:
        i, a, j, b = min(left)
        taken = {i: a, j: b}
        for k in (k for k in kinds if k not in taken):
            met = {
                c: sum((*((m, taken[m], k, c) if m < k else (k, c, m, taken[m])),) in left for m in taken)
                for c in range(len(options[k]))
                if fits(merged({**taken, k: c}))
            }
            taken[k] = max(met, key=met.__getitem__)
        left -= {(m, taken[m], n, taken[n]) for m in kinds for n in kinds if m < n}
        yield merged(taken)


def parted(
    one: Mapping[str, Any], tensors: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, str], dict[str, float]]:
    """A problem of `in_pairs` as `Composite.crossed` has it: what is given to `custom`, expressions of `tensors` that
    are not these themselves, and scalars, which are numbers."""
    scalars = {k: v for k, v in one.items() if not isinstance(v, str)}
    made = {k: v for k, v in one.items() if k in tensors and v not in (k, "t")}
    return {k: v for k, v in one.items() if k not in tensors and k not in scalars}, made, scalars


def drawn_size(draw: Random, most: int) -> int:
    """A size from 1 to `most`, small ones as often as large ones: of all, of multiples of a power of two, of powers of
    two, or of the sizes beside these."""
    found = int(2 ** draw.uniform(0, math.log2(most + 1)))
    kind, step, beside = draw.randrange(4), 2 ** draw.randrange(1, 8), draw.choice((-1, 1))
    if kind == 1 and found >= step:
        found -= found % step
    elif kind > 1:
        found = 2 ** (found.bit_length() - 1) + (beside if kind == 3 else 0)
    return min(max(found, 1), most)


def mistake(error: Exception) -> str | None:
    """One line for an error that a file of kernels/ or oracles/ raised itself; None for any other error."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, (AttributeError, KeyError, NameError, TypeError)) or not _is_facts(frames[-1].filename):
        return None
    return _told(frames[-1].filename, frames[-1].lineno, error)


def _unreadable(name: str, error: Exception) -> str:
    """One line: why a kernel's file cannot be imported, with the file to edit, its line, and what Python says."""
    import traceback

    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("verify.oracles."):
        lacking = str(error.name).removeprefix("verify.").replace(".", "/")
        return f"{lacking}.py is missing, which kernels/{name}.py imports"
    if isinstance(error, SyntaxError) and error.filename:
        return _told(error.filename, error.lineno, error)
    frames = (one for one in reversed(traceback.extract_tb(error.__traceback__)) if _is_facts(one.filename))
    return next((_told(one.filename, one.lineno, error) for one in frames), f"kernels/{name}.py: {error}")


def _is_facts(file: str) -> bool:
    return Path(file).parent.name in ("kernels", "oracles")


def _told(file: str, line: int | None, error: Exception) -> str:
    path = Path(file)
    what = str(error).partition(" (")[0] if isinstance(error, (ImportError, SyntaxError)) else str(error)
    kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
    return f"{path.parent.name}/{path.name}, line {line}: {kind}{what}"


def elementwise(name: str) -> Kernel:
    """The kernel `name`, which must not be a composite one. Raises UsageError."""
    kernel = load(name)
    if isinstance(kernel, Composite):
        raise UsageError(f"{name} is a composite kernel; expected an elementwise one")
    return kernel


def elementwise_names() -> list[str]:
    """The registered kernels that are not composite."""
    return [name for name in names() if isinstance(load(name), Kernel)]


def comma_list(text: str) -> list[str]:
    """What stands between commas, without the spaces around it."""
    return [one.strip() for one in text.split(",")]


def whole_number(name: str, text: str) -> int:
    """What `--set NAME=TEXT` gives for a whole number. Raises UsageError."""
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name}={text}: expected a whole number") from None


def lazily(module: str, name: str) -> Callable[..., Any]:
    """The callable `name` of a module that is imported when it is first called: facts are read without torch."""
    return lambda *given, **named: getattr(importlib.import_module(module), name)(*given, **named)


def suggest(what: str, given: str, known: list[str] | tuple[str, ...]) -> str:
    """One line: what was given, the near names, the valid names."""
    near = difflib.get_close_matches(given, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown {what} {given!r}{hint} (known: {', '.join(known) or 'none'})"
