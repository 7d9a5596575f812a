"""Memory that a process shares with the one that it asks: a file that both have mapped."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os

import torch

from verify import backends

Tensor = torch.Tensor
#: Bytes from which on a file is pinned once a GPU is used, to and from which it copies several times as fast then.
PINNED = 1 << 24


class Shared:
    """A file by its descriptor, which the other process has mapped too."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._held: mmap.mmap | None = None
        self._address = 0
        self._pinned: bool | None = None  # None: not tried yet

    def part(self, offset: int, size: int) -> Tensor:
        """uint8 (size,): a part of the file, which grows as needed."""
        if self._held is None or len(self._held) < offset + size:
            self._unpin()
            if os.fstat(self.descriptor).st_size < max(offset + size, 1):
                os.ftruncate(self.descriptor, up(max(offset + size, 1), 1 << 20))
            self._held = mmap.mmap(self.descriptor, 0)
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._held))
        if self._pinned is None and len(self._held) >= PINNED:
            self._pinned = backends.pin(self._address, len(self._held))
        if not size:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self._held, dtype=torch.uint8, count=size, offset=offset)

    def holds(self, address: int) -> bool:
        """Whether an address lies in it."""
        return self._held is not None and self._address <= address < self._address + len(self._held)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at its end a process may have no torch any more
            self._unpin()

    def _unpin(self) -> None:
        if self._pinned:
            backends.unpin(self._address)
        self._pinned = None


def up(size: int, unit: int) -> int:
    """The next multiple of the unit."""
    return -(-size // unit) * unit
