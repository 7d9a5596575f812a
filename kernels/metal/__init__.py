"""Metal kernels of our own, for Apple GPUs: a file for each kernel of the registry that has one, in the Metal Shading
Language (MSL). How they are compiled and launched is in `elementwise`; nothing here imports torch before a launch.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Lowering -> floating-point mode of its source (MSL 1.6.3). torch.mps.compile_shader offers no choice (torch 2.13 to
#: 2.15: the mode is read once a process from PYTORCH_MPS_FAST_MATH), so a pragma in the source makes it.
MODES: Mapping[str, str] = {"metal": "safe", "metal-fast": "fast"}
