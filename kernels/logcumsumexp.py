"""Facts about torch.logcumsumexp."""

from __future__ import annotations

from verify.kernels import _scans
from verify.oracles.logcumsumexp import ORACLE

KERNEL = _scans.facts("logcumsumexp", "logarithms of prefix sums of exponentials", ORACLE, _scans.EXPONENTIALS)
