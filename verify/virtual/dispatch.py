"""A mode that sees torch's operators as they are called."""

from __future__ import annotations

import sys
from typing import Any

from torch._compile import _disable_dynamo
from torch.utils._python_dispatch import TorchDispatchMode


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps Dynamo out of its `__torch_dispatch__` as torch does, but does not import it for that, which takes a
    second: where nothing has, nothing is compiled."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # torch asks when a subclass is made
        return "torch._dynamo" in sys.modules

    def __enter__(self) -> Any:
        mine: Any = type(self)
        if mine._should_skip_dynamo() and not hasattr(mine.__torch_dispatch__, "__wrapped__"):
            mine.__torch_dispatch__ = _disable_dynamo(mine.__torch_dispatch__, recursive=True)
        return super().__enter__()  # type: ignore[no-untyped-call]
