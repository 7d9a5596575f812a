"""Facts about torch.cummax."""

from __future__ import annotations

from verify.kernels import _scans
from verify.oracles.cummax import ORACLE

KERNEL = _scans.facts("cummax", "running maxima", ORACLE, _scans.SUMS, extremes=True)
