"""The facts about kernels: every target has a sourced bound, names agree, every spelling and property runs."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
import torch

from verify.facts import bounds
from verify.facts.formats import FORMATS
from verify.facts.kernel import (
    DTYPES,
    METRICS,
    Composite,
    Kernel,
    Scalars,
    Spelling,
    UsageError,
    elementwise_names,
    load,
    names,
)
from verify.inputs.domains import domain_of
from verify.inputs.draws import to_tensor
from verify.judge import ledger
from verify.lower.layouts import LAYOUTS
from verify.lower.lowerings import lowering_names
from verify.numbers.ulp import ulp

KERNELS = [load(name) for name in elementwise_names()]
BACKENDS = ("cpu", "cuda", "rocm", "mps")
TARGETS = [
    pytest.param(kernel, scalars, spelling, id=f"{kernel.name}-{dict(scalars)}-{spelling}")
    for kernel in KERNELS
    for scalars, spelling in kernel.targets("default")
]


def by_name(kernel: Kernel) -> str:
    return kernel.name


@pytest.mark.parametrize("kernel", KERNELS, ids=by_name)
def test_every_kernel_says_what_its_oracle_and_domain_are_held_to(kernel: Kernel) -> None:
    """`tests/test_oracles.py` and `tests/test_domains.py` do the rest."""
    checks = kernel.checks
    assert checks.corners, "name the corners of its inputs that a wrong kernel may be wrong in"
    assert tuple(inspect.signature(checks.second).parameters) == kernel.inputs
    assert checks.rational == (kernel.oracle.arithmetic or not kernel.oracle.rows), "a rational function is exact"
    for scalars, corners in checks.in_cases:
        assert corners and set(scalars) <= set(kernel.inputs)


@pytest.mark.parametrize("kernel", KERNELS, ids=by_name)
def test_names_agree_with_the_oracle(kernel: Kernel) -> None:
    oracle = kernel.oracle
    for function in (oracle.function, oracle.scale, oracle.intermediates):
        if function is not None:
            assert tuple(inspect.signature(function).parameters)[1:] == kernel.inputs
    assert oracle.name == kernel.name
    for scalars in kernel.cases:
        assert set(scalars) <= set(kernel.inputs)
        assert kernel.tensors(scalars)
        assert all(isinstance(value, float) for value in scalars.values())
    assert len({tuple(sorted(scalars.items())) for scalars in kernel.cases}) == len(kernel.cases)


@pytest.mark.parametrize("kernel", KERNELS, ids=by_name)
def test_spellings_and_profiles(kernel: Kernel) -> None:
    assert next(iter(kernel.spellings)) == "out-of-place"
    for spelling in kernel.spellings.values():
        assert spelling.layout is None or spelling.layout in LAYOUTS
        assert any(spelling.applies(scalars) for scalars in kernel.cases)
    quick, default = list(kernel.targets("quick")), list(kernel.targets("default"))
    assert [t for t in default if t in quick] == quick
    assert {name for _, name in quick} == {"out-of-place"}
    assert 1 <= len(quick) <= 5
    every = list(kernel.targets("exhaustive"))
    assert [t for t in every if t in default] == default
    for case in kernel.cases:
        assert any(t[0] == case for t in default), "each case is run in some spelling"
    for name, spelling in kernel.spellings.items():
        scalars = {tuple(sorted(case)) for case in kernel.cases if spelling.applies(case)}
        assert scalars == {tuple(sorted(case)) for case, n in default if n == name}, "as tensors and as Python scalars"


def places(kernel: Kernel) -> Iterator[tuple[str, str, str, str, Scalars]]:
    others = ((scalars, kernel.default_spelling(scalars)) for scalars in kernel.checks.scalars)
    for scalars, spelling in (*kernel.targets("default"), *others):
        for lowering in (*lowering_names(kernel), "mine.py:mine"):
            for backend in BACKENDS:
                for dtype in kernel.dtypes:
                    if (backend, dtype) != ("mps", "float64"):  # Metal has no float64
                        yield lowering, backend, spelling, dtype, scalars


@pytest.mark.parametrize("kernel", KERNELS, ids=by_name)
def test_every_target_has_a_bound(kernel: Kernel) -> None:
    used = set()
    for lowering, backend, spelling, dtype, scalars in places(kernel):
        where = {"lowering": lowering, "backend": backend, "spelling": spelling, "dtype": dtype, "scalars": scalars}
        bound = kernel.bound(**where)
        if bound is None:  # then the ledger says so, with the reason
            cell = {"lowering": lowering, "kernel": kernel.name, "dtype": dtype, "spelling": spelling}
            assert ledger.allowance(backend, "unbounded", **cell), where
            continue
        assert bound.metric in METRICS, where
        assert bound.metric != "scaled_ulp" or kernel.oracle.scale is not None, where
        assert len(bound.source) > 30, where
        # Below 1/2 no rounding passes; from 256 on, a float32 result has fewer than 16 correct bits, as it has beside a
        # zero of the function where the error is documented absolutely.
        most = 2.0**27 if "absolutely" in bound.source else 256
        assert 0.5 <= bound.value < most or (bound.metric == "int_ulp" and bound.value >= 0), where
        assert bound.truth in ("exact", "rounded")
        used.add(id(next(one for one in kernel.bounds if one.suits(**where))))
    idle = [bound for bound in kernel.bounds if id(bound) not in used]
    assert not idle, [(b.value, b.metric, b.lowering, b.backend, b.spelling, b.dtypes, b.source) for b in idle]


@pytest.mark.parametrize("kernel", KERNELS, ids=by_name)
def test_scalars_as_tensors_are_judged_against_the_rounded_scalar(kernel: Kernel) -> None:
    """Eagerly such a tensor is rounded; Inductor may fold it as the constant that it was made of."""
    for lowering, backend, spelling, dtype, scalars in places(kernel):
        fmt = FORMATS[dtype]
        represented = all(fmt.fraction(fmt.round(Fraction(s))) == Fraction(s) for s in scalars.values())
        if lowering == "eager" and backend != "mps" and spelling.endswith("as tensor") and not represented:
            bound = kernel.bound(lowering=lowering, backend=backend, spelling=spelling, dtype=dtype, scalars=scalars)
            assert bound is not None
            assert bound.truth == "rounded", (backend, dtype, bound.source)


def test_published_figures_keep_their_metric() -> None:
    for (vendor, function, dtype), figure in bounds.figures().items():
        assert figure.metric in ("ulp", "int_ulp")
        assert figure.value >= 0
        assert dtype in DTYPES
        assert "http" in figure.source
        assert figure.source.startswith(f"{vendor} {function} {dtype}")
    expf = bounds.published("NVIDIA", "exp", "float32")
    assert (expf.value, expf.metric) == (2, "int_ulp")
    assert bounds.published("Intel", "log", "float64").metric == "ulp"
    with pytest.raises(UsageError, match=r"^kernels/vendor_bounds.toml has no figure for NVIDIA gamma float32; add it"):
        bounds.published("NVIDIA", "gamma", "float32")


def test_every_published_figure_is_cited() -> None:
    sources = " ".join(bound.source for kernel in KERNELS for bound in kernel.bounds)
    idle = [key for key, figure in bounds.figures().items() if figure.source not in sources]
    assert idle == []


def test_steps_from_the_rounded_result_in_ulps() -> None:
    """The worst distance n steps allow, by enumeration of a small format around a power of two."""
    fmt = FORMATS["float16"]
    one = fmt.parse("1")
    for n in (1, 2, 4):
        figure = bounds.Published(float(n), "int_ulp", "")
        worst = worst_relative = Fraction(0)
        for sixteenth in range(-6 * 16, 6 * 16 + 1):
            t = 1 + Fraction(sixteenth, 16) * Fraction(1, 2**11)
            ulp = Fraction(1, 2**10) if t >= 1 else Fraction(1, 2**11)
            for steps in (-n, n):
                y = fmt.fraction(fmt.round(t) + steps)
                worst = max(worst, abs(y - t) / ulp)
                worst_relative = max(worst_relative, abs(y - t) / t * 2**11)
        assert n + Fraction(1, 2) < worst <= Fraction(figure.ulps)
        assert worst_relative <= Fraction(figure.roundings) * (1 + Fraction(1, 2**8))
    assert one == fmt.round(Fraction(1))


def test_counting_roundings() -> None:
    (single, double) = bounds.rounded(3, "why")
    assert (single.dtypes, single.value) == (("float32",), 3 / (1 - 3 * 2.0**-24))
    assert (double.dtypes, double.value) == (("float64",), 3 / (1 - 3 * 2.0**-53))
    half, brain = bounds.through_float32(2, "why")
    assert (half.dtypes, half.value) == (("float16",), 0.5 + 2 * 2.0**-13)
    assert (brain.dtypes, brain.value) == (("bfloat16",), 0.5 + 2 * 2.0**-16)
    assert all("why" in b.source for b in (single, double, half, brain))


def test_facts_import_neither_torch_nor_triton() -> None:
    program = (
        "import sys, verify.facts.kernel as k\n"
        "kernels = [k.load(name) for name in k.elementwise_names()]\n"
        "assert kernels\n"
        "print([name for name in ('torch', 'triton', 'numpy', 'mpmath') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def inputs(kernel: Kernel, scalars: Scalars, dtype: str, count: int = 4096) -> dict[str, torch.Tensor]:
    """Elements spread over the quick domain, by name."""
    domain = domain_of(kernel, FORMATS[dtype], scalars, "quick")
    index = torch.linspace(0, domain.size - 1, count).long()
    columns = domain.bits(0, domain.size, "cpu")
    return {name: to_tensor(domain.fmt, c[index]) for name, c in zip(domain.names, columns, strict=True)}


def launch(spelling: Spelling, tensors: dict[str, torch.Tensor], kernel: Kernel, scalars: Scalars) -> torch.Tensor:
    values = {**tensors, **scalars}
    result: torch.Tensor = spelling.call(torch, **{name: values[name] for name in kernel.inputs})
    return result


@pytest.mark.parametrize(("kernel", "scalars", "spelling"), TARGETS)
def test_spellings_run_and_agree(kernel: Kernel, scalars: Scalars, spelling: str) -> None:
    default = kernel.spellings["out-of-place"]
    for dtype in kernel.dtypes:
        tensors = inputs(kernel, scalars, dtype, 512)
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        result = launch(kernel.spellings[spelling], tensors, kernel, scalars)
        fmt, same = FORMATS[dtype], dict(scalars)
        if spelling.endswith("as tensor"):  # of the operands' dtype
            same = {name: float(fmt.fraction(fmt.round(Fraction(value)))) for name, value in scalars.items()}
        expected = launch(default, tensors, kernel, same)
        assert result.dtype == expected.dtype == getattr(torch, dtype)
        assert result.shape == expected.shape
        for name, tensor in tensors.items():
            assert torch.equal(tensor.view(torch.uint8), before[name].view(torch.uint8)), f"{spelling} changes {name}"
        # Another operation, or another order of arguments, would be far off; bounds judge the rest.
        with torch.no_grad():
            near = torch.isclose(result.double(), expected.double(), rtol=0.1, atol=0.0, equal_nan=True)
        assert float(near.double().mean()) > 0.85


PROPERTIES = [
    pytest.param(kernel, property_, scalars, id=f"{kernel.name}-{property_.name}-{dict(scalars)}")
    for kernel in KERNELS
    for property_ in kernel.properties
    for scalars in kernel.cases
    if property_.suits(lowering="eager", spelling="out-of-place", scalars=scalars)
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kernel", "property_", "scalars"), PROPERTIES)
def test_properties_hold_on_eager(kernel: Kernel, property_, scalars: Scalars, dtype: str) -> None:  # type: ignore[no-untyped-def]
    tensors = inputs(kernel, scalars, dtype)
    default = kernel.spellings["out-of-place"]
    holds = property_.check(lambda **given: launch(default, given, kernel, scalars), tensors)
    assert holds.dtype == torch.bool
    assert bool(holds.all()), {name: t[~holds][:3] for name, t in tensors.items() if t.shape == holds.shape}


#: Results spoiled in a way that the property of that kernel must notice.
SPOILED = {
    ("add", "negation"): lambda y: y + y.abs() * 0.01,
    ("add", "commutes"): lambda y: y * launch_count(),
    ("lerp", "w = 0 gives a"): lambda y: y * 1.5,
    ("lerp", "w = 1 gives b"): lambda y: y * 1.5,
    ("sqrt", "sqrt(1) = 1"): lambda y: y * 1.5,
    ("sqrt", "monotone"): lambda y: torch.where(torch.arange(y.numel()) % 7 == 0, -y, y),
    ("tanh", "range"): lambda y: y * 1.5,
    ("div", "sign"): lambda y: torch.where(torch.arange(y.numel()) % 2 == 0, y, y.abs() * launch_count()),
}
_launches = iter(range(1, 10**9))


def launch_count() -> int:
    """Different at every launch: a result that does not only depend on its inputs."""
    return next(_launches)


@pytest.mark.parametrize(("name", "law"), SPOILED)
def test_properties_can_fail(name: str, law: str) -> None:
    kernel = load(name)
    scalars = kernel.cases[0]
    (property_,) = (p for p in kernel.properties if p.name == law)
    default = kernel.spellings["out-of-place"]
    spoil = SPOILED[name, law]
    holds = property_.check(
        lambda **given: spoil(launch(default, given, kernel, scalars)), inputs(kernel, scalars, "float32")
    )
    assert not bool(holds.all())


def test_a_bound_refuses_to_be_unsourced() -> None:
    with pytest.raises(ValueError, match="needs a source"):
        bounds.Bound(1.0, "ulp", "")
    with pytest.raises(ValueError, match="expected one of"):
        bounds.Bound(1.0, "relative", "why")


def test_recursive_powers_count_their_multiplications() -> None:
    """n - 1 multiplications of square and multiply, each counted once by the exponents that it adds up."""

    def roundings(n: int) -> int:
        if n == 1:
            return 0
        return 2 * roundings(n // 2) + 1 + (n % 2)

    pow_ = load("pow")
    for y in (2.0, 3.0, 7.0, 17.0, 31.0):
        bound = pow_.bound(
            lowering="inductor", backend="cuda", spelling="out-of-place", dtype="float32", scalars={"y": y}
        )
        assert bound is not None
        n = roundings(int(y))
        assert n == int(y) - 1
        assert math.isclose(bound.value, 0.5 if n == 1 else n / (1 - n * 2.0**-24))


def test_quick_runs_take_every_case_of_what_calls_draw_nothing_for() -> None:
    """Calls draw other numbers for a scalar from what it is, which leaves 0 as it is."""
    composites = [facts for name in names() if isinstance(facts := load(name), Composite) and facts.cases]
    flags = [facts for facts in composites if 0.0 in facts.cases[0].values()]
    assert flags and all(facts.quick_cases == len(facts.cases) for facts in flags)


@pytest.mark.parametrize("w", [-0.5, -0.7, -1.0, -30.0, 1.5, 2.5, 3.0])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_lerps_two_sided_form_keeps_its_bound_for_any_weight(w: float, dtype: str) -> None:
    """As torch documents it, in float32: of -0.7 it is more than 4 scaled ULP off, where |1 - w| is more than |w|."""
    kernel, fmt = load("lerp"), FORMATS[dtype]
    assert isinstance(kernel, Kernel)
    where = {"lowering": "mine.py:f", "backend": "cpu", "spelling": "out-of-place", "dtype": dtype}
    bound = kernel.bound(**where, scalars={"w": w})
    assert bound is not None and bound.metric == "scaled_ulp"
    one, generator = np.float32, np.random.default_rng(0)
    a, b = (generator.uniform(-1, 1, 20_000).astype(dtype) for _ in range(2))
    b[::2] = (b[::2] * one(2.0**-8)).astype(dtype)
    y = (b.astype(one) - (b.astype(one) - a.astype(one)) * (one(1) - one(w))).astype(dtype)
    worst = Fraction(0)
    for p, q, r in zip(a.tolist(), b.tolist(), y.tolist(), strict=True):
        wd = Fraction(w) * (Fraction(q) - Fraction(p))
        worst = max(worst, abs(Fraction(r) - Fraction(p) - wd) / ulp(abs(Fraction(p)) + abs(wd), fmt))
    assert worst <= Fraction(bound.value)
    assert dtype == "float16" or worst > bound.value / 8


@pytest.mark.parametrize("scalars", [
    {"y": 2 / 3}, {"y": -0.3}, {"y": 12.1}, {"x": 0.7}, {"x": 1.0001}, {"x": 300.3}, {"x": 1e-3},
])  # fmt: skip
def test_powers_in_half_types_count_the_rounding_of_any_scalar(scalars: Scalars) -> None:
    """Of the cases' scalars alone it was counted, and eager's own x^(2/3) was refused in another call."""
    kernel, fmt = load("pow"), FORMATS["float16"]
    assert isinstance(kernel, Kernel)
    bound = kernel.bound(lowering="mine.py:f", backend="cpu", spelling="out-of-place", dtype="float16", scalars=scalars)
    assert bound is not None and bound.metric == "ulp" and bound.truth == "exact"
    every = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)  # positive and finite
    given: dict[str, object] = dict.fromkeys("xy", every)
    with np.errstate(over="ignore", under="ignore"):
        exact, near = (
            np.power(*(given | of).values()) for of in (scalars, {k: np.float32(v) for k, v in scalars.items()})
        )
        y = near.astype(np.float64).astype(np.float32).astype(np.float16)
    normal = np.isfinite(y) & (abs(exact) >= 2.0**-14) & (abs(exact) < 65504)
    assert int(normal.sum()) > 1000
    units = 2.0 ** (np.floor(np.log2(abs(exact[normal]))) - fmt.mantissa_bits)
    worst = float((abs(y[normal].astype(np.float64) - exact[normal]) / units).max())
    assert worst <= bound.value
    if scalars in ({"y": 2 / 3}, {"x": 1.0001}):
        assert worst > 0.50013  # beyond what float32's own error gives
