"""Facts about torch._weight_int4pack_mm: a matrix times 4-bit weights, which groups of terms scale and move."""

from __future__ import annotations

from typing import Any

from verify.families import products
from verify.families.products_settings import setting


def call(torch: Any, a: Any, b: Any, scale: Any, zero: Any) -> Any:
    """b (k, n) holds codes from 0 to 15, which each device packs its own way; scale and zero are of (k / group, n)."""
    codes, group = b.mT.contiguous(), a.shape[1] // max(len(scale), 1)
    both = torch.stack([scale, zero], -1)
    if a.device.type == "cpu":
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 2)
        return torch.ops.aten._weight_int4pack_mm_for_cpu(a, packed, group, both)
    if a.storage_offset() * a.element_size() % 16:  # torch does not look, and the device faults (torch 2.11, H200)
        raise ValueError("a must be aligned to 16 bytes: the kernel loads as many at once")
    codes = codes.to(torch.uint8)
    packed = torch.ops.aten._convert_weight_to_int4pack(codes[:, ::2] << 4 | codes[:, 1::2], 2)
    return torch.ops.aten._weight_int4pack_mm(a, packed, group, both)


KERNEL = products.kernel(
    "int4_mm",
    "product of a matrix and 4-bit weights: (code - 8) scale + zero, group by group",
    products.Products(
        triton="verify.kernels.triton.products",
        call=call,
        coded=True,
        stub="(a.float() @ ((b.float() - 8.0) * scale.float().repeat_interleave(group, 0) "
        "+ zero.float().repeat_interleave(group, 0))).to(a.dtype)",
    ),
    dtypes=("float16", "bfloat16"),
    settings=(
        setting("24x256x48", quick=True, m=24, k=256, n=48, group=64, length=1, resolves=True),
        setting("48x1024x64 by 32", m=48, k=1024, n=64, group=32),
        setting("16x4096x32 by 128", m=16, k=4096, n=32, group=128),
        setting("one row", m=1, k=512, n=64, group=256, length=1),
        setting("special", m=30, k=64, n=32, group=32, data="special"),
    ),
    notes=(
        "torch takes groups of 32, 64, 128 or 256 terms and whole tiles of 16 columns",
        "beside an infinite factor, scale or zero an infinity or a NaN is right: which, depends on the order",
    ),
)
