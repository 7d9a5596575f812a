"""ulproof: certified accuracy of optimized GPU kernels against the real number.

The command is `verify`; a run is `verify.walk.run`, the walk of one job `verify.walk.walk`; `check` judges a function
of your own from Python. Importing this package imports neither torch nor triton.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verify.cli.asserting import Inaccurate, assert_accurate, check

__all__ = ["Inaccurate", "__version__", "assert_accurate", "check"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("verify.cli.asserting"), name)  # by its name: it imports torch
