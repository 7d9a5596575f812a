"""Facts about torch.bmm: products of two stacks of matrices."""

from __future__ import annotations

from verify.families import products, products_settings

KERNEL = products.kernel(
    "bmm",
    "products of the matrices of two stacks",
    products.Products(triton="verify.kernels.triton.products", call=lambda torch, a, b: torch.bmm(a, b), stacked=True),
    settings=products_settings.BATCHED,
)
