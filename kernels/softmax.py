"""Facts about torch.softmax."""

from __future__ import annotations

from verify.kernels import _scans
from verify.oracles.softmax import ORACLE

KERNEL = _scans.facts("softmax", "softmax over a dimension", ORACLE, _scans.EXPONENTIALS)
