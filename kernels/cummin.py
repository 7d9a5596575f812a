"""Facts about torch.cummin."""

from __future__ import annotations

from verify.kernels import _scans
from verify.oracles.cummin import ORACLE

KERNEL = _scans.facts("cummin", "running minima", ORACLE, _scans.SUMS, extremes=True)
