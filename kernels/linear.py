"""Facts about torch.nn.functional.linear with an activation after it."""

from __future__ import annotations

from verify.families import products
from verify.families.products_settings import setting

KERNEL = products.kernel(
    "linear",
    "a product of two matrices plus a bias, and an activation of it",
    products.Products(
        triton="verify.kernels.triton.products",
        call=lambda torch, a, b, bias: torch.nn.functional.linear(a, b.mT, bias),
        bias=True,
        activated=True,
    ),
    settings=(
        setting("64x80x48", quick=True, length=1, resolves=True),
        setting("64x80x48 relu", length=1, activation="relu"),
        setting("64x80x48 silu", quick=True, length=1, activation="silu"),
        setting("k=0", m=6, k=0, n=5, length=1),
        setting("special", m=30, k=32, n=20, data="special", length=1),
        setting("33x517x20 silu", m=33, k=517, n=20, activation="silu"),
        setting("transposed b", m=48, k=96, n=32, layout="transposed-b"),
        setting("128x1024x128 relu", m=128, k=1024, n=128, activation="relu"),
    ),
)
