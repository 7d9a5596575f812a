"""Facts about torch.sum."""

from __future__ import annotations

from verify.kernels import _scans
from verify.oracles.sum import ORACLE

KERNEL = _scans.facts("sum", "sum over a dimension", ORACLE, _scans.SUMS)
