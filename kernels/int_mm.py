"""Facts about torch._int_mm: int8 matrices multiplied to int32, exactly."""

from __future__ import annotations

from typing import Any

from verify.families import products
from verify.families.products_settings import setting


def call(torch: Any, a: Any, b: Any) -> Any:
    if a.device.type == "cuda" and len(a) <= 16:  # torch's own words name no limit of the kernel (torch 2.11)
        raise ValueError(f"a has {len(a)} rows; torch._int_mm on CUDA takes only more than 16: it must be larger")
    return torch._int_mm(a, b)


KERNEL = products.kernel(
    "int_mm",
    "product of two int8 matrices in int32",
    products.Products(
        triton="verify.kernels.triton.products",
        call=call,
        stub="torch._int_mm(a.contiguous(), b.contiguous())",
        exact=True,
        result=lambda dtype: "float64",
    ),
    dtypes=("int8",),
    settings=(
        setting("32x80x24", quick=True, m=32, k=80, n=24),
        setting("32x4096x8", m=32, k=4096, n=8),  # 2^12 (-128)^2 is beyond 24 bits
        setting("transposed b", m=24, k=96, n=32, layout="transposed-b"),
        setting("1x8x8", m=1, k=8, n=8),
    ),
    notes=(
        "int32 results are judged as the float64 numbers that they are",
        "of operands with strided columns torch._int_mm on the CPU is off by up to 2 in sums beyond 2^24 (torch 2.13)",
    ),
)
