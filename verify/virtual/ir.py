"""LLVM IR by Python's operators, and its compilation for this machine: what host models of instructions are written in.

Floating-point operations carry no flag that would let LLVM change a rounding (LLVM Language Reference, "Fast-Math
Flags"): + - * / and sqrt are IEEE 754's, `fma` is fused and nothing else is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(width) for width in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()
POINTER = ir.PointerType()

#: An integer as wide as each format; its bits of fraction; its bias of the exponent.
BITS = {F16: I16, F32: I32, F64: I64}
FRACTION = {F16: 10, F32: 23, F64: 52}
BIAS = {F16: 15, F32: 127, F64: 1023}
SUFFIX = {F16: "f16", F32: "f32", F64: "f64", I16: "i16", I32: "i32", I64: "i64"}
INFINITY = float("inf")


@dataclass(frozen=True, eq=False)
class Value:
    """A value of LLVM and where instructions on it go. Operators take numbers on the other side; integers wrap."""

    builder: ir.IRBuilder
    value: Any

    @property
    def type(self) -> Any:
        return self.value.type

    @property
    def floats(self) -> bool:
        return self.type in BITS

    def make(self, value: Any) -> Value:
        return Value(self.builder, value)

    def like(self, other: Value | float) -> Value:
        """`other`, or the number as a constant of this type."""
        if isinstance(other, Value):
            assert other.type == self.type, f"{other.type} beside {self.type}"
            return other
        if not self.floats:
            return self.make(ir.Constant(self.type, int(other) & ((1 << self.type.width) - 1)))
        return self.make(ir.Constant(self.type, other))

    def _binary(self, other: Value | float, floating: str, whole: str) -> Value:
        operation = floating if self.floats else whole
        return self.make(getattr(self.builder, operation)(self.value, self.like(other).value))

    def __add__(self, other: Value | float) -> Value:
        return self._binary(other, "fadd", "add")

    def __sub__(self, other: Value | float) -> Value:
        return self._binary(other, "fsub", "sub")

    def __mul__(self, other: Value | float) -> Value:
        return self._binary(other, "fmul", "mul")

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary(other, "fdiv", "udiv")

    def __and__(self, other: Value | int) -> Value:
        return self.make(self.builder.and_(self.value, self.like(other).value))

    def __or__(self, other: Value | int) -> Value:
        return self.make(self.builder.or_(self.value, self.like(other).value))

    def __xor__(self, other: Value | int) -> Value:
        return self.make(self.builder.xor(self.value, self.like(other).value))

    def __invert__(self) -> Value:
        return self ^ -1

    def __neg__(self) -> Value:
        """The sign inverted, of a NaN too."""
        return self.make(self.builder.fneg(self.value)) if self.floats else self.like(0) - self

    def __lshift__(self, count: Value | int) -> Value:
        return self.make(self.builder.shl(self.value, self.like(count).value))

    def __rshift__(self, count: Value | int) -> Value:
        """Logical."""
        return self.make(self.builder.lshr(self.value, self.like(count).value))

    def arithmetic_shift(self, count: Value | int) -> Value:
        return self.make(self.builder.ashr(self.value, self.like(count).value))

    def compare(self, relation: str, other: Value | float, signed: bool = False, unordered: bool = False) -> Value:
        """relation: == != < <= > >=; of floats true where either is NaN if `unordered`."""
        right = self.like(other).value
        if self.floats:
            compared = self.builder.fcmp_unordered if unordered else self.builder.fcmp_ordered
        else:
            compared = self.builder.icmp_signed if signed else self.builder.icmp_unsigned
        return self.make(compared(relation, self.value, right))

    def __lt__(self, other: Value | float) -> Value:
        return self.compare("<", other)

    def __le__(self, other: Value | float) -> Value:
        return self.compare("<=", other)

    def __gt__(self, other: Value | float) -> Value:
        return self.compare(">", other)

    def __ge__(self, other: Value | float) -> Value:
        return self.compare(">=", other)

    def equals(self, other: Value | float) -> Value:
        return self.compare("==", other)

    def differs(self, other: Value | float) -> Value:
        """True of floats also where either is NaN."""
        return self.compare("!=", other, unordered=True)

    def isnan(self) -> Value:
        return self.compare("uno", self)

    def where(self, yes: Value | float, no: Value | float) -> Value:
        """Of a condition: `yes` where it holds, else `no`, one of which is a Value."""
        given = yes if isinstance(yes, Value) else no
        assert isinstance(given, Value)
        return self.make(self.builder.select(self.value, given.like(yes).value, given.like(no).value))

    def call(self, intrinsic: str, *others: Value | float, overloads: str = "") -> Value:
        """llvm.`intrinsic` of this and others (numbers: of this type), with a result of this type."""
        arguments = [self.value, *((other if isinstance(other, Value) else self.like(other)).value for other in others)]
        kind = ir.FunctionType(self.type, [argument.type for argument in arguments])
        name = f"llvm.{intrinsic}.{SUFFIX[self.type]}{overloads}"
        module = self.builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.make(self.builder.call(function, arguments))

    def __abs__(self) -> Value:
        assert self.floats
        return self.call("fabs")

    def fma(self, factor: Value | float, addend: Value | float) -> Value:
        return self.call("fma", factor, addend)

    def bits(self) -> Value:
        return self.make(self.builder.bitcast(self.value, BITS[self.type]))

    def bitcast(self, kind: Any) -> Value:
        return self if self.type == kind else self.make(self.builder.bitcast(self.value, kind))

    def to(self, kind: Any, signed: bool = False) -> Value:
        """Converted: floats rounded to nearest, ties to even; integers extended or cut; between the two only where the
        value is representable. `signed` is of the integer's side."""
        b, v = self.builder, self.value
        if self.type == kind:
            return self
        if self.floats and kind in BITS:
            widens = FRACTION[kind] > FRACTION[self.type]
            return self.make(b.fpext(v, kind) if widens else b.fptrunc(v, kind))
        if self.floats:
            return self.make(b.fptosi(v, kind) if signed else b.fptoui(v, kind))
        if kind in BITS:
            return self.make(b.sitofp(v, kind) if signed else b.uitofp(v, kind))
        if kind.width < self.type.width:
            return self.make(b.trunc(v, kind))
        return self.make(b.sext(v, kind) if signed else b.zext(v, kind))


def constant(builder: ir.IRBuilder, kind: Any, number: float) -> Value:
    return Value(builder, ir.Constant(kind, number if kind in BITS else int(number) & ((1 << kind.width) - 1)))


def saturated(x: Value, kind: Any, signed: bool) -> Value:
    """An integer: toward zero, the nearest representable, 0 of NaN (PTX ISA, cvt; ISA, V_CVT_I32_F32)."""
    name = f"llvm.fpto{'s' if signed else 'u'}i.sat.i{kind.width}.{SUFFIX[x.type]}"
    module = x.builder.module
    declared = module.globals.get(name) or ir.Function(module, ir.FunctionType(kind, [x.type]), name)
    return x.make(x.builder.call(declared, [x.value]))


def _machine() -> Any:
    """Of this processor, with all it has. An engine owns the one that it is made with."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(llvm.get_host_cpu_name(), features, opt=3, jit=True)


@functools.cache
def host() -> str:
    """Processor and LLVM, as a fingerprint states them."""
    return f"{llvm.get_host_cpu_name()}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


class Compiled:
    """The code of a module, for as long as this lives; `address` of a function in it."""

    def __init__(self, *texts: str, exported: str) -> None:
        """The modules' texts linked, optimised with all but `exported` private, and compiled. Raises ValueError, which
        names it, where a function is declared that neither they nor LLVM define."""
        machine = _machine()
        module = llvm.parse_assembly(texts[0])
        for text in texts[1:]:
            module.link_in(llvm.parse_assembly(text))
        for function in module.functions:
            if not function.is_declaration:
                function.linkage = "external" if function.name == exported else "internal"
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = True
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        llvm.create_pass_builder(machine, options).getModulePassManager().run(
            module, llvm.create_pass_builder(machine, options)
        )
        missing = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
        if missing:
            raise ValueError(f"no host model of {', '.join(missing)}")
        self.engine = llvm.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()
        self.address: Callable[[str], int] = self.engine.get_function_address
