"""What all virtual devices have in common: host tensors stand for the device's memory, and nothing waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from verify.backends import NO_METAL, cores, cpu, load
from verify.facts.kernel import facts_of


@dataclass(frozen=True)
class Device:
    """One model of a device, to be completed by a backend's file (`verify.backends.Virtual`)."""

    #: What it executes, the lowerings that produce it, and whether a user's own may run.
    executes: ClassVar[str] = "Triton kernels"
    lowerings: ClassVar[str] = "triton"
    users: ClassVar[bool] = True

    name: str
    device: str = field(default="cpu", kw_only=True)
    check_device: str = field(default="cpu", kw_only=True)
    elements: int = field(default=1 << 22, kw_only=True)
    portion: int = field(default=1 << 20, kw_only=True)
    launches: int | None = field(default=128, kw_only=True)
    inert_options: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    usual_options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    _used: dict[str, str] = field(default_factory=dict, repr=False, compare=False, kw_only=True)

    @property
    def library(self) -> str:
        return load(facts_of(self.name)).library

    def dtype_unavailable(self, dtype: str) -> str | None:
        return None

    def processes(self) -> list[dict[str, str]]:
        return [{} for _ in range(cores())]

    def resources(self) -> dict[str, float]:
        return cpu.resources()

    def synchronize(self) -> None:
        pass

    @contextmanager
    def poisoned(self, size: int, pattern: int) -> Iterator[None]:
        with cpu.poisoned(size, pattern):
            yield

    def lowering_unavailable(self, name: str) -> str | None:
        if name.startswith(self.lowerings) or (self.users and ".py:" in name):
            return None
        return self.inductor_unavailable() if name.startswith("inductor") else self.others

    def inductor_unavailable(self) -> str | None:
        return self.others

    def inductor(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any] | str:
        return self.inductor_unavailable() or self.others

    @property
    def others(self) -> str:
        return f"a virtual device executes {self.executes}; aten's and others' are not compiled here"

    def metal_compiler(self) -> Callable[[str], Any] | str:
        return NO_METAL

    def modelled(self) -> dict[str, str]:
        told = dict(sorted(self._used.items()))
        self._used.clear()
        return told

    def learn(self, modelled: Mapping[str, str]) -> None:
        self._used.update(modelled)
