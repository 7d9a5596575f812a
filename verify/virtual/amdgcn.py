"""Assembly of gfx942 executed on the CPU: each thread as a wave of 64 lanes with only the first active.

The hardware has this state: masks, branches and scalar registers mean what they always do, so every thread computes
what it would in a full wave, as long as no instruction looks at other lanes. Those that do are refused by name, like
everything else without a model. The code is translated to LLVM IR, registers being variables, and compiled for
the host; memory is the host's. Source: "AMD Instinct MI300" Instruction Set Architecture reference guide (ISA).
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from verify.virtual import instructions as model
from verify.virtual.compile import Launch, Unsupported
from verify.virtual.ir import (
    BITS,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    SUFFIX,
    VOID,
    Compiled,
    Value,
    constant,
    saturated,
)

TARGET = "gfx942"
#: Lanes of a wave; the workitem's number is a multiple of it in the first.
WAVE = 64
#: What a kernel may read beyond its arguments, as s_load_dwordx8 does.
PADDING = 64

#: Modes of the kernel descriptor that the models assume: round to nearest, subnormals kept, IEEE's NaN.
MODES = {
    "float_round_mode_32": 0, "float_round_mode_16_64": 0, "float_denorm_mode_32": 3, "float_denorm_mode_16_64": 3,
    "ieee_mode": 1, "dx10_clamp": 1, "fp16_overflow": 0, "user_sgpr_dispatch_ptr": 0, "user_sgpr_queue_ptr": 0,
    "user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_dispatch_id": 0, "user_sgpr_private_segment_size": 0,
    "private_segment_fixed_size": 0, "group_segment_fixed_size": 0, "system_sgpr_workgroup_id_x": 1,
    "system_sgpr_workgroup_id_y": 0, "system_sgpr_workgroup_id_z": 0, "system_vgpr_workitem_id": 0,
}  # fmt: skip
#: Instructions without effect on values.
IDLE = frozenset({"s_waitcnt", "s_nop", "s_setprio", "s_sleep", "s_inst_prefetch", "s_waitcnt_depctr"})
#: Beginnings of what concerns other lanes or memory that they share, for a message that says so.
CROSS_LANE = {
    "ds_": "shared memory or other lanes", "v_mfma": "matrix", "v_smfmac": "matrix", "v_readlane": "cross-lane",
    "v_writelane": "cross-lane", "v_readfirstlane": "cross-lane", "v_mbcnt": "cross-lane", "v_permlane": "cross-lane",
    "s_barrier": "barrier", "v_accvgpr": "matrix", "scratch_": "memory of a thread", "s_setreg": "modes",
}  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    """opcode without the suffix of its encoding, operands, and modifiers: 'offset' -> '16', 'op_sel' -> '[1,0]'."""

    opcode: str
    operands: tuple[str, ...]
    modifiers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Program:
    """One kernel: its instructions, where labels point, and how it is entered.

    scalars    number of the scalar register that holds the program's number; 0 and 1 hold the arguments' address
    arguments  offset and size of each, in bytes
    """

    name: str
    code: tuple[Instruction, ...]
    labels: Mapping[str, int]
    scalars: int
    arguments: tuple[tuple[int, int], ...]

    @property
    def modelled(self) -> tuple[str, ...]:
        """The approximate instructions in it, which are models; all others are exact."""
        return tuple(sorted({one.opcode for one in self.code} & model.APPROXIMATE.keys()))


MODIFIER = re.compile(r"(?<=\s)([a-z][a-z_0-9]*):(\[[-\d,]+\]|[\w-]+)")
FLAGS = frozenset({"off", "offen", "nt", "sc0", "sc1", "clamp", "glc", "slc"})
REGISTER = re.compile(r"[vs](?:\d+|\[\d+:\d+\])|(?:vcc|exec)(?:_lo|_hi)?|m0|scc")


@functools.lru_cache(maxsize=64)
def parse(text: str, name: str) -> Program:
    """The kernel `name` of an assembly file. Raises Unsupported for another target, or a mode that is not modelled."""
    if not re.search(rf'\.amdgcn_target "[^"]*--{TARGET}', text):
        raise Unsupported(f"{name}: the code is not for {TARGET}, whose instructions alone are modelled")
    settings = {key: int(value) for key, value in re.findall(r"\.amdhsa_(\w+) (\d+)", text)}
    for mode, expected in MODES.items():
        if settings.get(mode, expected) != expected:
            raise Unsupported(f"{name}: {mode} is {settings[mode]}; the model is of {expected}")
    begin = re.search(rf"^{re.escape(name)}:", text, re.MULTILINE)
    if begin is None:
        raise Unsupported(f"no kernel {name} in the assembly")
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text[begin.end() : text.index(".section", begin.end())].splitlines():
        line = line.split(";")[0].strip()
        if label := re.fullmatch(r"([.\w]+):", line):
            labels[label[1]] = len(code)
        elif line and not line.startswith("."):
            code.append(_instruction(line))
    offsets = [int(n) for n in re.findall(r"^ +(?:- )?\.offset: +(\d+)", text, re.MULTILINE)]
    sizes = [int(n) for n in re.findall(r"^ +(?:- )?\.size: +(\d+)", text, re.MULTILINE)]
    arguments = tuple(zip(offsets, sizes, strict=True))
    return Program(name, tuple(code), labels, settings["user_sgpr_count"], arguments)


def _instruction(line: str) -> Instruction:
    opcode, _, rest = line.partition(" ") if " " in line else line.partition("\t")
    modifiers = dict(MODIFIER.findall(rest))
    rest = MODIFIER.sub("", rest)
    if "sdwa" in opcode:
        modifiers["sdwa"] = "1"
    if "_dpp" in opcode:
        raise Unsupported(f"{opcode} reads other lanes (cross-lane)")
    words = [word.strip() for word in re.split(r",(?![^\[(]*[\])])", rest)]
    flags = {flag for word in words for flag in word.split()[1:]}
    operands = tuple(word.split()[0] for word in words if word)
    return Instruction(re.sub(r"_(e32|e64|sdwa)$", "", opcode), operands, modifiers | dict.fromkeys(flags, "1"), line)


class Lane:
    """The translation of a program: variables for its registers, and instructions as operations on them."""

    def __init__(self, builder: ir.IRBuilder, approximation: str) -> None:
        self.builder, self.approximation = builder, approximation
        self.entry = builder.block
        self.registers: dict[str, Any] = {}
        self.written: set[str] = set()

    # Registers are 32 bits wide: v0, s0, vcc_lo, vcc_hi, exec_lo, exec_hi, m0, scc.

    def variable(self, register: str) -> Any:
        if register not in self.registers:
            start = ir.IRBuilder(self.entry)
            start.position_at_start(self.entry)
            made = self.registers[register] = start.alloca(I32, name=register)
            start.store(ir.Constant(I32, 0), made)
        return self.registers[register]

    def get(self, register: str) -> Value:
        return Value(self.builder, self.builder.load(self.variable(register)))

    def put(self, register: str, value: Value) -> None:
        """Vector registers of inactive lanes keep their values."""
        if register[0] == "v" and register[1].isdigit():
            value = self.active().where(value, self.get(register))
            self.written.add(register)
        self.builder.store(value.value, self.variable(register))

    def active(self) -> Value:
        return (self.get("exec_lo") & 1).to(I1)

    def pair(self, low: str, high: str) -> Value:
        return self.get(low).to(I64) | (self.get(high).to(I64) << 32)

    @staticmethod
    def parts(token: str) -> list[str]:
        """The registers of an operand: 'v3' is one, 'v[2:5]' four, 'vcc' two. Raises Unsupported for anything else."""
        if not REGISTER.fullmatch(token):
            raise Unsupported(f"the operand {token}")
        if found := re.fullmatch(r"([vs])\[(\d+):(\d+)\]", token):
            return [f"{found[1]}{k}" for k in range(int(found[2]), int(found[3]) + 1)]
        return [f"{token}_lo", f"{token}_hi"] if token in ("vcc", "exec") else [token]

    def halves(self, token: str) -> list[str]:
        """Of an operand of packed numbers: two registers, or one constant for both."""
        return self.parts(token) if token[0].isalpha() else [token]

    def read(self, token: str, kind: Any, select: str = "DWORD") -> Value:
        """A source operand as `kind`: register, inline constant or literal, with sign modifiers of floats.

        select: which part of a register SDWA takes, zero-extended, or by its sign where `sext` says so.
        """
        if (extended := re.fullmatch(r"sext\((.*)\)", token)) is not None:
            chosen = self.read(extended[1], I32, select)
            unused = {"BYTE": 24, "WORD": 16, "DWORD": 0}[select.partition("_")[0]]
            return (chosen << unused).arithmetic_shift(chosen.like(unused)).to(kind)
        negated, token = (True, token[1:]) if re.match(r"-[^\d.]", token) else (False, token)
        absolute, token = (True, token[1:-1]) if token[0] == "|" else (False, token)
        if token[0].isalpha():
            names, wide = self.parts(token), kind in (I64, F64)
            if len(names) != 1 + wide:
                raise Unsupported(f"the operand {token} as {kind}")
            value = self.pair(*names) if wide else self.get(names[0])
            if select != "DWORD":
                part, number = select.split("_")
                value = (value >> (int(number) * {"BYTE": 8, "WORD": 16}[part])) & {"BYTE": 0xFF, "WORD": 0xFFFF}[part]
            value = value.to(I16) if kind in (F16, I16) else value
            value = value.bitcast(kind)
        else:
            value = self.literal(token, kind)
        value = abs(value) if absolute else value
        return -value if negated else value

    def literal(self, token: str, kind: Any) -> Value:
        """A number in the code: decimal fractions are values of the operand's width; integers and hexadecimal numbers
        are its bits, for float64 the upper half only."""
        if re.fullmatch(r"-?\d+\.\d+(e[-+]?\d+)?", token):
            number = 0.15915494309189532 if token.startswith("0.15915494") else float(token)  # 1/(2 pi), to full width
            if kind not in BITS:
                (float_kind,) = (one for one, bits in BITS.items() if bits == kind)
                return constant(self.builder, float_kind, number).bits()
            return constant(self.builder, kind, number)
        try:
            word = int(token, 0)
        except ValueError:
            raise Unsupported(f"the operand {token}") from None
        if kind == F64 and token.lower().startswith("0x"):
            word <<= 32
        return constant(self.builder, BITS.get(kind, kind), word).bitcast(kind)

    def write(self, token: str, value: Value) -> None:
        """A destination: 16-bit results clear the upper half of the register."""
        names = self.parts(token)
        bits = value.bits() if value.floats else value
        if bits.type == I64:
            self.put(names[0], bits.to(I32))
            self.put(names[1], (bits >> 32).to(I32))
        else:
            self.put(names[0], bits.to(I32))

    def mask(self, token: str) -> Value:
        """This lane's bit of a mask."""
        return self.read(token, I64).to(I1)

    def write_mask(self, token: str, holds: Value) -> None:
        self.write(token, (holds & self.active()).to(I64))

    def when_active(self, condition: Value | None = None) -> Any:
        holds = self.active()
        return self.builder.if_then((holds if condition is None else holds & condition).value)

    def execute(self, one: Instruction) -> None:
        """Raises Unsupported, which names it, for an instruction without a model."""
        if one.opcode in IDLE:
            return
        if "clamp" in one.modifiers or "mul" in one.modifiers or "div" in one.modifiers:
            raise Unsupported(f"the output modifier in {one.text!r}")
        run = next((run for pattern, run in HANDLERS if pattern.fullmatch(one.opcode)), None)
        if run is None and one.opcode in OPERATIONS:
            run = _plain
        if run is not None:
            known = MODIFIERS.get(run, frozenset())
            whole = one.modifiers.get("dst_sel", "DWORD") == "DWORD" and (
                SELECTS <= known or "sdwa" not in one.modifiers
            )
            if not whole or not one.modifiers.keys() <= known | {"dst_sel", "dst_unused", "sdwa"}:
                raise Unsupported(f"the modifiers of {one.text!r}")
            run(self, one)
            return
        why = next((text for start, text in CROSS_LANE.items() if one.opcode.startswith(start)), None)
        raise Unsupported(f"no model of {one.opcode}" + (f" ({why})" if why else ""))

    def result(self, one: Instruction) -> Value:
        kinds, compute = OPERATIONS[one.opcode]
        selects = [one.modifiers.get(f"src{k}_sel", "DWORD") for k in range(len(kinds))]
        given = [self.read(t, kind, s) for t, kind, s in zip(one.operands[1:], kinds, selects, strict=True)]
        return compute(*given)


# Instructions with one result: the types of their operands, and the result from these.

Compute = Callable[..., Value]


def _perm(a: Value, b: Value, selector: Value) -> Value:
    """V_PERM_B32: bytes of the pair {a, b} by the selector's bytes; beyond 7 signs, 0 and 255."""
    both = (a.to(I64) << 32) | b.to(I64)
    result = a.like(0)
    for byte in range(4):
        chosen = (selector >> (8 * byte)) & 0xFF
        plain = (both >> (((chosen & 7).to(I64)) << 3)).to(I32) & 0xFF
        sign_of = (((chosen & 3) << 1) + 1).to(I64) << 3
        sign = ((both >> (sign_of + 7)).to(I32) & 1) * 0xFF
        beyond = (chosen < 12).where(sign, chosen.equals(12).where(plain.like(0), 0xFF))
        result = result | ((chosen < 8).where(plain, beyond) << (8 * byte))
    return result


def _bfe(signed: bool) -> Compute:
    def run(x: Value, offset: Value, width: Value) -> Value:
        shifted = x >> (offset & 31)
        count = width & 31
        if not signed:
            return shifted & ((count.like(1) << count) - 1)
        unused = (count.like(32) - count) & 31
        return count.equals(0).where(x.like(0), (shifted << unused).arithmetic_shift(unused))

    return run


def _leading_zeros(x: Value) -> Value:
    """V_FFBH_U32: -1 of 0."""
    count = x.call("ctlz", constant(x.builder, I1, 0))
    return x.equals(0).where(count.like(-1), count)


def _high_product(a: Value, b: Value) -> Value:
    return ((a.to(I64) * b.to(I64)) >> 32).to(I32)


def _arithmetic(kind: Any) -> dict[str, tuple[tuple[Any, ...], Compute]]:
    """What every float type has."""
    one, two, three = (kind,), (kind, kind), (kind, kind, kind)
    found: dict[str, tuple[tuple[Any, ...], Compute]] = {
        "add": (two, lambda a, b: a + b),
        "sub": (two, lambda a, b: a - b),
        "subrev": (two, lambda a, b: b - a),
        "mul": (two, lambda a, b: a * b),
        "max": (two, lambda a, b: model.extremum(a, b, True)),
        "min": (two, lambda a, b: model.extremum(a, b, False)),
        "trunc": (one, lambda x: x.call("trunc")),
        "floor": (one, lambda x: x.call("floor")),
        "ceil": (one, lambda x: x.call("ceil")),
        "rndne": (one, lambda x: x.call("rint")),
        "div_fixup": (three, model.div_fixup),
    }
    if kind != F16:  # whose fused multiply-add the host would round twice
        found |= {
            "fma": (three, lambda a, b, c: a.fma(b, c)),
            "fmaak": (three, lambda a, b, c: a.fma(b, c)),
            "fmamk": (three, lambda a, b, c: a.fma(b, c)),
            "fract": (one, model.fract),
            "ldexp": ((kind, I32), model.ldexp),
            "frexp_mant": (one, lambda x: model.frexp(x)[0]),
        }
    return {f"v_{name}_{SUFFIX[kind]}": entry for name, entry in found.items()}


ONE, TWO, THREE = (I32,), (I32, I32), (I32, I32, I32)
OPERATIONS: dict[str, tuple[tuple[Any, ...], Compute]] = {
    **_arithmetic(F16), **_arithmetic(F32), **_arithmetic(F64),
    "v_frexp_exp_i32_f32": ((F32,), lambda x: model.frexp(x)[1]),
    "v_frexp_exp_i32_f64": ((F64,), lambda x: model.frexp(x)[1]),
    "v_cvt_f32_f16": ((F16,), lambda x: x.to(F32)),
    "v_cvt_f16_f32": ((F32,), lambda x: x.to(F16)),
    "v_cvt_f64_f32": ((F32,), lambda x: x.to(F64)),
    "v_cvt_f32_f64": ((F64,), lambda x: x.to(F32)),
    "v_cvt_f32_i32": (ONE, lambda x: x.to(F32, signed=True)),
    "v_cvt_f64_i32": (ONE, lambda x: x.to(F64, signed=True)),
    "v_cvt_f32_u32": (ONE, lambda x: x.to(F32)),
    "v_cvt_f64_u32": (ONE, lambda x: x.to(F64)),
    "v_cvt_i32_f32": ((F32,), lambda x: saturated(x, I32, True)),
    "v_cvt_i32_f64": ((F64,), lambda x: saturated(x, I32, True)),
    "v_cvt_u32_f32": ((F32,), lambda x: saturated(x, I32, False)),
    "v_cvt_u32_f64": ((F64,), lambda x: saturated(x, I32, False)),
    "v_mov_b32": (ONE, lambda x: x),
    "v_mov_b64": ((I64,), lambda x: x),
    "v_not_b32": (ONE, lambda x: ~x),
    "v_bfrev_b32": (ONE, lambda x: x.call("bitreverse")),
    "v_ffbh_u32": (ONE, _leading_zeros),
    "v_and_b32": (TWO, lambda a, b: a & b),
    "v_or_b32": (TWO, lambda a, b: a | b),
    "v_xor_b32": (TWO, lambda a, b: a ^ b),
    "v_add_u32": (TWO, lambda a, b: a + b),
    "v_sub_u32": (TWO, lambda a, b: a - b),
    "v_subrev_u32": (TWO, lambda a, b: b - a),
    "v_mul_lo_u32": (TWO, lambda a, b: a * b),
    "v_mul_hi_u32": (TWO, _high_product),
    "v_mul_u32_u24": (TWO, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "v_mad_u32_u24": (THREE, lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_min_u32": (TWO, lambda a, b: a.call("umin", b)),
    "v_max_u32": (TWO, lambda a, b: a.call("umax", b)),
    "v_min_i32": (TWO, lambda a, b: a.call("smin", b)),
    "v_max_i32": (TWO, lambda a, b: a.call("smax", b)),
    "v_lshlrev_b32": (TWO, lambda n, x: x << (n & 31)),
    "v_lshrrev_b32": (TWO, lambda n, x: x >> (n & 31)),
    "v_ashrrev_i32": (TWO, lambda n, x: x.arithmetic_shift(n & 31)),
    "v_lshlrev_b64": ((I32, I64), lambda n, x: x << (n & 63).to(I64)),
    "v_lshrrev_b64": ((I32, I64), lambda n, x: x >> (n & 63).to(I64)),
    "v_ashrrev_i64": ((I32, I64), lambda n, x: x.arithmetic_shift((n & 63).to(I64))),
    "v_add3_u32": (THREE, lambda a, b, c: a + b + c),
    "v_lshl_add_u32": (THREE, lambda a, n, c: (a << (n & 31)) + c),
    "v_add_lshl_u32": (THREE, lambda a, b, n: (a + b) << (n & 31)),
    "v_lshl_or_b32": (THREE, lambda a, n, c: (a << (n & 31)) | c),
    "v_and_or_b32": (THREE, lambda a, b, c: (a & b) | c),
    "v_or3_b32": (THREE, lambda a, b, c: a | b | c),
    "v_lshl_add_u64": ((I64, I32, I64), lambda a, n, c: (a << (n & 7).to(I64)) + c),
    "v_bfi_b32": (THREE, lambda mask, a, b: (mask & a) | (~mask & b)),
    "v_bfe_u32": (THREE, _bfe(False)),
    "v_bfe_i32": (THREE, _bfe(True)),
    "v_alignbit_b32": (THREE, lambda a, b, n: (((a.to(I64) << 32) | b.to(I64)) >> (n & 31).to(I64)).to(I32)),
    "v_perm_b32": (THREE, _perm),
    "v_pack_b32_f16": ((I16, I16), lambda a, b: a.to(I32) | (b.to(I32) << 16)),
}  # fmt: skip


def _plain(lane: Lane, one: Instruction) -> None:
    lane.write(one.operands[0], lane.result(one))


# Instructions with another form.


def _approximate(lane: Lane, one: Instruction) -> None:
    kind = {"f16": F16, "f32": F32, "f64": F64}[one.opcode[-3:]]
    x = lane.read(one.operands[1], kind, one.modifiers.get("src0_sel", "DWORD"))
    lane.write(one.operands[0], model.APPROXIMATE[one.opcode](x, lane.approximation))


def _fmac(lane: Lane, one: Instruction) -> None:
    kind = F64 if one.opcode.endswith("64") else F32
    into, a, b = (lane.read(token, kind) for token in one.operands)
    lane.write(one.operands[0], a.fma(b, into))


def _fma_mix(lane: Lane, one: Instruction) -> None:
    """Each operand is float32, or the half of a register that op_sel names where op_sel_hi is set."""
    halves, is_half = (_bits(one, name, 3) for name in ("op_sel", "op_sel_hi"))
    a, b, c = (
        lane.read(token, F16, f"WORD_{half}").to(F32) if short else lane.read(token, F32)
        for token, half, short in zip(one.operands[1:], halves, is_half, strict=True)
    )
    lane.write(one.operands[0], a.fma(b, c))


def _bits(one: Instruction, name: str, size: int, default: int = 0) -> list[int]:
    text = one.modifiers.get(name)
    return [int(bit) for bit in text.strip("[]").split(",")] if text else [default] * size


def _packed(lane: Lane, one: Instruction) -> None:
    """Two float32 operations on pairs of registers; op_sel and op_sel_hi choose the halves of each operand."""
    sources = one.operands[1:]
    results = []
    for name, sign, default in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
        chosen, negated = _bits(one, name, len(sources), default), _bits(one, sign, len(sources))
        values = []
        for token, half, minus in zip(sources, chosen, negated, strict=True):
            names = lane.halves(token)
            if half and len(names) != 2:
                raise Unsupported(f"the upper half of a constant in {one.text!r}")
            value = lane.read(names[half] if len(names) == 2 else token, F32)
            values.append(-value if minus else value)
        results.append(OPERATIONS[one.opcode.replace("pk_", "")][1](*values))
    for register, result in zip(lane.parts(one.operands[0]), results, strict=True):
        lane.write(register, result)


def _packed_move(lane: Lane, one: Instruction) -> None:
    """D.lo is the half of the first operand that op_sel names, D.hi that of the second."""
    chosen = _bits(one, "op_sel", 2)
    halves = [lane.read((lane.halves(t) * 2)[half], I32) for t, half in zip(one.operands[1:], chosen, strict=True)]
    for register, value in zip(lane.parts(one.operands[0]), halves, strict=True):
        lane.write(register, value)


def _packed_half(lane: Lane, one: Instruction) -> None:
    sources = one.operands[1:]
    parts = []
    for name, sign, default in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
        chosen, negated = _bits(one, name, len(sources), default), _bits(one, sign, len(sources))
        values = [lane.read(token, F16, f"WORD_{half}") for token, half in zip(sources, chosen, strict=True)]
        values = [-value if minus else value for value, minus in zip(values, negated, strict=True)]
        parts.append(OPERATIONS[one.opcode.replace("pk_", "")][1](*values).bits().to(I32))
    lane.write(one.operands[0], parts[0] | (parts[1] << 16))


def _select(lane: Lane, one: Instruction) -> None:
    selects = [one.modifiers.get(f"src{k}_sel", "DWORD") for k in range(2)]
    no, yes = (lane.read(t, F32, s) for t, s in zip(one.operands[1:3], selects, strict=True))
    lane.write(one.operands[0], lane.mask(one.operands[3]).where(yes, no))


#: Relation of a comparison, and whether NaN makes it true.
RELATIONS = {
    "lt": ("<", False), "eq": ("==", False), "le": ("<=", False), "gt": (">", False), "lg": ("!=", False),
    "ne": ("!=", False), "ge": (">=", False), "o": ("ord", False), "u": ("uno", True), "nge": ("<", True),
    "nlg": ("==", True), "ngt": ("<=", True), "nle": (">", True), "neq": ("!=", True), "nlt": (">=", True),
}  # fmt: skip
KINDS = {"f16": F16, "f32": F32, "f64": F64, "i16": I16, "u16": I16, "i32": I32, "u32": I32, "i64": I64, "u64": I64}


def _compare(lane: Lane, one: Instruction) -> None:
    _, _, relation, kind = one.opcode.split("_")
    selects = [one.modifiers.get(f"src{k}_sel", "DWORD") for k in range(2)]
    if relation == "class":
        x = lane.read(one.operands[1], KINDS[kind], selects[0])
        holds = model.is_class(x, lane.read(one.operands[2], I32, selects[1]))
    else:
        a, b = (lane.read(token, KINDS[kind], s) for token, s in zip(one.operands[1:], selects, strict=True))
        how, unordered = RELATIONS[relation]
        holds = a.compare(how, b, signed=kind[0] == "i", unordered=unordered)
    lane.write_mask(one.operands[0], holds)


def _div_scale(lane: Lane, one: Instruction) -> None:
    kind = KINDS[one.opcode[-3:]]
    result, back = model.div_scale(*(lane.read(token, kind) for token in one.operands[2:]))
    lane.write(one.operands[0], result)
    lane.write_mask(one.operands[1], back)


def _div_fmas(lane: Lane, one: Instruction) -> None:
    kind = KINDS[one.opcode[-3:]]
    a, b, c = (lane.read(token, kind) for token in one.operands[1:])
    lane.write(one.operands[0], model.div_fmas(a, b, c, lane.mask("vcc")))


def _carry(lane: Lane, one: Instruction) -> None:
    """v_add_co_u32 and relatives: (destination, carry out, a, b[, carry in])."""
    a, b = (lane.read(token, I32).to(I64) for token in one.operands[2:4])
    into = lane.mask(one.operands[4]).to(I64) if len(one.operands) == 5 else a.like(0)
    if "rev" in one.opcode:
        a, b = b, a
    total = (a + b) + into if "add" in one.opcode else (a - b) - into
    lane.write(one.operands[0], total.to(I32))
    lane.write_mask(one.operands[1], ((total >> 32) & 1).to(I1))


def _multiply_add_64(lane: Lane, one: Instruction) -> None:
    a, b = (lane.read(token, I32).to(I64) for token in one.operands[2:4])
    product, c = a * b, lane.read(one.operands[4], I64)
    total = product + c
    lane.write(one.operands[0], total)
    lane.write_mask(one.operands[1], total < c)


def _first_lane(lane: Lane, one: Instruction) -> None:
    """Of the workitem's number, before anything is written to it: that of the wave's first lane."""
    if one.operands[1] != "v0" or "v0" in lane.written:
        raise Unsupported(f"{one.opcode} of anything but the workitem's number (cross-lane)")
    lane.write(one.operands[0], lane.get("v0") & ~(WAVE - 1))


# Scalar instructions.


def _scalar_logic(lane: Lane, one: Instruction) -> None:
    _, name, width = one.opcode.split("_")
    kind = I64 if width == "b64" else I32
    a, b = (lane.read(token, kind) for token in one.operands[1:])
    b = ~b if name.endswith("n2") else b
    result = {"and": a & b, "or": a | b, "xor": a ^ b}[name.removesuffix("n2")]
    lane.write(one.operands[0], result)
    lane.put("scc", result.differs(0).to(I32))


def _save_exec(lane: Lane, one: Instruction) -> None:
    name = one.opcode.split("_")[1]
    before, mask = lane.read("exec", I64), lane.read(one.operands[1], I64)
    result = {"and": mask & before, "or": mask | before, "xor": mask ^ before, "andn2": mask & ~before}[name]
    lane.write(one.operands[0], before)
    lane.write("exec", result)
    lane.put("scc", result.differs(0).to(I32))


def _scalar_shift(lane: Lane, one: Instruction) -> None:
    _, name, width = one.opcode.split("_")
    kind = I64 if width.endswith("64") else I32
    x, count = lane.read(one.operands[1], kind), (lane.read(one.operands[2], I32) & (kind.width - 1)).to(kind)
    result = {"lshl": x << count, "lshr": x >> count, "ashr": x.arithmetic_shift(count)}[name]
    lane.write(one.operands[0], result)
    lane.put("scc", result.differs(0).to(I32))


def _scalar_sum(lane: Lane, one: Instruction) -> None:
    a, b = (lane.read(token, I32).to(I64) for token in one.operands[1:])
    into = lane.get("scc").to(I64) if one.opcode in ("s_addc_u32", "s_subb_u32") else a.like(0)
    total = (a + b) + into if one.opcode.startswith("s_add") else (a - b) - into
    lane.write(one.operands[0], total.to(I32))
    lane.put("scc", ((total >> 32) & 1).to(I32))


def _signed_sum(lane: Lane, one: Instruction) -> None:
    """s_add_i32 and s_sub_i32: SCC says whether the result left the range."""
    a, b = (lane.read(token, I32) for token in one.operands[1:])
    total = a + b if one.opcode == "s_add_i32" else a - b
    lane.write(one.operands[0], total)
    lane.put("scc", _overflows(a, b, total, one.opcode == "s_add_i32"))


def _overflows(a: Value, b: Value, total: Value, adds: bool) -> Value:
    """1 where the sum, or difference, of signed words has another sign than the exact one."""
    return (((a ^ total) & (b ^ total if adds else a ^ b)) >> 31) & 1


def _scalar_move(lane: Lane, one: Instruction) -> None:
    kind = I64 if one.opcode.endswith("b64") else I32
    value = lane.read(one.operands[1], kind)
    lane.write(one.operands[0], value.to(I16).to(I32, signed=True) if one.opcode == "s_movk_i32" else value)


def _scalar_other(lane: Lane, one: Instruction) -> None:
    match one.opcode:
        case "s_brev_b32":
            result = lane.read(one.operands[1], I32).call("bitreverse")
        case "s_mul_i32":
            result = lane.read(one.operands[1], I32) * lane.read(one.operands[2], I32)
        case _:
            result = _high_product(lane.read(one.operands[1], I32), lane.read(one.operands[2], I32))
    lane.write(one.operands[0], result)


def _scalar_compare(lane: Lane, one: Instruction) -> None:
    _, _, relation, kind = one.opcode.split("_")
    a, b = (lane.read(token, I32) for token in one.operands)
    lane.put("scc", a.compare(RELATIONS[relation][0], b, signed=kind == "i32").to(I32))


def _scalar_select(lane: Lane, one: Instruction) -> None:
    kind = I64 if one.opcode.endswith("b64") else I32
    yes, no = (lane.read(token, kind) for token in one.operands[1:])
    lane.write(one.operands[0], lane.get("scc").differs(0).where(yes, no))


# Memory.


def _pointer(address: Value) -> Any:
    return address.builder.inttoptr(address.value, POINTER)


def _scalar_load(lane: Lane, one: Instruction) -> None:
    base = lane.read(one.operands[1], I64) + lane.read(one.operands[2], I32).to(I64)
    for k, register in enumerate(lane.parts(one.operands[0])):
        lane.write(register, Value(lane.builder, lane.builder.load(_pointer(base + 4 * k), typ=I32, align=4)))


def _global(lane: Lane, one: Instruction) -> None:
    """Address: 64 bits of vector registers, or 64 of scalar ones and an offset of 32 bits."""
    stores = "_store_" in one.opcode
    data, address = (one.operands[1], one.operands[0]) if stores else one.operands[:2]
    base = one.operands[2]
    place = lane.read(address, I64) if base == "off" else lane.read(base, I64) + lane.read(address, I32).to(I64)
    place = place + int(one.modifiers.get("offset", "0"))
    width = one.opcode.split("_", 2)[2]
    with lane.when_active():
        _move(lane, width, data, lambda step: place + step, stores)


def _buffer(lane: Lane, one: Instruction) -> None:
    """Raw buffers: beyond the number of records (bytes) loads give 0 and stores do nothing."""
    stores = "_store_" in one.opcode
    data, offset, resource, scalar = one.operands[:4]
    words = [lane.get(name) for name in lane.parts(resource)]
    base = words[0].to(I64) | ((words[1] & 0xFFFF).to(I64) << 32)
    start = lane.read(scalar, I32).to(I64)
    inside = (lane.read(offset, I32) if "offen" in one.modifiers else words[0].like(0)).to(I64)
    inside = inside + int(one.modifiers.get("offset", "0"))
    width = one.opcode.split("_", 2)[2]
    size = {"ubyte": 1, "sbyte": 1, "byte": 1}.get(width, 2 if "short" in width else 4 * len(lane.parts(data)))
    within = (inside + start + (size - 1)) < words[2].to(I64)
    if not stores:
        with lane.when_active(~within):
            for register in lane.parts(data):
                lane.write(register, words[0].like(0))
    with lane.when_active(within):
        _move(lane, width, data, lambda step: base + start + inside + step, stores)


def _move(lane: Lane, width: str, data: str, place: Callable[[int], Value], stores: bool) -> None:
    if width.startswith("dword"):
        for k, register in enumerate(lane.parts(data)):
            pointer = _pointer(place(4 * k))
            if stores:
                lane.builder.store(lane.get(register).value, pointer, align=1)
            else:
                lane.write(register, Value(lane.builder, lane.builder.load(pointer, typ=I32, align=1)))
        return
    kind = I16 if "short" in width else I8 if "byte" in width else None
    if kind is None:
        raise Unsupported(f"memory access of {width}")
    pointer, high = _pointer(place(0)), width.endswith("d16_hi")
    if stores:
        value = lane.get(data) >> (16 if high else 0)
        lane.builder.store(value.to(kind).value, pointer, align=1)
        return
    loaded = Value(lane.builder, lane.builder.load(pointer, typ=kind, align=1)).to(
        I32, signed=width[0] == "s" and width[1] != "h"
    )
    if "d16" in width:
        kept = lane.get(data) & (0xFFFF if high else 0xFFFF0000)
        loaded = kept | ((loaded & 0xFFFF) << (16 if high else 0))
    lane.write(data, loaded)


Handler = Callable[[Lane, Instruction], None]
HANDLERS: list[tuple[re.Pattern[str], Handler]] = [
    (re.compile(pattern), handler)
    for pattern, handler in {
        "|".join(model.APPROXIMATE): _approximate,
        "v_fmac_f(32|64)": _fmac,
        "v_fma_mix_f32": _fma_mix,
        "v_pk_(add|mul|fma)_f32": _packed,
        "v_pk_(add|mul|max|min)_f16": _packed_half,
        "v_pk_mov_b32": _packed_move,
        "v_cndmask_b32": _select,
        rf"v_cmp_({'|'.join(RELATIONS)}|class)_[fiu](16|32|64)": _compare,
        "v_div_scale_f(32|64)": _div_scale,
        "v_div_fmas_f(32|64)": _div_fmas,
        "v_(add|sub|subrev|addc|subb|subbrev)_co_u32": _carry,
        "v_mad_u64_u32": _multiply_add_64,
        "v_readfirstlane_b32": _first_lane,
        "s_(and|or|xor|andn2|orn2)_b(32|64)": _scalar_logic,
        "s_(and|or|xor|andn2)_saveexec_b64": _save_exec,
        "s_(lshl|lshr)_b(32|64)|s_ashr_i(32|64)": _scalar_shift,
        "s_(add|sub|addc|subb)_u32": _scalar_sum,
        "s_(add|sub)_i32": _signed_sum,
        "s_mov_b(32|64)|s_movk_i32": _scalar_move,
        "s_brev_b32|s_mul_i32|s_mul_hi_u32": _scalar_other,
        "s_cmp_(lt|eq|le|gt|lg|ge)_[iu]32": _scalar_compare,
        "s_cselect_b(32|64)": _scalar_select,
        r"s_load_dword(x\d+)?": _scalar_load,
        "global_(load|store)_.*": _global,
        "buffer_(load|store)_.*": _buffer,
    }.items()
]

#: Modifiers of an operand that chooses a part of a register, of packed numbers, and of accesses to memory.
SELECTS, PACKED = frozenset({"src0_sel", "src1_sel"}), frozenset({"op_sel", "op_sel_hi", "neg_lo", "neg_hi"})
MEMORY = FLAGS - {"clamp"} | {"offset"}
#: What each handler takes into account; other modifiers are refused.
MODIFIERS: Mapping[Handler, frozenset[str]] = {
    _plain: SELECTS, _approximate: SELECTS, _select: SELECTS, _compare: SELECTS, _packed: PACKED,
    _packed_half: PACKED, _fma_mix: frozenset({"op_sel", "op_sel_hi"}), _packed_move: frozenset({"op_sel"}),
    _global: MEMORY, _buffer: MEMORY, _scalar_load: frozenset({"glc"}),
}  # fmt: skip


# Programs.


@functools.lru_cache(maxsize=64)
def compiled(
    text: str, name: str, approximation: str = "nearest"
) -> Callable[[ctypes.Array[ctypes.c_char], int, int], None]:
    """`name` of an assembly file for this machine: run(arguments' bytes, programs, threads of each).

    approximation: how approximate instructions err, of `instructions.MODELS`. Raises Unsupported, see `Lane.execute`.
    """
    program = parse(text, name)
    module = ir.Module()
    thread = ir.Function(module, ir.FunctionType(VOID, [I64, I32, I32]), "thread")
    thread.attributes.add("alwaysinline")
    _translate(program, thread, approximation)
    loop = ir.Function(module, ir.FunctionType(VOID, [I64, I32, I32]), "loop")
    _grid(loop, thread)
    code = Compiled(str(module), exported="loop")
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)(code.address("loop"))

    def run(arguments: ctypes.Array[ctypes.c_char], programs: int, threads: int, keep: Compiled = code) -> None:
        call(ctypes.addressof(arguments), programs, threads)

    return run


def _translate(program: Program, thread: ir.Function, approximation: str) -> None:
    """The body of thread(arguments' address, number of the program, number of the thread in it)."""
    builder = ir.IRBuilder(thread.append_basic_block("entry"))
    lane = Lane(builder, approximation)
    starts = {0, *program.labels.values()}
    starts |= {k + 1 for k, one in enumerate(program.code) if re.match(r"s_(c?branch|endpgm)", one.opcode)}
    blocks = {k: thread.append_basic_block() for k in sorted(starts) if k < len(program.code)}
    arguments, number, workitem = (Value(builder, argument) for argument in thread.args)
    setup = ir.IRBuilder(thread.append_basic_block("setup"))
    lane.builder = setup
    at = Value(setup, arguments.value)
    for register, value in {
        "s0": at.to(I32), "s1": (at >> 32).to(I32), f"s{program.scalars}": Value(setup, number.value),
        "exec_lo": constant(setup, I32, 1),
    }.items():  # fmt: skip
        lane.put(register, value)
    setup.store(workitem.value, lane.variable("v0"))
    setup.branch(blocks[0])
    for k, one in enumerate(program.code):
        if k in blocks:
            lane.builder = ir.IRBuilder(blocks[k])
        following = blocks.get(k + 1)
        if one.opcode == "s_endpgm":
            lane.builder.ret_void()
        elif one.opcode == "s_branch":
            lane.builder.branch(blocks[program.labels[one.operands[0]]])
        elif one.opcode.startswith("s_cbranch_"):
            lane.builder.cbranch(_taken(lane, one).value, blocks[program.labels[one.operands[0]]], following)
        elif one.opcode.startswith(("s_cbranch", "s_setpc", "s_swappc", "s_call")):
            raise Unsupported(f"no model of {one.opcode}")
        else:
            try:
                lane.execute(one)
            except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as why:
                raise Unsupported(f"no model of this form of an instruction: {one.text}") from why
            if following is not None:
                lane.builder.branch(following)
    ir.IRBuilder(lane.entry).branch(setup.block)


def _taken(lane: Lane, one: Instruction) -> Value:
    what, wanted = re.fullmatch(r"s_cbranch_(exec|vcc|scc)(z|nz|0|1)", one.opcode).groups()  # type: ignore[union-attr]
    value = lane.get("scc") if what == "scc" else lane.read(what, I64)
    return value.equals(0) if wanted in ("z", "0") else value.differs(0)


def _grid(loop: ir.Function, thread: ir.Function) -> None:
    """All threads of all programs, one after the other."""
    arguments, programs, threads = loop.args
    entry, outer, inner, after, end = (
        loop.append_basic_block(name) for name in ("entry", "outer", "inner", "after", "end")
    )
    zero, one = ir.Constant(I32, 0), ir.Constant(I32, 1)
    builder = ir.IRBuilder(entry)
    builder.cbranch(builder.icmp_unsigned("==", programs, zero), end, outer)
    builder = ir.IRBuilder(outer)
    program = builder.phi(I32)
    program.add_incoming(zero, entry)
    builder.branch(inner)
    builder = ir.IRBuilder(inner)
    number = builder.phi(I32)
    number.add_incoming(zero, outer)
    builder.call(thread, [arguments, program, number])
    following = builder.add(number, one)
    number.add_incoming(following, inner)
    builder.cbranch(builder.icmp_unsigned("<", following, threads), inner, after)
    builder = ir.IRBuilder(after)
    next_program = builder.add(program, one)
    program.add_incoming(next_program, after)
    builder.cbranch(builder.icmp_unsigned("<", next_program, programs), outer, end)
    ir.IRBuilder(end).ret_void()


# Launches.

NUMBERS: Mapping[str, Any] = {
    "i1": ctypes.c_int8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "fp32": ctypes.c_float, "f32": ctypes.c_float, "fp64": ctypes.c_double, "f64": ctypes.c_double,
}  # fmt: skip


def execute(launch: Launch, approximation: str = "nearest") -> None:
    """Run a launch on its own tensors, which lie on the host. Raises Unsupported."""
    if launch.target != TARGET:
        raise Unsupported(f"{launch.target}: instructions of {TARGET} alone are modelled")
    programs, *others = launch.grid
    if others != [1, 1]:
        raise Unsupported(f"{launch.name} is launched on a grid of {launch.grid}: one dimension alone is modelled")
    program = parse(launch.code, launch.name)
    end = max((offset + size for offset, size in program.arguments), default=0)
    buffer = ctypes.create_string_buffer(end + PADDING)
    for argument, (offset, size) in zip(launch.arguments, program.arguments, strict=False):
        if argument.kind.startswith("*"):
            data: Any = ctypes.c_uint64(argument.value.data_ptr())
        elif argument.kind in NUMBERS:
            data = NUMBERS[argument.kind](argument.value)
        else:
            raise Unsupported(f"{launch.name} has an argument of type {argument.kind}")
        assert ctypes.sizeof(data) == size, f"{argument.name} has {ctypes.sizeof(data)} bytes, the code expects {size}"
        ctypes.memmove(ctypes.byref(buffer, offset), ctypes.byref(data), size)
    compiled(launch.code, launch.name, approximation)(buffer, programs, launch.threads)
