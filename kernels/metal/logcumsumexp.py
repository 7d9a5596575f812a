"""logcumsumexp(x) along the last dim: a scan of combine(a, b) = log(exp(a) + exp(b)), the maximum plus log1p(exp(-d)).

One thread takes a row and keeps its running sum in float32, so that half types are rounded once an element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from verify.facts.kernel import UsageError
from verify.kernels.metal import MODES
from verify.kernels.metal.arithmetic import EXP, EXP_CONSTANTS
from verify.kernels.metal.elementwise import TYPES, Operation, Operations, definitions, preamble
from verify.lower.lowering import Lowering, Target

if TYPE_CHECKING:
    import torch

    from verify.families.composite import Problem

#: log1p(u) = 2 artanh(s), s = u / (2 + u) <= 1/3, by a minimax polynomial of degree 4 in s^2 (relative error 2^-29.9).
#: Relative errors in units of 2^-24: 1.06 of exp and 1 of its correction by the difference's own rounding error (each
#: counts less than once in log1p), 2 + u, s and the last fma 1 each: log1p(exp(-d)) is good to 5.1 2^-24. The sum with
#: the maximum adds 1/2 ULP of the result.
SAFE = """
inline float log1p_of(float u) {
    float s = u / (2.0f + u);
    float z = s * s;
    float p = fma(z, 0.2322433f, 0.21706575f);
    p = fma(p, z, 0.28592357f);
    p = fma(p, z, 0.39999706f);
    p = fma(p, z, 0.6666667f);
    return fma(s * z, p, 2.0f * s);
}

inline float combine(float a, float b) {
    if (isnan(a) || isnan(b)) {
        return a + b;
    }
    float high = max(a, b);
    float low = min(a, b);
    float d = low - high;
    if (isinf(high) || d < -104.0f) {
        return high;  // exp(-104) is below half of the smallest subnormal
    }
    float back = d + high;
    float error = (low - back) - (high - (back - d));  // low - high = d + error exactly: TwoSum (Knuth 1969)
    float u = accurate_exp(d);
    return high + log1p_of(fma(u, error, u));
}
"""

FAST = """
inline float combine(float a, float b) {
    float high = max(a, b);
    float low = min(a, b);
    return high == low && isinf(high) ? high : high + fast::log(1.0f + fast::exp(low - high));
}
"""

OPERATION = "\ninline float operation(float a, float b) { return combine(a, b); }\n"


def combine(scalar: float | None) -> Operation:
    return Operation(EXP + SAFE + OPERATION, fast=FAST + OPERATION, constants=EXP_CONSTANTS)


#: The combine alone is torch.logaddexp.
OPERATIONS: Operations = {"tt": combine}


def source(dtype: str, mode: str) -> str:
    """A Metal library with the kernel `scan` over rows of `length` elements, a thread a row. mode: 'safe' or 'fast'."""
    kind = TYPES[dtype]
    return (
        f"{preamble(mode)}{definitions(combine(None), mode)}"
        f"kernel void scan(device {kind}* out, device const {kind}* x, constant long& length, "
        "uint row [[thread_position_in_grid]]) {\n"
        "    long first = long(row) * length;\n"
        "    float total = float(x[first]);\n"
        "    out[first] = x[first];\n"
        "    for (long i = first + 1; i < first + length; ++i) {\n"
        "        total = operation(total, float(x[i]));\n"
        f"        out[i] = {kind}(total);\n"
        "    }\n"
        "}\n"
    )


def compiled(dtype: str, mode: str, compiler: Callable[[str], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """The scan over the last dim of a tensor of `dtype`, of at least one dim. `compiler`: the backend's."""
    import torch

    library = compiler(source(dtype, mode))

    def run(x: torch.Tensor) -> torch.Tensor:
        rows = x.contiguous()
        out = torch.empty_like(rows)
        if out.numel():
            length = rows.shape[-1]
            library.scan(out, rows, length, threads=out.numel() // length)
        return out

    return run


def lowerings() -> tuple[Lowering, ...]:
    """The scan along the problem's dim, under safe and under fast math."""
    return tuple(_lowering(name, mode) for name, mode in MODES.items())


def _lowering(name: str, mode: str) -> Lowering:
    def build(target: Target) -> Callable[..., Any]:
        compiler = target.backend.metal_compiler()
        if isinstance(compiler, str):
            raise UsageError(compiler)
        rows = compiled(target.dtype, mode, compiler)

        def run(problem: Problem) -> dict[str, torch.Tensor]:
            dim = problem.parameters["dim"]
            return {"": rows(problem.tensors["x"].movedim(dim, -1)).movedim(-1, dim)}

        return run

    def reason(target: Target) -> str | None:
        compiler = target.backend.metal_compiler()
        return compiler if isinstance(compiler, str) else None

    def ftz(target: Target) -> bool:
        return target.dtype != "float16" and target.backend.flushes("arithmetic")

    return Lowering(name, build, reason, ftz=ftz, flags=lambda target: {"math_mode": mode})
