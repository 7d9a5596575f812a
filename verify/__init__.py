"""ulproof: certified accuracy of optimized GPU kernels against the real number.

The command is `verify`; the walk itself is `verify.run`. Importing this package imports
neither torch nor triton.
"""

__version__ = "0.1.0"
