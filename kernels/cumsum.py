"""Facts about torch.cumsum."""

from __future__ import annotations

from verify.kernels import _scans
from verify.oracles.cumsum import ORACLE

KERNEL = _scans.facts("cumsum", "prefix sums", ORACLE, _scans.SUMS)
