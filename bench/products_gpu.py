"""What a GPU's matrix products give: a corner of each output, from which tests/test_product_recordings.py is made.

    PYTHONPATH=. python3 bench/products_gpu.py --out products.npz.xz [--backend cuda]

Data are those of `verify kernel mm scaled_mm int4_mm --seed 0`; bit patterns, by 'kernel|lowering|dtype|setting case'.
What a device lacks is left out, and told. Takes a minute on an H200, most of it Inductor's.
"""

from __future__ import annotations

import argparse
import io
import lzma
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

LOWERINGS = ("eager", "eager-fp16-sums", "eager-tf32", "inductor-decompose-k", "inductor-template")
#: Rows and columns that are kept of an output.
CORNER = 24
#: Terms from which Inductor is asked for a template: the autotuner measures each.
LONG = 4096


def recorded(backend: Any) -> dict[str, Any]:
    import numpy as np
    import torch

    from verify.facts.kernel import load
    from verify.families.products_data import Shape
    from verify.lower.lowering import NotLowered, Target
    from verify.lower.lowerings import lowerings

    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    found: dict[str, np.ndarray] = {}
    for name in ("mm", "scaled_mm", "int4_mm"):
        facts: Any = load(name)
        for lowering in (one for one in lowerings(facts) if one.name in LOWERINGS):
            for dtype in facts.dtypes:
                for setting in facts.settings:
                    shape = Shape.of(setting.parameters)
                    if (
                        shape.data != "mixed"
                        or shape.k < 2
                        or (lowering.name == "inductor-template" and shape.k < LONG)
                    ):
                        continue
                    for scalars in facts.cases:
                        told = "".join(f" {key}={value}" for key, value in scalars.items())
                        key = f"{name}|{lowering.name}|{dtype}|{setting.name}{told}"
                        target = Target(facts, dict(scalars), setting.name, dtype, backend)
                        try:
                            if reason := lowering.reason(target):
                                raise NotLowered(reason)
                            problem = facts.problem(dtype, setting, dict(scalars), 0).to(backend.device)
                            y = lowering.build(target)(problem)[""][:CORNER, :CORNER].contiguous()
                        except NotLowered as error:
                            print(f"{key}: {error}", file=sys.stderr)
                            continue
                        found[key] = y.view(words[y.element_size()]).cpu().numpy()
    return found


def dots(device: str) -> dict[str, Any]:
    """a, b, c and y = a b + c of 8-bit floats by `tl.dot` of one warp, from c, whose unit is mma.sync."""
    import numpy as np
    import torch

    from verify.kernels.triton import products

    found: dict[str, np.ndarray] = {}
    for name in ("float8_e4m3fn", "float8_e5m2"):
        draw, dtype = np.random.RandomState(0), getattr(torch, name)

        def drawn(*shape: int, binades: int, draw: Any = draw) -> Any:
            return torch.from_numpy(draw.standard_normal(shape) * np.exp2(draw.randint(-binades, binades + 1, shape)))

        a, b, c = drawn(64, 64, binades=8), drawn(64, 64, binades=8), drawn(64, 64, binades=12).float()
        a, b = (t.clamp(-400, 400).float().to(dtype) for t in (a, b))
        y = products.run(a.to(device), b.to(device), start=c.to(device), warps=1, blocks=(32, 32, 64), precision="ieee",
                         out=torch.float32, options={}, imprecise=0)  # fmt: skip
        for part, t in (
            ("a", a[:CORNER]),
            ("b", b[:, :CORNER]),
            ("c", c[:CORNER, :CORNER]),
            ("y", y[:CORNER, :CORNER]),
        ):
            words = torch.uint8 if t.element_size() == 1 else torch.int32
            found[f"dot|{name}|{part}"] = t.contiguous().view(words).cpu().numpy()
    return found


def main() -> None:
    import numpy as np

    from verify import backends

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", default="cuda")
    given = parser.parse_args()
    held, backend = io.BytesIO(), backends.load(given.backend)
    np.savez(held, **recorded(backend), **(dots(backend.device) if given.backend == "cuda" else {}))
    given.out.write_bytes(lzma.compress(held.getvalue(), preset=9))


if __name__ == "__main__":
    main()
