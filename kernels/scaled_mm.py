"""Facts about torch._scaled_mm: 8-bit floats multiplied, scaled by row and column, and given in bfloat16."""

from __future__ import annotations

from typing import Any

from verify.families import products
from verify.families.products_settings import setting


def call(torch: Any, a: Any, b: Any, scale_a: Any, scale_b: Any, *, fast: float) -> Any:
    """b is stored by columns, as the operator wants it."""
    columns = b.mT.contiguous().mT
    scales = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": torch.bfloat16}
    return torch._scaled_mm(a, columns, **scales, use_fast_accum=bool(fast))


KERNEL = products.kernel(
    "scaled_mm",
    "product of two matrices of 8-bit floats, scaled by row and column, in bfloat16",
    products.Products(triton="verify.kernels.triton.products", call=call, scales=True, result=lambda dtype: "bfloat16"),
    dtypes=("float8_e4m3fn", "float8_e5m2"),
    settings=(
        setting("64x128x48", quick=True, m=64, k=128, n=48),
        setting("128x1024x128", m=128, k=1024, n=128),
        setting("16x4096x32", m=16, k=4096, n=32),
    ),
    cases=({"fast": 0.0}, {"fast": 1.0}),
    quick_cases=2,  # of 0 calls draw no other number
    defaults={"fast": 0.0},
    notes=(
        "fast: use_fast_accum, sums that stay in the matrix unit's own format",
        "beside an infinite scale an infinity or a NaN is right: which, depends on what the scale meets",
    ),
)
