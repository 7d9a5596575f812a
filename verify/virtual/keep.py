"""Launches of Triton kernels kept in a folder as they happen, on a GPU or a virtual one, for `verify.virtual.replay`.

Of each kernel of a lowering the first launch with a grid is kept: its code, its arguments, the memory of its tensors
before, and digests of that memory after. The judge's own launches are not: only calls of lowerings are watched.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from verify.virtual.compile import ASSEMBLY, TARGETS, Argument, Launch, Launcher, Unsupported, unwatched

#: Names the folder, for worker processes too.
VARIABLE = "VERIFY_KEEP_CODE"
#: The most bytes of a launch's memory that are kept; of a larger launch, only code and arguments.
MOST = 1 << 23
#: Elements covered by one digest.
CHUNK = 1 << 12

_seen: set[tuple[str, ...]] = set()


def folder() -> Path | None:
    place = os.environ.get(VARIABLE)
    return Path(place) if place else None


@contextlib.contextmanager
def keeping(label: str) -> Iterator[None]:
    """A context in which launches on the present GPU are kept, where a folder is named; `label` names the lowering."""
    if folder() is None:
        yield
        return
    from triton.runtime import driver

    active = driver.active
    before = active.launcher_cls
    _static_launcher_off()

    class Kept(Launcher):
        """The launcher that Triton would have made, and what it launches."""

        def __init__(self, source: Any, metadata: Any) -> None:
            super().__init__(source, metadata)
            self.real = before(source, metadata)

        def __call__(self, x: int, y: int, z: int, *rest: Any) -> None:
            about = self.metadata.target.backend, self.metadata.target.arch
            name = next((name for name, known in TARGETS.items() if known[:2] == about), "{} {}".format(*about))
            run = functools.partial(self.real, x, y, z, *rest)
            if not _labels:
                run()
                return
            try:
                one = self.launch(name, (x, y, z), rest)
            except Unsupported as why:
                _not_kept(f"{_labels[-1]} {self.metadata.name}: {why}")
                run()
            else:
                keep(_labels[-1], one, run)

    if not getattr(before, "keeps", False):
        Kept.keeps = True  # type: ignore[attr-defined]
        active.launcher_cls = Kept
    _labels.append(label)
    try:
        yield
    finally:
        _labels.pop()


_labels: list[str] = []


def _not_kept(told: str) -> None:
    """Say in the folder what is missing from it."""
    place = folder()
    assert place is not None
    place.mkdir(parents=True, exist_ok=True)
    with (place / "not-kept.txt").open("a") as file:
        file.write(f"{told}\n")


def _static_launcher_off() -> None:
    """Inductor's own launcher bypasses Triton's (torch 2.11: use_static_cuda_launcher, 2.13: ..._triton_...)."""
    from torch._inductor import config

    for option in ("use_static_triton_launcher", "use_static_cuda_launcher"):
        if hasattr(config, option):
            setattr(config, option, False)


@unwatched
def keep(label: str, one: Launch, run: Callable[[], Any]) -> None:
    """Run the launch, and keep it if it is the first of its kind."""
    place = folder()
    if place is not None and ASSEMBLY[TARGETS.get(one.target, ("cuda",))[0]] not in one.files:
        _not_kept(f"{label} {one.name}: its code is not in Triton's cache")
        place = None
    if place is None:
        run()
        return
    code = hashlib.sha256(one.code.encode()).hexdigest()[:16]
    key = (label, one.name, code, str(one.grid))
    if key in _seen:
        run()
        return
    _seen.add(key)
    tensors = {a.name: a.value for a in one.arguments if hasattr(a.value, "untyped_storage")}
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors.values()}
    small = sum(storage.nbytes() for storage in storages.values()) <= MOST
    held = {pointer: _written(place, _bytes(storage)) if small else "" for pointer, storage in storages.items()}
    run()
    record = {
        "label": label,
        "name": one.name,
        "target": one.target,
        "grid": list(one.grid),
        "code": _code(place, one, code),
        "num_warps": int(one.metadata.num_warps),
        "shared": int(one.metadata.shared),
        "enable_fp_fusion": bool(one.metadata.enable_fp_fusion),
        "triton_version": str(one.metadata.triton_version),
        "arguments": [_argument(a, held) for a in one.arguments],
        "after": {name: digests(t) for name, t in tensors.items()} if small else {},
    }
    text = json.dumps(record, indent=1)
    path = place / "launches" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _argument(one: Argument, held: dict[int, str]) -> dict[str, Any]:
    """What replay needs of an argument. storage: the number of the launch's memory, since two may hold equal bytes."""
    told: dict[str, Any] = {"name": one.name, "kind": one.kind}
    if not hasattr(one.value, "untyped_storage"):
        return told | {"value": one.value}
    t, storage = one.value, one.value.untyped_storage()
    return told | {
        "data": held[storage.data_ptr()], "storage": list(held).index(storage.data_ptr()),
        "dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape),
        "stride": list(t.stride()), "offset": t.storage_offset(),
    }  # fmt: skip


def _bytes(storage: Any) -> bytes:
    import torch

    data: bytes = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu().numpy().tobytes()
    return data


def _written(place: Path, data: bytes) -> str:
    """The name of the file that holds the bytes, which other launches share."""
    name = f"{hashlib.sha256(data).hexdigest()[:16]}.xz"
    path = place / "data" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(data, preset=1))
    return name


def _code(place: Path, one: Launch, digest: str) -> str:
    name = f"{one.name[:60]}-{digest}.{ASSEMBLY.get(one.metadata.target.backend, 'txt')}"
    path = place / "code" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(one.code)
    return name


def digests(t: Any) -> list[str]:
    """Of each CHUNK elements in order: 64 bits of the SHA-256 of their bits, NaNs of floating-point dtypes alike."""
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.dtype.itemsize]
    flat = t.detach().cpu().contiguous().reshape(-1)
    if t.dtype.is_floating_point:
        flat = torch.where(flat.isnan(), torch.full_like(flat, float("nan")), flat)
    data = flat.view(whole).numpy().tobytes()
    step = CHUNK * t.dtype.itemsize
    return [hashlib.sha256(data[k : k + step]).hexdigest()[:16] for k in range(0, len(data), step)]
