"""The instructions of compiled code that decide roundings: how many of each, and what they mean in words. From PTX (the
compiler's choice), SASS (ptxas's) and AMDGCN. Nothing is executed. Accuracies are those
of the PTX ISA (9.7.3) and AMD's ISA guides (1 ULP for v_rcp, v_rsq, v_sqrt, v_exp and v_log).
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verify.native import cache, written_at_once
from verify.virtual.compile import TARGETS, Launch

#: Arithmetic, conversions and comparisons of floating-point numbers, with their modifiers.
PTX = re.compile(
    r"^\s*\{?\s*(?:@!?%p\d+\s+)?((?:fma|mul|add|sub|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh|cvt|min|max|mma|wgmma|tcgen05"
    r"|mad|red|atom)(?:\.[a-z0-9_:]+)*\.(?:f16|f16x2|f32|f32x2|f64|bf16|bf16x2|tf32|e4m3|e5m2|kind::\w+)\b[\w.:]*)",
    re.M,
)
SASS = re.compile(
    r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d+\s+)?((?:FFMA|FMUL|FADD|MUFU|DFMA|DMUL|DADD|HFMA2|HADD2|HMUL2|HMMA|HGMMA|UTCHMMA"
    r"|UTCQMMA|QGMMA|DMMA|F2F|F2FP|FRND|F2I|I2F|FCHK|FADD2|FFMA2|FMUL2)\b[\w.]*)"
)
#: How a constant is loaded (zero times zero plus it), which is not the kernel's arithmetic.
SASS_IDIOM = re.compile(r"HFMA2(?:\.MMA)? R\d+, -RZ, RZ, .*")
AMDGCN = re.compile(r"\b(v_[a-z0-9_]*(?:f16|f32|f64|bf16|fp8|bf8)[a-z0-9_]*)")
MODE = re.compile(r"\.amdhsa_((?:float_denorm_mode|float_round_mode)_\w+)\s+(\d+)")

#: Kinds of instructions, by the root of the name without widths and modifiers.
KINDS: Mapping[str, tuple[str, ...]] = {
    "fma": ("fma", "fmac", "fmaak", "fmamk", "fma_mix", "fma_mixlo", "fma_mixhi"),
    "mad": ("mad", "mac"),
    "mul": ("mul",),
    "add": ("add", "sub", "subrev"),
    "div": ("div", "div_scale", "div_fmas", "div_fixup"),
    "approx": ("rcp", "rsqrt", "rsq", "sqrt", "ex2", "lg2", "exp", "log", "sin", "cos", "tanh"),
    "cvt": ("cvt",),
    "matrix": ("mma", "wgmma", "tcgen05", "mfma", "wmma", "smfmac", "dot2", "dot2c"),
}
#: Instructions of a matrix unit; a dot2 is an fma of two products.
MATRIX = re.compile(r"(?:w?g?mma|tcgen05)\.|v_(?:mfma|wmma|smfmac)")
#: Of one that has several shapes, chosen by a block's rows and columns, for integers too. WMMA has one (RDNA ISA, 7.9).
SHAPED = re.compile(r"\b(?:(?:mma|wgmma|tcgen05)\.|v_(?:mfma|smfmac))")


@dataclass(frozen=True)
class Census:
    """Instructions by name, of one or several kernels that a lowering launches.

    assembly   PTX or AMDGCN; sass: of NVIDIA GPUs
    modes      how the kernel sets rounding and subnormals, by AMD's names
    fusion     whether the compiler was allowed to contract
    libraries  of device functions: name -> first 64 bits of the file's SHA-256
    version    Triton's
    shaped     whether a block's size decides which of a matrix unit's instructions it takes
    """

    target: str
    assembly: Mapping[str, int]
    sass: Mapping[str, int] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    fusion: bool = True
    libraries: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    shaped: bool = False

    @property
    def amd(self) -> bool:
        return TARGETS[self.target][0] == "hip"

    def kinds(self) -> dict[str, int]:
        """How many of each of KINDS, and of those that flush subnormals."""
        found = dict.fromkeys((*KINDS, "ftz"), 0)
        for name, count in self.assembly.items():
            for kind in KINDS:
                found[kind] += count * (root(name) in KINDS[kind])
            correct = root(name) in ("div", "sqrt") and ".rn" in name
            found["approx"] -= count * (correct and root(name) == "sqrt")
            found["ftz"] += count * (".ftz" in name)
        return found

    def listed(self) -> list[tuple[str, int]]:
        """Approximations, divisions, roots and matrix products by name."""
        kinds = ("approx", "div", "matrix")
        return sorted((n, k) for n, k in self.assembly.items() if any(root(n) in KINDS[kind] for kind in kinds))

    def record(self) -> dict[str, Any]:
        told = {"assembly": dict(sorted(self.assembly.items())), "sass": dict(sorted(self.sass.items()))}
        return told | {"modes": dict(self.modes), "libraries": dict(self.libraries), "version": self.version}


def root(name: str) -> str:
    """'fma' of 'fma.rn.ftz.f32', 'div_fixup' of 'v_div_fixup_f32', 'fmac' of 'v_dual_fmac_f32_e32'."""
    if not name.startswith("v_"):
        return name.split(".")[0]
    bare = re.sub(r"^v_(?:pk_|dual_|s_)?", "", name)
    if bare.startswith(("mfma", "wmma", "smfmac", "cvt", "dot2")):
        return re.match(r"[a-z]+2?c?", bare)[0]  # type: ignore[index]
    return re.sub(r"_(?:legacy|dx9_zero|i?flag)?_?(?:b?f16|f32|f64|bf16|fp8|bf8).*$", "", bare)


def cubins(launches: Iterable[Launch]) -> list[Path]:
    """The cubins of the launched kernels, each once."""
    return list({one.metadata.hash: one.files["cubin"] for one in launches if one.files.get("cubin")}.values())


def count(launches: Iterable[Launch]) -> Census:
    """The census of all launched kernels, each counted once. Needs at least one launch. `disassembled` counts SASS."""
    assembly: Counter[str] = Counter()
    modes: dict[str, int] = {}
    seen: dict[str, Launch] = {}
    for one in launches:
        if seen.setdefault(one.metadata.hash, one) is not one:
            continue
        if one.files.get("ptx"):
            assembly.update(re.sub(r"::", ".", name) for name in PTX.findall(one.code))
        else:
            assembly.update(name.removesuffix("_e32").removesuffix("_e64") for name in AMDGCN.findall(one.code))
            modes |= {name: int(value) for name, value in MODE.findall(one.code)}
    last = next(reversed(seen.values()))
    about = last.metadata
    shaped = any(SHAPED.search(one.code) for one in seen.values())
    fusion, version = bool(about.enable_fp_fusion), str(about.triton_version)
    return Census(last.target, assembly, {}, modes, fusion, dict(about.linked), version, shaped)


def disassembled(target: str, cubins: Sequence[Path]) -> list[Counter[str]]:
    """Instructions of each file's SASS, by the disassembler in Triton's wheel. Results are cached; new files share one
    process, which takes longer to start than to disassemble a kernel."""
    codes = [_code(cubin.read_bytes()) for cubin in cubins]
    digests = [hashlib.sha256(target.encode() + code).hexdigest()[:24] for code in codes]
    kept = {digest: cache() / "sass" / f"{digest}.json" for digest in digests}
    new = {digest: code for digest, code in zip(digests, codes, strict=True) if not kept[digest].exists()}
    for digest, found in zip(new, _instructions(target, list(new.values())), strict=True):
        with written_at_once(kept[digest]) as partial:
            partial.write_text(json.dumps(found))
    return [Counter(json.loads(kept[digest].read_text())) for digest in digests]


def _instructions(target: str, codes: Sequence[bytes]) -> list[Counter[str]]:
    found: list[Counter[str]] = [Counter() for _ in codes]
    if not codes:
        return found
    from triton import knobs

    ends = list(itertools.accumulate(map(len, codes)))
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(codes))
        file.flush()
        command = [str(knobs.nvidia.nvdisasm.path), "-b", target.replace("sm_", "SM"), "-ndf", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    for line in done.stdout.splitlines():
        if (match := SASS.search(line)) and not SASS_IDIOM.search(line):
            found[bisect.bisect_right(ends, int(match[1], 16))][match[2]] += 1
    return found


def _code(cubin: bytes) -> bytes:
    """The instructions in an ELF file of 64 bits: its sections .text, one behind the other."""
    start, (size, count, strings) = *struct.unpack_from("<Q", cubin, 40), struct.unpack_from("<HHH", cubin, 58)
    heads = [struct.unpack_from("<IIQQQQ", cubin, start + k * size) for k in range(count)]
    names = heads[strings][4]
    return b"".join(
        cubin[place : place + length]
        for name, _, _, _, place, length in heads
        if cubin.startswith(b".text", names + name)
    )


def traits(one: Census) -> dict[str, tuple[str, str]]:
    """By aspect: a key that distinguishes targets, and a predicate in words. Equal keys round alike, as far as these
    instructions go."""
    names = set(one.assembly)
    found: dict[str, tuple[str, str]] = {}

    def first(aspect: str, *choices: tuple[str, str, str]) -> None:
        for pattern, key, words in choices:
            if hit := sorted(name for name in names if re.match(pattern, name)):
                found[aspect] = key or hit[0], words.format(", ".join(hit))
                return

    for width in ("f32", "f64"):
        first(
            f"division {width}",
            (rf"div\.full\..*{width}$", "", "divides by {} (2 ULP)"),
            (rf"div\.approx\..*{width}$", "", "divides by {} (2 ULP)"),
            (rf"div\.rn\..*{width}$|v_div_fixup_{width}$", "rounded", "divides correctly rounded ({})"),
        )
    first(
        "square root",
        (r"sqrt\.approx", "", "takes roots by {}"),
        (r"sqrt\.rn", "rounded", "takes roots correctly rounded ({})"),
        (r"v_sqrt", "", "takes roots by {} (1 ULP before any correction)"),
    )
    first("exponential", (r"ex2\.", "", "takes powers of two by {}"), (r"v_exp_", "", "takes powers of two by {}"))
    first("logarithm", (r"lg2\.", "", "takes logarithms by {}"), (r"v_log_", "", "takes logarithms by {}"))
    if not one.amd or _beyond_division(one):
        first("reciprocal", (r"rcp\.", "", "takes reciprocals by {}"), (r"v_rcp_", "", "takes reciprocals by {}"))
    first("reciprocal root", (r"rsqrt\.|v_rsq_", "", "takes reciprocal roots by {}"))
    first("tanh, sin, cos", (r"(?:tanh|sin|cos)\.|v_(?:sin|cos)_", "", "calls {}"))
    first(
        "bfloat16", (r"(?:fma|mul|add|sub)\..*bf16|v_\w*(?:fma|mul|add|dot2)\w*bf16", "", "computes in bfloat16 ({})")
    )
    first(
        "float16",
        (r"(?:fma|mul|add|sub)\.(?:rn\.)?f16|v_(?:pk_)?(?:fma|mul|add)\w*_f16", "", "computes in float16 ({})"),
    )
    first("matrices", (MATRIX.pattern, "", "multiplies matrices by {}"))
    if flushing := one.kinds()["ftz"]:
        found["subnormals"] = "flushed", f"flushes subnormals in {flushing} instructions (.ftz)"
    elif one.modes.get("float_denorm_mode_32", 3) != 3:
        found["subnormals"] = "flushed", f"flushes subnormals (denorm mode {one.modes['float_denorm_mode_32']})"
    else:
        found["subnormals"] = "kept", "keeps subnormals outside approximations"
    return found


def _beyond_division(one: Census) -> bool:
    """Whether v_rcp serves more than the correctly rounded division, which begins with it."""
    reciprocals = sum(n for name, n in one.assembly.items() if root(name) == "rcp")
    return reciprocals > sum(n for name, n in one.assembly.items() if root(name) == "div_fixup")


def differences(each: Sequence[Census]) -> list[str]:
    """One sentence an aspect in which targets differ, each against the first that has it, under equal flags."""
    told = [(one.target, traits(one)) for one in each]
    sentences = []
    for aspect in dict.fromkeys(name for _, known in told for name in known):
        groups: dict[str, list[tuple[str, str]]] = {}
        for target, known in told:
            key, words = known.get(aspect, ("", f"has no instruction for it ({aspect})"))
            groups.setdefault(key, []).append((target, words))
        (base, *others) = groups.values()
        for group in others:
            who = ", ".join(target for target, _ in group)
            sentences.append(f"{who} {group[0][1]} where {', '.join(t for t, _ in base)} {base[0][1]}")
    return sentences


#: Kinds of SASS, as of the assembly.
SASS_KINDS: Mapping[str, tuple[str, ...]] = {
    "fma": ("FFMA", "DFMA", "HFMA2", "FFMA2"), "mul": ("FMUL", "DMUL", "HMUL2", "FMUL2"),
    "add": ("FADD", "DADD", "HADD2", "FADD2"),
}  # fmt: skip


def executed(one: Census) -> dict[str, int]:
    """fma, mul and add in the GPU's code: SASS, which ptxas may have contracted further, or AMDGCN."""
    if not one.sass:
        return {kind: count for kind, count in one.kinds().items() if kind in SASS_KINDS}
    return {kind: sum(n for name, n in one.sass.items() if name.split(".")[0] in names)
            for kind, names in SASS_KINDS.items()}  # fmt: skip


def contraction(fused: Census, plain: Census) -> str:
    """What permitting contraction changes of what a target executes, in words; '' for nothing."""
    with_it, without = executed(fused), executed(plain)
    if with_it == without:
        return ""

    def told(kinds: Mapping[str, int]) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in kinds.items())

    return f"{fused.target} contracts: it executes {told(with_it)} with fp fusion, {told(without)} without"
