"""Functions of the GPU vendors' math libraries, compiled for this machine from the bitcode in Triton's wheel.

libdevice (NVIDIA) and ocml (AMD) are LLVM bitcode; only the intrinsics of their GPUs keep them from running here, and
those get host models. IEEE 754's operations are exact. Approximate instructions of AMD follow `instructions.MODELS`,
those of NVIDIA give the nearest number. Each function runs as the library wrote it: nothing is contracted, unlike in
kernels compiled with enable_fp_fusion=True, which `verify.virtual.amdgcn` executes.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
from llvmlite import ir

from verify.facts.kernel import suggest
from verify.virtual import instructions
from verify.virtual.compile import Unsupported
from verify.virtual.ir import (
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    INFINITY,
    POINTER,
    VOID,
    Compiled,
    Value,
    constant,
    saturated,
)

Array = npt.NDArray[Any]

#: Library -> its file among Triton's backends, and what a function's name begins with.
LIBRARIES: Mapping[str, tuple[str, str]] = {
    "libdevice": ("nvidia/lib/libdevice.10.bc", "__nv_"),
    "ocml": ("amd/lib/ocml.bc", "__ocml_"),
}
TYPES = {"float": F32, "double": F64, "i1": I1, "i8": I8, "i16": I16, "i32": I32, "i64": I64}
#: Types of arrays.
DTYPES: Mapping[Any, Any] = {
    I1: np.bool_, I8: np.int8, I16: np.int16, I32: np.int32, I64: np.int64,
    F16: np.float16, F32: np.float32, F64: np.float64,
}  # fmt: skip

#: What the libraries ask of their compiler: libdevice by __nvvm_reflect, ocml by constants of these names.
ARCHITECTURE = 900
CONSTANTS = {
    "__oclc_unsafe_math_opt": "i8 0",
    "__oclc_finite_only_opt": "i8 0",
    "__oclc_correctly_rounded_sqrt32": "i8 1",
    "__oclc_ISA_version": "i32 9402",
}
#: libdevice's inline assembly that has a model, as the intrinsic that would say the same.
ASSEMBLY = {"rcp.approx.ftz.f32": "llvm.nvvm.rcp.approx.ftz.f", "rsqrt.approx.ftz.f64": "llvm.nvvm.rsqrt.approx.ftz.d"}


def library_path(library: str) -> Path:
    """Raises Unsupported where Triton, which brings it, is not installed."""
    try:
        import triton.backends
    except ImportError:
        raise Unsupported(f"{library} comes with Triton, which is not installed") from None
    return Path(triton.backends.__path__[0]) / LIBRARIES[library][0]


def function(library: str, name: str, model: str = "nearest", ftz: bool = True) -> Callable[..., Array]:
    """`name` of `library` ('libdevice', 'ocml') as a function of contiguous arrays of one shape and its own dtype.

    model: how approximate instructions err, one of `instructions.MODELS`; libdevice has 'nearest' alone.
    ftz: Triton's enable_reflect_ftz, of libdevice.
    Raises Unsupported, which names the function or instruction, for what there is not or has no model.
    """
    if library == "libdevice" and model != "nearest":
        raise Unsupported(f"approximate instructions of libdevice are modelled as correctly rounded, not {model!r}")
    return _function(library, name, model, ftz)


@functools.cache
def _function(library: str, name: str, model: str, ftz: bool) -> Callable[..., Array]:
    defined = definitions(library, ftz)
    full = name if name.startswith("__") else LIBRARIES[library][1] + name
    if full not in defined.functions:
        known = [key.removeprefix(LIBRARIES[library][1]) for key in defined.functions]
        raise Unsupported(suggest(f"function of {library}", name, known))
    result, parameters = signature(defined.functions[full])
    if result not in ("float", "double") or set(parameters) - {result}:
        raise Unsupported(
            f"{full} takes {', '.join(parameters)} and returns {result}: only functions of one float type"
        )
    text, intrinsics = closure(defined, full)
    models = host_models(intrinsics, defined.declarations, model)
    kinds = [TYPES[kind] for kind in parameters]

    def call(*given: Value) -> Value:
        builder = given[0].builder
        declared = ir.Function(builder.module, ir.FunctionType(TYPES[result], kinds), full)
        return given[0].make(builder.call(declared, [value.value for value in given]))

    return vectorised(call, *kinds, linked=(text, models))


# The library's text.


class Definitions:
    """A library as text: its functions and declarations by name, globals and attributes."""

    def __init__(self, text: str) -> None:
        found = re.finditer(r"^define [^\n]*?@([\w.]+)\([^\n]*\{\n.*?^\}", text, re.MULTILINE | re.DOTALL)
        self.functions = {match[1]: match[0] for match in found}
        self.declarations = {
            match[1]: match[0] for match in re.finditer(r"^declare [^@]*@([\w.]+)\(.*$", text, re.MULTILINE)
        }
        self.globals = {match[1]: match[0] for match in re.finditer(r"^@([\w.]+) = .*$", text, re.MULTILINE)}
        self.rest = "\n".join(re.findall(r"^(?:%[\w.]+ = type|attributes) .*$", text, re.MULTILINE))


@functools.cache
def definitions(library: str, ftz: bool) -> Definitions:
    """The library with nothing left in it that only its vendor's compiler knows, but for intrinsics."""
    text = str(llvm.parse_bitcode(library_path(library).read_bytes()))
    text = re.sub(r"^attributes #(\d+) = .*", r"attributes #\1 = { nounwind }", text, flags=re.MULTILINE)
    text = re.sub(r", ![\w.]+ !\d+", "", text)
    text = re.sub(r" addrspace\(\d\)", "", text)
    text = re.sub(r"linkonce_odr (?:hidden |protected )?", "", text)
    for name, value in CONSTANTS.items():
        text = re.sub(rf"^@{name} = .*$", f"@{name} = internal constant {value}", text, flags=re.MULTILINE)
    for variable, answer in _reflected(text, ftz).items():
        text = re.sub(
            rf"call i32 @__nvvm_reflect\(ptr [^)@]*{re.escape(variable)}\)[^\n]*", f"add i32 0, {answer}", text
        )
    for assembly, intrinsic in ASSEMBLY.items():
        kind = "double" if intrinsic.endswith("d") else "float"
        text = re.sub(rf'asm (?:sideeffect )?"{re.escape(assembly)} [^"]*", "[^"]*"\(', f"@{intrinsic}(", text)
        text += f"\ndeclare {kind} @{intrinsic}({kind})"
    return Definitions(text)


def _reflected(text: str, ftz: bool) -> dict[str, int]:
    """What __nvvm_reflect answers, by the global that holds the question."""
    answers = {"__CUDA_FTZ": int(ftz), "__CUDA_ARCH": ARCHITECTURE, "__CUDA_PREC_SQRT": 0}
    return {
        f"@{name}": answers[key] for name, key in re.findall(r'^@(\.str[.\d]*) = .*c"(\w+)\\00"', text, re.MULTILINE)
    }


def signature(text: str) -> tuple[str, list[str]]:
    """Types of the result and of the parameters of a definition or declaration."""
    head, parameters = re.split(r"@[\w.]+\(", text.splitlines()[0], maxsplit=1)
    types = re.findall(r"(?:^|, )(\w+)", re.sub(r"\([^)]*\)", "", parameters.split(") ")[0].rstrip(") {")))
    result = [word for word in head.split() if word in TYPES or word in ("void", "ptr")]
    return (result or ["?"])[-1], types


def closure(defined: Definitions, name: str) -> tuple[str, list[str]]:
    """Text of a function and of all that it calls, to be linked with models of the intrinsics, which are listed."""
    needed: dict[str, str] = {}
    unknown: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in needed or one in unknown:
            continue
        if one not in defined.functions:
            unknown.add(one)
            continue
        needed[one] = defined.functions[one]
        if inline := re.search(r'asm (?:sideeffect )?"[^"]*?([a-z]+(?:\.[a-z0-9]+)+) ', needed[one]):
            raise Unsupported(f"{name} holds inline assembly without a model: {inline[1]}")
        waiting += re.findall(r"@([\w.]+)\(", needed[one].split("{", 1)[1])
    body = "\n".join(needed.values())
    for one in unknown:
        body = re.sub(rf"@{re.escape(one)}\(", f"@{modelled(one)}(", body)
    used = [text for one, text in defined.globals.items() if re.search(rf"@{re.escape(one)}\b", body)]
    declared = [
        re.sub(r"@[\w.]+\(", f"@{modelled(one)}(", re.sub(r" #\d+$", "", defined.declarations[one])) for one in unknown
    ]
    return "\n".join([defined.rest, *used, *declared, body]), sorted(unknown)


def modelled(intrinsic: str) -> str:
    """The name of its host model: LLVM does not let one define its own."""
    return "model." + intrinsic


def vectorised(compute: Callable[..., Value], *kinds: Any, linked: Sequence[str] = ()) -> Callable[..., Array]:
    """`compute` of values of these types as a function of numpy arrays of one shape, one for each. linked: modules that
    define what it calls."""
    module = ir.Module()
    loop = ir.Function(module, ir.FunctionType(VOID, [POINTER] * (len(kinds) + 1) + [I64]), "loop")
    *places, size = loop.args
    for place in places:
        place.add_attribute("noalias")
    entry, body, end = (loop.append_basic_block(name) for name in ("entry", "body", "end"))
    ir.IRBuilder(entry).branch(body)
    builder = ir.IRBuilder(body)
    index = builder.phi(I64)
    index.add_incoming(ir.Constant(I64, 0), entry)
    given = []
    for place, kind in zip(places[:-1], kinds, strict=True):
        memory = builder.gep(place, [index], source_etype=_stored(kind))
        given.append(Value(builder, builder.load(memory, typ=_stored(kind))).to(kind))
    result = compute(*given)
    stored = result.to(_stored(result.type))
    builder.store(stored.value, builder.gep(places[-1], [index], source_etype=stored.type))
    following = builder.add(index, ir.Constant(I64, 1))
    index.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_unsigned("<", following, size), body, end)
    ir.IRBuilder(end).ret_void()
    code = Compiled(str(module), *linked, exported="loop")
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(kinds) + 1), ctypes.c_int64)(code.address("loop"))

    def run(*arrays: Any, keep: Compiled = code) -> Array:
        inputs = [np.ascontiguousarray(array, DTYPES[kind]) for array, kind in zip(arrays, kinds, strict=True)]
        out: Array = np.empty(inputs[0].shape, DTYPES[result.type])
        if out.size:
            call(*(array.ctypes.data for array in inputs), out.ctypes.data, out.size)
        return out

    return run


def _stored(kind: Any) -> Any:
    return I8 if kind == I1 else kind


# Host models of intrinsics.


def host_models(intrinsics: list[str], declarations: Mapping[str, str], model: str) -> str:
    """A module that defines each. Raises Unsupported for the first that has no model."""
    module = ir.Module()
    for name in intrinsics:
        result, parameters = signature(declarations[name])
        pair = re.match(r"declare \{ (\w+), (\w+) \}", declarations[name])
        kinds = [TYPES.get(kind) for kind in (result, *parameters)]
        if None in kinds:
            raise Unsupported(f"no host model of {name}: it takes or returns {result}, {', '.join(parameters)}")
        returned = ir.LiteralStructType([TYPES[pair[1]], TYPES[pair[2]]]) if pair else kinds[0]
        defined = ir.Function(module, ir.FunctionType(returned, kinds[1:]), modelled(name))
        builder = ir.IRBuilder(defined.append_basic_block())
        values = _model(name, [Value(builder, argument) for argument in defined.args], model)
        if pair:
            both = builder.insert_value(ir.Constant(returned, ir.Undefined), values[0].value, 0)
            builder.ret(builder.insert_value(both, values[1].value, 1))
        else:
            builder.ret(values[0].value)
    return str(module)


def _model(name: str, given: list[Value], model: str) -> tuple[Value, ...]:
    words = name.split(".")[1:]
    if words[0] == "nvvm":
        return (_nvvm(name, words[1:], given),)
    if words[0] == "amdgcn":
        operation = {"exp2": "exp", "log": "log"}.get(words[1], words[1])
        if approximate := instructions.APPROXIMATE.get(f"v_{operation}_{words[-1]}"):
            return (approximate(given[0], model),)
        raise Unsupported(f"no host model of {name}")
    if words[0] in EXPANDED and words[-1] == "f32":
        return (EXPANDED[words[0]](given[0], model),)
    match words[0]:
        case "frexp":
            return instructions.frexp(given[0])
        case "ldexp":
            return (instructions.ldexp(given[0], given[1]),)
        case "fmuladd":
            return (given[0].fma(given[1], given[2]),)
        case "canonicalize":
            return (given[0] * 1.0,)
        case "is":  # llvm.is.fpclass numbers the classes as v_cmp_class does
            return (instructions.is_class(given[0], given[1]),)
        case "ctlz":
            return (given[0].call("ctlz", constant(given[0].builder, I1, 0)),)
    if words[0] not in EXACT:
        raise Unsupported(f"no host model of {name}")
    builder = given[0].builder
    kind = ir.FunctionType(builder.function.ftype.return_type, [value.type for value in given])
    declared = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return (given[0].make(builder.call(declared, [value.value for value in given])),)


#: LLVM's own intrinsics that mean the same on every processor. sin, cos, exp, log and pow do not.
EXACT = frozenset((
    "fabs", "fma", "sqrt", "rint", "trunc", "floor", "ceil", "round", "copysign", "minnum", "maxnum", "ctpop",
    "bitreverse", "fshl", "fshr", "smin", "smax", "umin", "umax",
))  # fmt: skip


def _nvvm(name: str, words: list[str], given: list[Value]) -> Value:
    """An intrinsic of NVIDIA's (LLVM, IntrinsicsNVVM.td; PTX ISA, 9.7.3): operation, rounding, ftz."""
    operation, flags = words[0], words[1:]
    x = given[0]
    if "ftz" in flags and x.type == F32:
        given = [instructions.flushed(value) for value in given]
        x = given[0]
    result = _nvvm_operation(operation, flags, given)
    if result is None:
        raise Unsupported(f"no host model of {name}")
    return instructions.flushed(result) if "ftz" in flags and result.type == F32 else result


def _nvvm_operation(operation: str, flags: list[str], given: list[Value]) -> Value | None:
    x = given[0]
    direction = next((flag for flag in flags if flag in ("rn", "rz", "rm", "rp")), "rn")
    if direction != "rn":
        return _directed(operation, direction, given) if operation in ("add", "mul", "fma") and x.type == F32 else None
    if "approx" in flags:
        if operation in ("ex2", "lg2") and x.type == F32:
            wide = x.to(F64).call("exp2" if operation == "ex2" else "log2")
            return wide.to(F32)
        if operation == "div" and x.type == F32:
            return x / given[1]
        if x.type == F64:  # rcp, rsqrt: upper halves of operand and result alone (PTX ISA, rcp.approx.ftz.f64)
            upper = (x.bits() & ~0xFFFFFFFF).bitcast(F64)
            root = upper.call("sqrt") if operation == "rsqrt" else upper
            return ((x.like(1.0) / root).bits() & ~0xFFFFFFFF).bitcast(F64)
        if operation in ("rcp", "rsqrt", "sqrt"):
            wide = x.to(F64)
            root = wide if operation == "rcp" else wide.call("sqrt")
            return (root if operation == "sqrt" else wide.like(1.0) / root).to(F32)
        return None
    match operation:
        case "add":
            return x + given[1]
        case "mul":
            return x * given[1]
        case "div":
            return x / given[1]
        case "rcp":
            return x.like(1.0) / x
        case "fma":
            return x.fma(given[1], given[2])
        case "sqrt" | "fabs" | "trunc" | "floor" | "ceil":
            return x.call(operation)
        case "round":
            return x.call("rint")
        case "fmin" | "fmax":
            return x.call("minnum" if operation == "fmin" else "maxnum", given[1])
        case "saturate":
            return (x >= 1.0).where(x.like(1.0), (x > 0.0).where(x, 0.0))
        case "f2i" | "d2i" if "rn" in flags:
            return saturated(x.call("rint"), I32, signed=True)
        case "d2i" if flags == ["hi"]:
            return (x.bits() >> 32).to(I32)
        case "d2i" if flags == ["lo"]:
            return x.bits().to(I32)
        case "lohi":
            return (given[0].to(I64) | (given[1].to(I64) << 32)).bitcast(F64)
    return None


def _directed(operation: str, direction: str, given: list[Value]) -> Value:
    """A float32 sum, product or fma rounded toward zero (rz), down (rm) or up (rp): the real number is high + low in
    float64 by TwoSum, of which a product of two float32 is exact."""
    x = given[0].to(F64)
    if operation == "add":
        addend, x = given[1].to(F64), x
    else:
        x = x * given[1].to(F64)
        addend = given[2].to(F64) if operation == "fma" else x.like(-0.0)
    high = x + addend
    back = high - x
    low = (x - (high - back)) + (addend - back)
    near = high.to(F32)
    wide = near.to(F64)
    above = (wide > high) | (wide.equals(high) & (low < 0.0))
    below = (wide < high) | (wide.equals(high) & (low > 0.0))
    bits = near.bits()
    positive = bits.compare(">=", 0, signed=True)
    inward, outward = (bits - 1).bitcast(F32), (bits + 1).bitcast(F32)
    down = above.where(positive.where(inward, outward), near)
    up = below.where(positive.where(outward, inward), near)
    result = {"rm": down, "rp": up, "rz": (high > 0.0).where(down, up)}[direction]
    return (abs(high) < INFINITY).where(result, near)


# What LLVM's AMDGPU backend makes of llvm.exp and the like in float32 with subnormals kept (SIISelLowering.cpp and
# AMDGPUISelLowering.cpp: lowerFEXP, LowerFLOG2, LowerFLOGCommon, lowerFEXP2); ocml's functions are these.


hexadecimal = float.fromhex


def _exp(x: Value, model: str) -> Value:
    log2_e, tail = hexadecimal("0x1.715476p0"), hexadecimal("0x1.4ae0bep-26")
    high = x * log2_e
    low = x.fma(tail, x.fma(log2_e, -high))
    whole = high.call("rint")
    power = instructions.exp2((high - whole) + low, model)
    result = instructions.ldexp(power, saturated(whole, I32, signed=True))
    result = (x < hexadecimal("-0x1.9d1da0p6")).where(result.like(0.0), result)
    return (x > hexadecimal("0x1.62e430p6")).where(result.like(INFINITY), result)


def _exp2(x: Value, model: str) -> Value:
    small = x < -126.0
    power = instructions.exp2(small.where(x + 64.0, x), model)
    return small.where(power * 2.0**-64, power)


def _log2(x: Value, model: str) -> Value:
    small = x < 2.0**-126
    y = instructions.log2(small.where(x * 2.0**32, x), model)
    return small.where(y - 32.0, y)


def _logarithm(factor: float, tail: float, scaled: float) -> Callable[[Value, str], Value]:
    def run(x: Value, model: str) -> Value:
        small = x < 2.0**-126
        y = instructions.log2(small.where(x * 2.0**32, x), model)
        high = y * factor
        result = high + y.fma(tail, y.fma(factor, -high))
        result = (abs(y) < INFINITY).where(result, y)
        return small.where(result - scaled, result)

    return run


EXPANDED: Mapping[str, Callable[[Value, str], Value]] = {
    "exp": _exp,
    "exp2": _exp2,
    "log2": _log2,
    "log": _logarithm(hexadecimal("0x1.62e42ep-1"), hexadecimal("0x1.efa39ep-25"), hexadecimal("0x1.62e430p4")),
    "log10": _logarithm(hexadecimal("0x1.344134p-2"), hexadecimal("0x1.09f79ep-26"), hexadecimal("0x1.344136p3")),
}
