"""Facts about torch.cumprod."""

from __future__ import annotations

from verify.kernels import _scans
from verify.oracles.cumprod import ORACLE

KERNEL = _scans.facts("cumprod", "prefix products", ORACLE, _scans.PRODUCTS)
