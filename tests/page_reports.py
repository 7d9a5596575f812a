"""Reports for the tests of the page: two devices, failures, binades, outputs of a composite kernel, hostile names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sample_reports import cell, cell_of, deviating, error, not_run, region, report, report_of, worst_at

ENVIRONMENT = {
    "cpu": {"backend": "cpu", "chip": "Test CPU", "capability": "AVX2", "torch": "2.13.0"},
    "cuda": {"backend": "cuda", "chip": "Test GPU", "capability": "sm_90", "torch": "2.11.0"},
    "rocm absent": "torch finds no ROCm device",
}

#: What must come out as text: HTML, ends of the elements that hold data, template fields, escapes, overrides.
HOSTILE = (
    "<script>window.hacked=1</script>",
    '</script><img src=x onerror="window.hacked=1">',
    "<!--<script>",
    "$data ${script}",
    '"><svg/onload=window.hacked=1>',
    "javascript:window.hacked=1",
    "\x1b[31mred\x1b]0;title\x07",
    "a\u202eb\u2028c\u2066d",
    "__proto__",
    "a/b?c#d%20&e=~",
)


def binades(*maxima: float, first: int = -3) -> list[dict[str, Any]]:
    return [
        {
            "exponent": first + i,
            "measured": 100 + i,
            "misrounded": i,
            "max_ulp": most,
            "mean_ulp": most / 4,
            "bias_ulp": -most / 8,
        }
        for i, most in enumerate(maxima)
    ]


def library() -> dict[str, Any]:
    """Two kernels, one of two outputs, on two devices; every status that a run gives."""
    cells = []
    for backend, lowerings in (("cpu", ("eager", "inductor")), ("cuda", ("eager", "inductor", "triton"))):
        for lowering in lowerings:
            for number, dtype in enumerate(("float16", "float32")):
                most = 0.25 * (1 + len(lowering) % 5) + 0.001 * number
                eager = lowering == "eager"
                cells.append(
                    cell(
                        lowering=lowering,
                        backend=backend,
                        dtype=dtype,
                        error=error(
                            max_ulp=most * 2 + 5 * (dtype == "float16"),
                            max_scaled_ulp=most,
                            binades=binades(0.5, most, 3000.0, 0.25 + number),
                        ),
                        against_eager=None if eager else {"different": 60, "closer": 41, "farther": 12, "tied": 7},
                        digest=f"{backend}{lowering}{dtype}",
                    )
                )
    cells[3]["status"], cells[3]["reason"] = "exceeds-bound", "scaled_ulp 1.9 exceeds 1.5"
    cells[4]["reason"] = "known deviation: something excused (ulp 3 exceeds 1)"
    cells.append(not_run(lowering="triton", backend="cpu", reason="Triton compiles for GPUs only"))
    for output, most in (("", 0.5), ("exp_avg", 0.25), ("exp_avg_sq", 0.75)):
        cells.append(
            cell(
                kernel="adam_step",
                lowering="eager",
                spelling="steps=10",
                output=output,
                scalars={},
                error=error(max_share=most, max_ulp=4e9, range=0),
                bound={"value": 1.0, "metric": "share", "source": "the formula's own bound", "measured": most},
                worst=[{"index": 3, "inputs": [], "output": "0x1p+0", "exact": "1.5", "ulp": 4e9, "share": most}],
                formula=None,
                against_eager=None,
            )
        )
    return report(*cells, environment=ENVIRONMENT, command="verify run --profile quick")


def hostile() -> dict[str, Any]:
    """Every string that a report's author chooses holds something that would do harm if it were not text."""
    cells = []
    for number, text in enumerate(HOSTILE):
        cells.append(
            cell(
                kernel=text,
                lowering=f"eager{text}",
                spelling=text,
                dtype=text,
                output=text,
                scalars={text: 1.0},
                domain={"kind": text, "size": 1000, "seed": 0, "digest": text},
                reason=text,
                digest=text,
                flags={text: text},
                paths={text: 1},
                worst=[{"index": number, "inputs": [text], "output": text, "exact": text, "ulp": 1.0, "rounded": text}],
                formula={"identified": text, "mismatches": {text + "'": 1}, "witnesses": {text + "'": [text]}},
                bound={"value": 1.5, "metric": "scaled_ulp", "source": text},
                trust=[{"library": text, "bound_ulp": 1.0, "admitted_on": 1}],
                checks=[{"name": text, "inputs": 1, "violations": 1, "witness": [text]}],
                error=error(binades=binades(0.5, 0.75)),
            )
        )
        cells.append(not_run(kernel=text, lowering="triton", reason=text))
    everything = " ".join(HOSTILE)
    environment = {
        "cpu": {"backend": "cpu", "chip": everything, "torch": everything, everything: everything},
        "rocm absent": everything,
        "recorded": {"left out": {"not run": {everything: 1}}},
    }
    return report(*cells, environment=environment, command=everything)


def save(value: dict[str, Any], path: Path) -> Path:
    path.write_text(json.dumps(value))
    return path


def regions() -> dict[str, Any]:
    """A cell that fails in one region and deviates in another, one that deviates alone, one that passed, and two that
    an allowance lets stand, of which one would fail without."""
    environment = {"cpu": {"backend": "cpu", "chip": "Test CPU", "capability": "AVX2", "torch": "2.13.0"}}
    flush = deviating("libdevice-ftz", text="subnormal results are lost", max_ulp=1.3e8, max_share=6.5e7, flushed=9,
                      worst=[worst_at(5, output="0x0p+0")])  # fmt: skip
    wrong = region(status="exceeds-bound", reason={"kind": "bound", "text": "ulp 89.25 exceeds 2"}, max_ulp=89.25,
                   max_share=44.6, worst=[worst_at(7)])  # fmt: skip
    open_ = region(status="unbounded", reason={"kind": "no-bound", "text": "no bound is declared"}, bound=None)
    return report_of(
        cell_of({"subnormal-result": flush, "normal": wrong}, lowering="triton"),
        cell_of({"subnormal-result": flush, "normal": region()}, lowering="inductor"),
        cell_of({"subnormal-result": region(), "normal": region(max_ulp=0.5, max_share=0.2)}, lowering="eager"),
        cell_of({"normal": open_}, lowering="eager-compiled", allowance="no-bound-yet"),
        cell_of(
            {"normal": region()},
            lowering="triton-interpreter",
            status="unsteady",
            reason="bits depend on the call",
            reason_kind="calls",
            allowance="known-to-depend",
        ),
        environment=environment,
    )
