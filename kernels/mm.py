"""Facts about torch.mm: the product of two matrices."""

from __future__ import annotations

from verify.families import products

KERNEL = products.kernel(
    "mm",
    "product of two matrices",
    products.Products(triton="verify.kernels.triton.products", call=lambda torch, a, b: torch.mm(a, b)),
)
