"""PTX executed on the CPU, all threads of many blocks at a time: each register is an array with one element a thread.

IEEE instructions give the bits of the standard (PTX ISA, 9.7.3 and 9.7.4), in the host's own arithmetic; approximate
ones are left to a model (`verify.virtual.approx`). The threads whose program counter is least go
first, so that warps converge where their code does; blocks know nothing of one another. What is not here is refused by
its name before anything runs: an atomic, a modifier, a matrix instruction of a unit that nobody recorded.

PTX is not the last word: where contraction is permitted (`mul.f32` without `.rn`), ptxas may still fuse a product and a
sum. `Program.open` counts the sums that it might.
"""

from __future__ import annotations

import functools
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from verify.virtual import approx, lanes, matrix
from verify.virtual.compile import GRID, Fault, Launch, Unsupported

Array = Any  # of numpy, whose dtypes no annotation says
Select = Any  # slice(None), or indices of the threads that take part
Step = Callable[["Machine", Select], None]
ALL = slice(None)

#: Threads that run at a time, so that their registers stay in the processor's cache.
THREADS = 1 << 15
#: Threads of a warpgroup.
WARPGROUP = 128
#: Where generic addresses of a thread's own memory begin.
LOCAL = 1 << 60
UNSIGNED: Mapping[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: Mapping[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
FLOATS: Mapping[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}

_STATEMENT = re.compile(r"^(?:@(!?)([%\w$]+)\s+)?([a-z][\w.]*)\s*(.*)$", re.S)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s][^,]*")
_ADDRESS = re.compile(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+))?\s*\]")


@dataclass(frozen=True)
class Kind:
    """A type of PTX: its letter (b, u, s, f; 'bf' for bfloat16, 'pred') and bits; packed: of two halves in a word."""

    letter: str
    bits: int
    packed: bool = False

    @staticmethod
    def of(text: str) -> Kind | None:
        if text == "pred":
            return Kind("pred", 1)
        found = re.fullmatch(r"(b|u|s|f|bf)(8|16|32|64)((?<=16)x2)?", text)
        return Kind(found[1], int(found[2]), bool(found[3])) if found else None

    @property
    def floats(self) -> bool:
        return self.letter in ("f", "bf")

    @property
    def word(self) -> int:
        """Bits of the register."""
        return 32 if self.packed else self.bits

    @property
    def dtype(self) -> Any:
        if self.letter == "bf":
            return np.uint16
        return {"f": FLOATS, "s": SIGNED}.get(self.letter, UNSIGNED)[self.bits]


@dataclass(frozen=True)
class Program:
    """A kernel, decoded.

    parameters  name and bits, in order
    threads     of a block, as the code requires
    steps       (predicate, negated, branch target or None, what to do)
    dtypes      of its registers, by name: as wide as they are declared
    approximate names of the approximate instructions that it has
    open        sums that ptxas may contract with a product
    products    matrix instructions, and how each is modelled
    """

    name: str
    parameters: tuple[tuple[str, int], ...]
    threads: int
    steps: tuple[tuple[str, bool, int | None, Step | None], ...]
    dtypes: Mapping[str, Any]
    local: int
    shared: int
    data: Mapping[str, bytes]
    approximate: tuple[str, ...]
    open: int
    products: Mapping[str, str]


# Text to statements


@dataclass
class _Text:
    """Statements with their functions in line, whose names are unique."""

    statements: list[str] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    bits: dict[str, int] = field(default_factory=dict)  # of registers and of functions' parameters; 1: a predicate
    local: int = 0
    places: dict[str, int] = field(default_factory=dict)  # of local and shared variables
    shared: int = 0
    scopes: int = 0


@dataclass(frozen=True)
class _Label:
    name: str


def _functions(text: str) -> dict[str, tuple[list[tuple[str, int]], str]]:
    """Parameters and body of each function and kernel that has one; returned values come first. A parameter of several
    words has 0 bits."""
    found = {}
    head = re.compile(r"\.(?:func|entry)\s*(\([^)]*\))?\s*([\w$]+)\s*\(([^)]*)\)[^{;]*([{;])", re.S)
    at = 0
    while match := head.search(text, at):
        at = match.end()
        if match[4] == ";":
            continue
        depth, end = 1, at
        while depth:
            end = re.compile(r"[{}]").search(text, end).end()  # type: ignore[union-attr]
            depth += 1 if text[end - 1] == "{" else -1
        given = ",".join(filter(str.strip, ((match[1] or "").strip("()"), match[3])))
        declared = re.findall(r"\.(?:b|u|s|f)(\d+)\s[^,]*?([\w$]+)\s*(\[[^,]*)?(?:,|$)", given.strip())
        found[match[2]] = ([(name, 0 if many else int(bits)) for bits, name, many in declared], text[at : end - 1])
        at = end
    return found


def _nested(body: str) -> list[Any]:
    """Statements, labels and, as a list, what stands between braces."""
    found: list[Any] = []
    inside = [found]
    for raw in body.split(";"):
        text = raw.strip()
        while match := re.match(r"([{}])\s*|([$\w]+):(?!:)\s*", text):
            text = text[match.end() :]
            if match[2]:
                inside[-1].append(_Label(match[2]))
            elif match[1] == "{":
                inside[-1].append([])
                inside.append(inside[-1][-1])
            else:
                inside.pop()
        if text:
            inside[-1].append(" ".join(text.split()))
    return found


def _declared(statement: str) -> Iterator[tuple[str, int]]:
    """Names and bits of what `.reg` or `.param` declares: `.reg .b32 a, %r<3>` a, %r0, %r1 and %r2."""
    match = re.fullmatch(r"\.(?:reg|param)\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(.*)", statement)
    kind = Kind.of(match[1]) if match else None
    if match is None or kind is None:
        raise Unsupported(f"the PTX declaration {statement!r}")
    for one in match[2].split(","):
        named = re.fullmatch(r"\s*([%$\w]+)(?:<(\d+)>)?\s*", one)
        if named is None:
            raise Unsupported(f"the PTX declaration {statement!r}")
        for name in [named[1]] if named[2] is None else [f"{named[1]}{k}" for k in range(int(named[2]))]:
            yield name, kind.word


def _inline(name: str, functions: Mapping[str, Any], into: _Text, call: str, arguments: Sequence[str]) -> None:
    """Append a function's statements, under names of this call."""
    declared, body = functions[name]
    if any(not bits for _, bits in declared):
        raise Unsupported(f"a parameter or result of {name} that has several words")
    names = {one: given for (one, _), given in zip(declared, arguments, strict=True)}
    into.bits |= {names[one]: bits for one, bits in declared}
    variables = r"\.(local|shared)\s+\.align\s+(\d+)\s+\.b(\d+)\s+([\w$]+)\[(\d+)\]\s*;"
    for space, align, width, variable, count in re.findall(variables, body):
        size = int(count) * int(width) // 8
        start = -(-(into.local if space == "local" else into.shared) // int(align)) * int(align)
        names[variable] = f"{variable}{call}"
        into.places[names[variable]] = start
        if space == "local":
            into.local = start + size
        else:
            into.shared = start + size
    body = re.sub(r"^\s*\.(?:loc|file|pragma|section)\b[^\n]*$", "", re.sub(variables, "", body), flags=re.M)
    _append(_nested(body), ChainMap(names), functions, into, call, call)


def _append(
    items: Sequence[Any], names: ChainMap[str, str], functions: Mapping[str, Any], into: _Text, call: str, scope: str
) -> None:  # fmt: skip
    """Append what stands between braces. Registers and labels are those of the innermost braces that declare them."""
    own = names.new_child()
    for item in items:
        if isinstance(item, _Label):
            own[item.name] = f"{item.name}{scope}"
        elif isinstance(item, str) and item.startswith((".reg", ".param")):
            for name, bits in _declared(item):
                own[name] = f"{name}{scope}"
                into.bits[own[name]] = bits

    def renamed(text: str) -> str:
        return re.sub(r"[%$\w][\w$]*(?:\.[xyz]\b)?", lambda match: own.get(match[0], match[0]), text)

    for item in items:
        if isinstance(item, _Label):
            into.labels[own[item.name]] = len(into.statements)
        elif isinstance(item, list):
            into.scopes += 1
            _append(item, own, functions, into, call, f"{call}_scope{into.scopes}")
        elif (match := _STATEMENT.match(item)) is None:
            if not item.startswith("."):  # pragmas and the like
                raise Unsupported(f"the PTX statement {item[:60]!r}")
        else:
            negated, predicate, op, rest = match.groups()
            when = f"@{negated}{own.get(predicate, predicate)} " if predicate else ""
            rest = renamed(rest)
            called = re.match(r"(?:\(([^)]*)\),\s*)?([\w$]+)(?:,\s*\(([^)]*)\))?", rest)
            if op in ("call", "call.uni") and not when and called and called[2] in functions:
                _called(called[2], called[1] or "", called[3] or "", functions, into, f"{call}_call{into.scopes}")
            elif op == "ret" and call:
                into.statements.append(f"{when}bra end{call}")
            else:
                into.statements.append(f"{when}{op} {rest}".strip())


def _called(
    name: str, results: str, arguments: str, functions: Mapping[str, Any], into: _Text, call: str
) -> None:  # fmt: skip
    """Append a call: copies of what is given, the function, and copies of what it returns."""
    into.scopes += 1
    outer = [[x.strip() for x in group.split(",") if x.strip()] for group in (results, arguments)]
    returned, given = ([f"{x}{call}" for x in group] for group in outer)
    into.statements += [f"mov.any {one}, {old}" for one, old in zip(given, outer[1], strict=True)]
    _inline(name, functions, into, call, [*returned, *given])
    into.labels[f"end{call}"] = len(into.statements)
    into.statements += [f"mov.any {old}, {one}" for old, one in zip(outer[0], returned, strict=True)]


def parse(text: str, shared: int = 0) -> Program:
    """A module with one kernel. shared: bytes that a launch gives beside those declared. Raises Unsupported."""
    text = re.sub(r"//[^\n]*", "", text).replace("::", ".")
    kernels = re.findall(r"\.entry\s+([\w$]+)", text)
    if len(kernels) != 1:
        raise Unsupported(f"a PTX module with {len(kernels)} kernels; expected one")
    functions = _functions(text)
    parameters, _ = functions[kernels[0]]
    into = _Text()
    _inline(kernels[0], functions, into, "", [name for name, _ in parameters])
    data = {
        name: np.array([int(x, 0) for x in values.split(",")], UNSIGNED[int(bits)]).tobytes()
        for bits, name, values in re.findall(
            r"\.(?:global|const)\s+\.align\s+\d+\s+\.b(\d+)\s+([\w$]+)\[\d+\]\s*=\s*\{([^}]*)\}", text
        )
    }
    for name in re.findall(r"\.extern\s+\.shared\s[^;]*?([\w$]+)\[\]", text):
        into.places[name] = 0
    threads = re.search(r"\.(?:reqntid|maxntid)\s+(\d+)", text)
    if threads is None:
        raise Unsupported(f"{kernels[0]} does not say how many threads a block has (.reqntid)")
    capability = re.search(r"\.target\s+(sm_\d+)", text)
    decoded = _Decoder(into, data, capability[1] if capability else "")
    steps = []
    for statement in into.statements:
        match = _STATEMENT.match(statement)
        if match is None:
            raise Unsupported(f"the PTX statement {statement[:60]!r}")
        negated, predicate, op, rest = match.groups()
        operands = [one.strip() for one in _OPERAND.findall(rest)]
        for name in re.findall(r"%[\w$]+(?:\.[xyz]\b)?", rest):
            if name not in into.bits and name not in _SPECIAL:
                raise Unsupported(f"the register {name}")
        if predicate and into.bits.get(predicate) != 1:
            raise Unsupported(f"the predicate {predicate}")
        target = None
        if op in ("bra", "bra.uni"):
            if operands[0] not in into.labels:
                raise Unsupported(f"a branch to {operands[0]}")
            target = into.labels[operands[0]]
        elif op in ("ret", "exit"):
            target = len(into.statements)
        step = None if target is not None else decoded.step(op, operands)
        steps.append((predicate or "", negated == "!", target, step))
    names = [statement.split()[0] if statement[0] != "@" else statement.split()[1] for statement in into.statements]
    unsettled = sum(bool(re.fullmatch(r"(?:add|sub)\.(?:ftz\.)?(?:f32|f64|f16|bf16)", name)) for name in names)
    products = any(re.fullmatch(r"mul\.(?:ftz\.)?(?:f32|f64|f16|bf16)", name) for name in names)
    approximate = sorted({name for name in names if ".approx" in name or name.startswith("div.full")})
    dtypes = {name: UNSIGNED[bits] for name, bits in into.bits.items()}
    return Program(
        kernels[0], tuple(parameters), int(threads[1]), tuple(steps), dtypes, into.local,
        max(into.shared, shared, 16), data, tuple(approximate), unsettled if products else 0, decoded.products,
    )  # fmt: skip


@functools.lru_cache(256)
def program_of(text: str, shared: int) -> Program:
    return parse(text, shared)


# Execution


class Machine:
    """Blocks in flight: registers by name, program counters, shared and local memory."""

    def __init__(self, program: Program, blocks: Array, grid: Sequence[int], parameters: Mapping[str, int],
                 memory: lanes.Memory, data: Mapping[str, Array], model: approx.Mufu) -> None:  # fmt: skip
        n = program.threads
        self.program, self.size, self.memory, self.model, self.data = program, blocks.size * n, memory, model, data
        thread = np.arange(self.size, dtype=np.uint32)
        self.block, self.lane, self.thread = thread // n, thread % 32, thread
        place = blocks.repeat(n)
        x, y = grid[0], grid[1]
        special = {
            "%tid.x": thread % n, "%tid.y": 0, "%tid.z": 0, "%ntid.x": n, "%ntid.y": 1, "%ntid.z": 1,
            "%ctaid.x": place % x, "%ctaid.y": place // x % y, "%ctaid.z": place // (x * y),
            "%nctaid.x": grid[0], "%nctaid.y": grid[1], "%nctaid.z": grid[2], "%laneid": self.lane,
        }  # fmt: skip
        self.registers: dict[str, Array] = {
            name: np.broadcast_to(np.asarray(value, np.uint32), (self.size,)) for name, value in special.items()
        }
        self.parameters = parameters
        self.shared = np.zeros(blocks.size * program.shared, np.uint8)
        self.local = np.zeros(self.size * program.local, np.uint8) if program.local else None
        self.constants: dict[tuple[int, int], Array] = {}
        self.carry = np.zeros(self.size, np.uint64)
        self.counters: Array | None = None

    def count(self, at: Select) -> int:
        return self.size if isinstance(at, slice) else len(at)

    def full(self, value: int, bits: int, at: Select) -> Array:
        kept = self.constants.get((value, bits))
        if kept is None:
            kept = self.constants[value, bits] = np.full(self.size, value, UNSIGNED[bits])
        return kept[: self.count(at)]

    def write(self, name: str, value: Array, at: Select) -> None:
        """`value` must belong to nobody else. In a wider register zeros are before it; of a wider one, whose sign goes
        on, the register takes the lower bits."""
        dtype = self.program.dtypes[name]
        if value.dtype != dtype:
            value = value.astype(dtype)
        if isinstance(at, slice):
            self.registers[name] = value
            return
        held = self.registers.get(name)
        if held is None:
            held = self.registers[name] = np.zeros(self.size, dtype)
        held[at] = value

    def space(self, which: str, address: Array, at: Select) -> tuple[lanes.Memory, Array]:
        """The memory behind addresses of a space ('shared', 'local'), as addresses of this process."""
        held, size = (self.shared, self.program.shared) if which == "shared" else (self.local, self.program.local)
        if held is None:
            raise Unsupported(f"{which} memory in a kernel that declares none")
        address = address & np.uint64(0xFFFFFFFF)  # pointers into these spaces have 32 bits
        if bool((address >= size).any()):
            raise Fault(f"launched an access to {which} memory beyond the {size} bytes that there are")
        owner = (self.block if which == "shared" else self.thread)[at].astype(np.uint64)
        start = held.ctypes.data
        memory = lanes.Memory([(start, start + held.size)])
        return memory, address + owner * np.uint64(size) + np.uint64(start)

    def run(self) -> None:
        """Run all threads to their end. The threads with the least program counter go first."""
        steps, end = self.program.steps, len(self.program.steps)
        counters = np.zeros(self.size, np.int64)
        at: Any = ALL
        together, cur, rest = True, 0, end
        with np.errstate(all="ignore"):
            while True:
                if cur >= rest or cur >= end:
                    if not together:
                        counters[at] = cur
                    elif cur >= end:
                        return
                    cur = int(counters.min())
                    if cur >= end:
                        return
                    at = np.nonzero(counters == cur)[0]
                    waiting = counters[counters > cur]
                    waiting = waiting[waiting < end]
                    rest = int(waiting.min()) if waiting.size else end
                    together = at.size == self.size
                    at, rest = (ALL, end) if together else (at, rest)
                self.counters = None if together else counters
                predicate, negated, target, step = steps[cur]
                chosen = None
                if predicate:
                    held = self.registers.get(predicate)
                    held = np.zeros(self.count(at), np.bool_) if held is None else held[at]
                    chosen = ~held if negated else held
                    taking = np.count_nonzero(chosen)
                    chosen = None if taking == chosen.size else chosen
                    if not taking:
                        cur += 1
                        continue
                if target is None:
                    assert step is not None
                    if chosen is None:
                        step(self, at)
                    else:
                        step(self, np.nonzero(chosen)[0] if together else at[chosen])
                    cur += 1
                elif chosen is None:
                    cur = target
                else:
                    counters[at] = np.where(chosen, target, cur + 1)
                    together, at, cur = False, np.zeros(0, np.int64), end  # choose anew


def launch(one: Launch, model: approx.Mufu) -> None:
    """Execute a launch on the memory of its tensors. Raises Unsupported, before anything ran, for what is not modelled,
    and Fault for too large a grid and at an access outside the tensors."""
    execute(one, one.code, model)


def execute(one: Launch, text: str, model: approx.Mufu) -> None:
    """`launch` with other code."""
    if any(size > most for size, most in zip(one.grid, GRID, strict=True)):
        raise Fault(f"launched {one.name} on a grid of {one.grid}; CUDA has at most {GRID}")
    program = program_of(text, int(one.metadata.shared))
    ranges = []
    values: list[int] = []
    for argument in one.arguments:
        value = argument.value
        if argument.kind.startswith("*"):
            if value is not None:
                storage = value.untyped_storage()
                ranges.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            values.append(0 if value is None else value.data_ptr())
        else:
            values.append(bits_of(argument.kind, value))
    scratch = np.zeros(max(int(getattr(one.metadata, "global_scratch_size", 0) or 0), 1), np.uint8)
    if scratch.size > 1:
        raise Unsupported(f"{one.name} uses global scratch memory")
    values += [0] * (len(program.parameters) - len(values))
    if len(values) != len(program.parameters):
        raise Unsupported(f"{one.name} has {len(program.parameters)} parameters; the launch gives {len(values)}")
    data = {name: np.frombuffer(held, np.uint8) for name, held in program.data.items()}
    ranges += [(held.ctypes.data, held.ctypes.data + held.size) for held in data.values()]
    memory = lanes.Memory(ranges)
    parameters = {name: value for (name, _), value in zip(program.parameters, values, strict=True)}
    blocks = one.grid[0] * one.grid[1] * one.grid[2]
    each = max(THREADS // program.threads, 1)
    for start in range(0, blocks, each):
        some = np.arange(start, min(start + each, blocks), dtype=np.int64)
        Machine(program, some, one.grid, parameters, memory, data, model).run()


def bits_of(kind: str, value: Any) -> int:
    """The bits that a launch passes for a number."""
    if kind in ("fp32", "f32"):
        return int(np.float32(value).view(np.uint32))
    if kind in ("fp64", "f64"):
        return int(np.float64(value).view(np.uint64))
    if re.fullmatch(r"[iu](1|8|16|32|64)", kind):
        return int(value) & ((1 << int(kind[1:])) - 1)
    raise Unsupported(f"a parameter of type {kind}")


# Operands

#: Special registers that are modelled.
_SPECIAL = frozenset({"%laneid", *(f"%{name}.{k}" for name in ("tid", "ntid", "ctaid", "nctaid") for k in "xyz")})
Read = Callable[[Machine, Select], Array]


def _literal(text: str, bits: int) -> int | None:
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return int(text[2:], 16) if bits == 32 else None
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return int(text[2:], 16) if bits == 64 else None
    if re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?", text):
        return int(text.rstrip("U"), 0) & ((1 << bits) - 1)
    return None


#: What numpy computes of integers and bits.
_INTEGERS: Mapping[str, Any] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
}  # fmt: skip


class _Decoder:
    """Statements to steps. Names of methods are roots of instructions."""

    def __init__(self, text: _Text, data: Mapping[str, bytes], capability: str) -> None:
        self.places, self.bits, self.data, self.capability = text.places, text.bits, data, capability
        self.products: dict[str, str] = {}

    def step(self, op: str, operands: list[str]) -> Step:
        root, *modifiers = op.split(".")
        method = getattr(self, f"_{root}", None)
        kinds = [kind for kind in map(Kind.of, modifiers) if kind]
        rest = {text for text in modifiers if not Kind.of(text)}
        if method is None:
            raise Unsupported(f"the PTX instruction {op}")
        if len(operands) not in OPERANDS.get(root, (len(operands),)):
            raise Unsupported(f"the PTX instruction {op} with {len(operands)} operands")
        try:
            step = method(op, rest, kinds, operands)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise Unsupported(f"the PTX instruction {op} {', '.join(operands)}") from error
        if step is None or rest:
            raise Unsupported(f"the PTX instruction {op}" + (f" (modifier {', '.join(sorted(rest))})" if rest else ""))
        found: Step = step
        return found

    def read(self, text: str, kind: Kind) -> Read:
        """The operand as an array of the kind's dtype; not to be written to."""
        bits, dtype = kind.word, kind.dtype
        if text in self.data:
            return lambda m, at: np.full(m.count(at), m.data[text].ctypes.data, np.uint64)
        value = self.places.get(text, _literal(text, bits))
        if value is None and text in ("true", "false"):
            value = int(text == "true")
        if value is not None:
            fixed = value
            return lambda m, at: m.full(fixed, bits, at).view(dtype)
        # a wider register gives its lower bits
        if self.bits.get(text, 32 if text in _SPECIAL else 0) < bits:
            raise KeyError(text)

        def read(m: Machine, at: Select) -> Array:
            held = m.registers.get(text)
            if held is None:
                return m.full(0, bits, at).view(dtype)
            if not isinstance(at, slice):
                held = held[at]
            if 8 * held.itemsize != bits and bits > 1:
                held = held.astype(UNSIGNED[bits])
            return held if held.dtype == dtype else held.view(dtype)

        return read

    def made(self, out: str, value: Callable[..., Array], *reads: Read) -> Step:
        """A step that writes what `value` makes of operands; a new array each time."""

        def step(m: Machine, at: Select) -> None:
            result = value(*[read(m, at) for read in reads])
            if result.dtype != np.bool_:
                result = result.view(UNSIGNED[8 * result.itemsize])
            m.write(out, result, at)

        return step

    # Moves

    def _mov(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        if "any" in rest:  # a parameter of a call in line
            rest.discard("any")
            return lambda m, at: m.write(o[0], m.registers[o[1]][at].copy(), at)
        kind = Kind("b", kinds[0].bits) if kinds[0].letter != "pred" else kinds[0]
        if o[0].startswith("{") or o[1].startswith("{"):
            parts = [x.strip() for x in (o[0] if o[0].startswith("{") else o[1]).strip("{} ").split(",")]
            half = Kind("b", kind.bits // len(parts))
            if o[0].startswith("{"):
                whole = self.read(o[1], kind)

                def split(m: Machine, at: Select) -> None:
                    words = np.ascontiguousarray(whole(m, at)).view(half.dtype).reshape(-1, len(parts))
                    for k, part in enumerate(parts):
                        if part != "_":
                            m.write(part, words[:, k].copy(), at)

                return split
            reads = [self.read(part, half) for part in parts]
            return self.made(o[0], lambda *words: np.stack(words, axis=1).reshape(-1).view(kind.dtype), *reads)
        return self.made(o[0], np.copy, self.read(o[1], kind))

    def _cvta(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        space, to = rest & {"local", "global"}, "to" in rest
        rest -= {"local", "global", "to"}
        offset = np.uint64(LOCAL if space == {"local"} else 0)
        read = self.read(o[1], Kind("u", 64))
        return self.made(o[0], (lambda a: a - offset) if to else (lambda a: a + offset), read)

    def _ld(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        kind, where = kinds[-1], _ADDRESS.fullmatch(o[1])
        assert where is not None
        space = next(iter(rest & {"param", "global", "shared", "local"}), "")
        count = next((int(text[1:]) for text in rest & {"v2", "v4", "v8"}), 1)
        # cache hints and memory order have no effect here
        rest -= {"param", "global", "shared", "local", "v2", "v4", "v8", "nc", "volatile", "relaxed", "weak"}
        rest -= {text for text in rest if re.match(r"L\d|evict|cg|ca|cs|lu|cv|cta|unified", text)}
        outs = [x.strip() for x in o[0].strip("{} ").split(",")]
        if space == "param":
            name = where[1]
            if int(where[2] or "0", 0):
                return None

            def parameter(m: Machine, at: Select) -> None:
                # or of a function in line
                held = m.full(m.parameters[name], 64, at) if name in m.parameters else m.registers[name][at]
                m.write(outs[0], _extended(held.astype(UNSIGNED[kind.bits]), kind), at)

            return parameter
        address = self._address(where)

        def load(m: Machine, at: Select) -> None:
            memory, place = _behind(m, space, address(m, at), at)
            for name, word in zip(outs, memory.load(place, kind.bits, count), strict=True):
                if name != "_":
                    m.write(name, _extended(word, kind), at)

        return load

    def _createpolicy(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        """A cache policy has no effect here: the loads that name it ignore it."""
        rest.clear()
        return lambda m, at: m.write(o[0], m.full(0, 64, at).copy(), at)

    def _st(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        kind, where = kinds[-1], _ADDRESS.fullmatch(o[0])
        assert where is not None
        space = next(iter(rest & {"param", "global", "shared", "local"}), "")
        rest -= {"param", "global", "shared", "local", "v2", "v4", "v8", "volatile", "relaxed", "weak"}
        rest -= {text for text in rest if re.match(r"L\d|evict|wb|cg|cs|wt|cta", text)}
        reads = [self.read(x.strip(), Kind("b", kind.bits)) for x in o[1].strip("{} ").split(",")]
        if space == "param":
            return None if int(where[2] or "0", 0) else self.made(where[1], np.copy, reads[0])
        address = self._address(where)

        def store(m: Machine, at: Select) -> None:
            memory, place = _behind(m, space, address(m, at), at)
            memory.store(place, kind.bits, [read(m, at) for read in reads])

        return store

    def _address(self, where: re.Match[str]) -> Read:
        base = self.read(where[1], Kind("u", self.bits.get(where[1], 64)))  # 32 bits of shared and local memory
        offset = np.uint64(int(where[2] or "0", 0) & (1 << 64) - 1)
        return lambda m, at: base(m, at).astype(np.uint64, copy=False) + offset

    def _cp(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        """cp.async: made at once, as late as any wait may see it; what is beyond the source's size is 0."""
        if rest & {"commit_group", "wait_group", "wait_all"}:
            rest.clear()
            return lambda m, at: None
        rest -= {"async", "cg", "ca", "shared", "global"}
        to, source = (self._address(where) for text in o[:2] if (where := _ADDRESS.fullmatch(text)))
        size, word = int(o[2], 0), Kind("u", 32)
        given = self.read(o[3], word) if len(o) > 3 else None

        def copy(m: Machine, at: Select) -> None:
            some = given(m, at) if given else m.full(size, 32, at)
            if ((some != 0) & (some != size)).any():
                raise Unsupported(f"{op} of a part")
            words = [np.zeros(m.count(at), np.uint32) for _ in range(size // 4)]
            for word, new in zip(words, m.memory.load(source(m, at)[some > 0], 32, size // 4), strict=True):
                word[some > 0] = new
            memory, place = m.space("shared", to(m, at), at)
            memory.store(place, 32, words)

        return copy

    # Matrices

    def _ldmatrix(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        """8x8 matrices of halves: lane i gets (stmatrix: gives) elements 2(i mod 4) and the next of row i/4, with
        `trans` of column i/4. Lane 8k + row has the address of a row of matrix k."""
        count, transposed, stores = int(next(iter(rest & {"x1", "x2", "x4"}))[1:]), "trans" in rest, op[0] == "s"
        rest -= {"sync", "aligned", "m8n8", f"x{count}", "shared", "trans"}
        where = _ADDRESS.fullmatch(o[not stores])
        assert where is not None
        names, address = _listed(o[stores]), self._address(where)
        reads = [self.read(name, Kind("u", 32)) for name in names]

        def move(m: Machine, at: Select) -> None:
            _whole_warps(m, at, op)
            given = m.lane[at] < 8 * count
            memory, start = m.space("shared", address(m, at)[given], m.thread[at][given])
            lane = m.lane[at].astype(np.int64)
            matrices, line, pair = np.arange(len(lane)) // 32 * 8 * count, lane // 4, 2 * (lane % 4)
            for k, name in enumerate(names):
                place = [
                    start[matrices + 8 * k + row] + (2 * column).astype(np.uint64)
                    for row, column in (
                        ((pair, line), (pair + 1, line)) if transposed else ((line, pair), (line, pair + 1))
                    )
                ]
                if stores:
                    halves = np.ascontiguousarray(reads[k](m, at)).view(np.uint16)
                    for half, to in enumerate(place):
                        memory.store(to, 16, [halves[half::2]])
                else:
                    halves = np.stack([memory.load(source, 16)[0] for source in place], axis=1)
                    m.write(name, halves.view(np.uint32)[:, 0].copy(), at)

        return move

    _stmatrix = _ldmatrix

    def _mma(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        rest.clear()
        one = self._product_of(op)
        outs, *given = map(_listed, o)
        sizes = ((one.m, one.k, one.a), (one.n, one.k, one.b), (one.m, one.n, one.result))
        if [len(each) for each in (*given, outs)] != [matrix.registers(*size) for size in (*sizes, sizes[2])]:
            raise KeyError
        word = Kind("b", 64 if one.result == "f64" else 32)
        reads = [[self.read(text, word) for text in each] for each in given]

        def step(m: Machine, at: Select) -> None:
            _whole_warps(m, at, op)
            a, b, c = ([read(m, at) for read in each] for each in reads)
            d = one(matrix.gathered(a, *sizes[0]), matrix.gathered(b, *sizes[1]), matrix.gathered(c, *sizes[2], 2))
            for out, value in zip(outs, matrix.scattered(d, len(outs)), strict=True):
                m.write(out, value, at)

        return step

    def _wgmma(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        """Made at once: neither the accumulators nor shared memory may be touched before the wait."""
        if rest & {"fence", "commit_group", "wait_group"}:
            rest.clear()
            return lambda m, at: None
        rest.clear()
        one, outs = self._product_of(op), _listed(o[0])
        signs, turned = o[4:6], [int(text) for text in o[6:]]
        if signs not in ([], ["1", "1"]):
            raise Unsupported(f"{op} with factors {', '.join(signs)}")
        turned = [0] * (2 - len(turned)) + turned
        if len(outs) != matrix.registers(one.m // 4, one.n, one.result):
            raise KeyError
        word, added = Kind("b", 32), self.read(o[3], Kind("pred", 1))
        accumulators = [self.read(text, word) for text in outs]
        registers = [self.read(text, word) for text in _listed(o[1])] if o[1].startswith("{") else []
        left, right = (self._described(text, op) for text in o[1:3])

        def step(m: Machine, at: Select) -> None:
            _whole_warps(m, at, op, WARPGROUP)
            if registers:
                a = matrix.gathered([read(m, at) for read in registers], 16, one.k, one.a).reshape(-1, one.m, one.k)
            else:
                a = left(m, at, one.m, one.k, one.a, bool(turned[0]))
            b = right(m, at, one.n, one.k, one.b, bool(turned[1]))
            c = matrix.gathered([read(m, at) for read in accumulators], 16, one.n, one.result, 2)
            kept = torch.from_numpy(added(m, at)[::WARPGROUP].copy())[:, None, None]
            c = c.reshape(-1, one.m, one.n)
            d = one(a, b, torch.where(kept, c, torch.zeros_like(c)))
            for out, value in zip(outs, matrix.scattered(d.reshape(-1, 16, one.n), len(outs)), strict=True):
                m.write(out, value, at)

        return step

    def _product_of(self, op: str) -> matrix.Product:
        one = matrix.decoded(op, self.capability)
        self.products[op] = str(one)
        return one

    def _described(self, text: str, op: str) -> Callable[[Machine, Select, int, int, str, bool], torch.Tensor]:
        """A matrix in shared memory, by its descriptor, which all threads of a warpgroup must share."""
        read = self.read(text, Kind("u", 64)) if not text.startswith("{") else None

        def load(m: Machine, at: Select, rows: int, columns: int, kind: str, by_columns: bool) -> torch.Tensor:
            assert read is not None
            every = read(m, at).reshape(-1, WARPGROUP)
            if (every != every[:, :1]).any():
                raise Unsupported(f"{op} with descriptors that differ within a warpgroup")
            size = matrix.TYPES[kind][1].itemsize
            place = matrix.places(every[:, 0], rows, columns, size, by_columns)
            threads = m.thread[at][::WARPGROUP].repeat(rows * columns)
            memory, address = m.space("shared", place.reshape(-1).astype(np.uint64), threads)
            (words,) = memory.load(address, 8 * size)
            return matrix.loaded(words, (len(every), rows, columns), kind)

        return load

    # Comparison and choice

    def _setp(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        kind = kinds[-1]
        word = next(iter(rest & set(_COMPARISONS)))
        ftz, joined = "ftz" in rest, rest & {"and", "or", "xor"}
        rest -= {word, "ftz", *joined}
        outs = [x.strip() for x in o[0].split("|")]
        compare = functools.partial(_compared, word, kind, ftz)
        whole = Kind("b", kind.word) if kind.packed else kind
        reads = [self.read(o[1], whole), self.read(o[2], whole)]
        third = self.read(o[3].lstrip("!"), Kind("pred", 1)) if joined else None
        combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}

        def step(m: Machine, at: Select) -> None:
            result = compare(*[np.ascontiguousarray(read(m, at)).view(kind.dtype) for read in reads])
            # of two halves each has its predicate
            result, other = (result[::2].copy(), result[1::2].copy()) if kind.packed else (result, ~result)
            if third is not None:
                with_it = third(m, at) ^ o[3].startswith("!")
                join = combine[next(iter(joined))]
                result, other = join(result, with_it), join(other, with_it)
            for out, value in zip(outs, (result, other), strict=False):
                if out != "_":
                    m.write(out, value, at)

        return step

    def _selp(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        kind = Kind("b", kinds[-1].bits)
        reads = self.read(o[3], Kind("pred", 1)), self.read(o[1], kind), self.read(o[2], kind)
        return self.made(o[0], np.where, *reads)

    # Arithmetic

    def _arithmetic(self, name: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        """add, sub, mul, fma, div, sqrt, min, max of floating-point numbers."""
        kind, ftz, sat = kinds[-1], "ftz" in rest, "sat" in rest
        nan = "_nan" if "NaN" in rest and name in ("min", "max") else ""
        rounding = next(iter(rest & set(lanes.ROUNDING)), "rn")
        rest -= {"ftz", "sat", "rn", "rz", "rm", "rp"} | ({"NaN"} if nan else set())
        reads = [self.read(text, kind) for text in o[1:]]
        if len(o) == 4 and name in ("min", "max"):
            if kind != Kind("f", 32):
                return None

            def of_three(a: Array, b: Array, c: Array) -> Array:
                first = lanes.arithmetic(f"{name}{nan}", a, b, ftz=ftz)
                return lanes.arithmetic(f"{name}{nan}", first.view(np.float32), c, ftz=ftz)

            return self.made(o[0], of_three, *reads)
        if kind.bits == 16 or kind.packed:
            if sat or rounding != "rn" or name not in ("add", "sub", "mul", "fma") or ftz:
                return None
            label, whole = f"{kind.letter}16", kind
            halves = [self.read(text, Kind("b", whole.word)) for text in o[1:]]

            def small(*words: Array) -> Array:
                wide = [_wide(word, whole) for word in words]
                return _halved(lanes.narrow(name, label, *wide), whole)

            return self.made(o[0], small, *halves)
        return self.made(
            o[0], lambda *x: lanes.arithmetic(f"{name}{nan}", *x, rounding=rounding, ftz=ftz, sat=sat), *reads
        )

    def _integers(self, value: Callable[..., Array], kinds: list[Kind], o: list[str]) -> Step:
        return self.made(o[0], value, *(self.read(text, kinds[-1]) for text in o[1:]))

    def _plain(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        """Operations of `lanes` on floating-point numbers and of numpy on integers and bits."""
        root = op.partition(".")[0]
        if kinds[-1].floats:
            return self._arithmetic(root, rest, kinds, o)
        if "cc" in rest:
            return self._carried(rest, kinds, o, {"add": 1, "sub": -1}[root])
        return self._integers(_INTEGERS[root], kinds, o)

    _add = _sub = _fma = _min = _max = _and = _or = _xor = _not = _plain

    def _addc(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        return self._carried(rest, kinds, o, 1 if op.startswith("add") else -1, takes=True)

    _subc = _addc

    def _carried(
        self, rest: set[str], kinds: list[Kind], o: list[str], sign: int, takes: bool = False, product: str = ""
    ) -> Step:  # fmt: skip
        """Sums and differences of 32 bits with a carry, or a borrow, from or for the next; of a product's half."""
        leaves = "cc" in rest
        rest.discard("cc")
        word = Kind("u", 32)
        if kinds[-1].bits != 32 or kinds[-1].letter == "s" and product:
            raise KeyError
        reads = [self.read(text, word) for text in o[1:]]

        def step(m: Machine, at: Select) -> None:
            a, b, *c = [read(m, at).astype(np.uint64) for read in reads]
            if product:
                whole = a * b
                a, b = (whole & np.uint64(0xFFFFFFFF) if product == "lo" else whole >> np.uint64(32)), c[0]
            carry = m.carry[at] if takes else np.uint64(0)
            total = a + b + carry if sign > 0 else a - b - carry
            if leaves:
                m.carry[at] = (total >> np.uint64(32)) & np.uint64(1)
            m.write(o[0], total.astype(np.uint32), at)

        return step

    def _mul(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        if kinds[-1].floats:
            return self._arithmetic("mul", rest, kinds, o)
        return self._product(rest, kinds, o, None)

    def _mad(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        if kinds[-1].floats:
            return None
        if "cc" in rest:
            half = next(iter(rest & {"lo", "hi"}))
            rest.discard(half)
            return self._carried(rest, kinds, o, 1, product=half)
        return self._product(rest, kinds, o, o[3])

    def _madc(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        half = next(iter(rest & {"lo", "hi"}))
        rest.discard(half)
        return self._carried(rest, kinds, o, 1, takes=True, product=half)

    def _product(self, rest: set[str], kinds: list[Kind], o: list[str], addend: str | None) -> Step:
        """mul and mad of integers: the low half, the high one, or all of it."""
        kind, half = kinds[-1], next(iter(rest & {"lo", "hi", "wide"}))
        rest.discard(half)
        wide = Kind(kind.letter, 2 * kind.bits) if kind.bits < 64 else None
        result = wide if half == "wide" and wide else kind

        def value(a: Array, b: Array, *c: Array) -> Array:
            if half == "lo":
                product = a * b
            elif wide is not None:
                product = a.astype(wide.dtype) * b.astype(wide.dtype)
                product = product if half == "wide" else (product >> wide.dtype(kind.bits)).astype(kind.dtype)
            else:
                product = _high(a, b)
            return product + c[0] if c else product

        reads = [self.read(o[1], kind), self.read(o[2], kind)]
        return self.made(o[0], value, *reads, *([self.read(addend, result)] if addend else []))

    def _div(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        kind = kinds[-1]
        if not kind.floats:
            return self._integers(functools.partial(_divided, 0), kinds, o)
        if rest & {"full", "approx"}:
            return self._approximate(op, rest, kinds, o)
        return self._arithmetic("div", rest, kinds, o)

    def _rem(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        return self._integers(functools.partial(_divided, 1), kinds, o)

    def _sqrt(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        return self._approximate(op, rest, kinds, o) if "approx" in rest else self._arithmetic("sqrt", rest, kinds, o)

    def _rcp(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        if "approx" in rest:
            return self._approximate(op, rest, kinds, o)
        kind = kinds[-1]
        one = "0f3F800000" if kind.bits == 32 else "0d3FF0000000000000"
        return self._arithmetic("div", rest, kinds, [o[0], one, o[1]])

    def _approximate(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        """Approximate instructions, by the model."""
        rest -= {"approx", "full", "ftz"}
        kind = kinds[-1]
        call = approx.INSTRUCTIONS[op] if kind.bits == 32 else approx.WORDS[op]
        reads = [self.read(text, kind) for text in o[1:]]

        def step(m: Machine, at: Select) -> None:
            given = [torch.from_numpy(np.array(read(m, at))) for read in reads]
            m.write(o[0], call(m.model, *given).numpy().view(UNSIGNED[kind.bits]), at)

        return step

    _rsqrt = _ex2 = _lg2 = _tanh = _sin = _cos = _approximate

    def _neg(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        """neg and abs: of the sign bit."""
        negates = op.startswith("neg")
        kind, ftz = kinds[-1], "ftz" in rest
        rest.discard("ftz")
        if not kind.floats:
            return self._integers(np.negative if negates else np.abs, kinds, o)
        word = Kind("b", kind.word)
        sign = word.dtype((1 << (kind.bits - 1)) * (0x10001 if kind.packed else 1))

        def value(x: Array) -> Array:
            x = _flushed(x) if ftz else x
            return x ^ sign if negates else x & ~sign

        return self.made(o[0], value, self.read(o[1], word))

    _abs = _neg

    def _copysign(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        word = Kind("b", kinds[-1].bits)
        sign = word.dtype(1 << (word.bits - 1))
        reads = self.read(o[1], word), self.read(o[2], word)
        return self.made(o[0], lambda a, b: (a & sign) | (b & ~sign), *reads)

    # Integers and bits

    def _shl(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        """By more than the word has bits: all of it is shifted out, sign bits come in."""
        shift = np.left_shift if op.startswith("shl") else np.right_shift
        kind = kinds[-1]
        last = kind.bits - 1

        def value(a: Array, by: Array) -> Array:
            result = shift(a, np.minimum(by, last).astype(a.dtype))
            if kind.letter == "s" and shift is np.right_shift:
                return np.asarray(result)
            return np.where(by > last, a.dtype.type(0), result)

        return self.made(o[0], value, self.read(o[1], kind), self.read(o[2], Kind("u", 32)))

    _shr = _shl

    def _shf(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        left, wrap = "l" in rest, "wrap" in rest
        rest -= {"l", "r", "wrap", "clamp"}
        word = Kind("u", 32)

        def value(low: Array, high: Array, by: Array) -> Array:
            n = (by & np.uint32(31) if wrap else np.minimum(by, np.uint32(32))).astype(np.uint64)
            both = (high.astype(np.uint64) << np.uint64(32)) | low
            shifted = (both << n) >> np.uint64(32) if left else both >> n
            return shifted.astype(np.uint32)

        return self.made(o[0], value, *(self.read(text, word) for text in o[1:]))

    def _prmt(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        """Four bytes of two words, each chosen by four bits; the highest of these takes the byte's sign instead."""
        word = Kind("u", 32)

        def value(a: Array, b: Array, chosen: Array) -> Array:
            both = (b.astype(np.uint64) << np.uint64(32)) | a
            found = np.zeros(len(a), np.uint32)
            for k in range(4):
                which = (chosen >> np.uint32(4 * k)).astype(np.uint64)
                byte = (both >> (which & np.uint64(7)) * np.uint64(8)).astype(np.uint32) & np.uint32(255)
                sign = (byte >> np.uint32(7)) * np.uint32(255)
                found |= np.where(which & np.uint64(8), sign, byte).astype(np.uint32) << np.uint32(8 * k)
            return found

        return self.made(o[0], value, *(self.read(text, word) for text in o[1:]))

    def _bfe(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        """Bits of a field; of signed ones its highest bit, or the word's where it ends earlier, goes on."""
        kind = kinds[-1]

        def value(a: Array, start: Array, size: Array) -> Array:
            start, size = start & np.uint32(255), np.minimum(size & np.uint32(255), kind.bits)
            moved = a >> np.minimum(start, kind.bits - 1).astype(a.dtype)
            if kind.letter == "u":
                moved = np.where(start >= kind.bits, kind.dtype(0), moved)
            rest = (kind.bits - np.maximum(size, 1)).astype(a.dtype)
            return np.where(size == 0, kind.dtype(0), (moved << rest) >> rest)

        word = Kind("u", 32)
        return self.made(o[0], value, self.read(o[1], kind), self.read(o[2], word), self.read(o[3], word))

    def _clz(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        bits = kinds[-1].bits

        def value(a: Array) -> Array:
            count = np.full(a.shape, bits, np.uint32)
            for k in range(bits):
                count = np.where(a >> a.dtype.type(k) == 1, np.uint32(bits - 1 - k), count)
            return count

        return self.made(o[0], value, self.read(o[1], kinds[-1]))

    # Conversions

    def _cvt(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        if rest == {"rna", "tf32"}:
            rest.clear()
            return self.made(o[0], _tf32, self.read(o[1], Kind("u", 32)))
        if rest in ({"rn", "e4m3x2"}, {"rn", "e5m2x2"}):
            dtype = matrix.TYPES[next(iter(rest - {"rn"}))[:4]][1]
            rest.clear()
            return self.made(o[0], functools.partial(_widened, dtype), self.read(o[1], Kind("u", 16)))
        to, source = kinds
        ftz, sat = "ftz" in rest, "sat" in rest
        whole = next(iter(rest & {"rni", "rzi", "rmi", "rpi"}), "")
        rounding = next(iter(rest & {"rn", "rz", "rm", "rp"}), "")
        rest -= {"ftz", "sat", whole, rounding}
        if rounding not in ("", "rn") or to.packed != (len(o) == 3):
            return None
        if to.packed:  # cvt.rn.bf16x2.f32 d, high, low
            reads = self.read(o[2], source), self.read(o[1], source)
            return self.made(o[0], lambda *x: _halved(np.stack(x, axis=1).reshape(-1).astype(np.float64), to), *reads)
        convert = functools.partial(_converted, to, source, whole, ftz, sat)
        return self.made(o[0], lambda x: _extended(convert(x), to), self.read(o[1], source))

    # Threads together

    def _shfl(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        mode = next(iter(rest & {"bfly", "up", "down", "idx"}))
        rest -= {"sync", mode}
        word = Kind("u", 32)
        outs = [x.strip() for x in o[0].split("|")]
        reads = [self.read(text, word) for text in o[1:4]]

        def step(m: Machine, at: Select) -> None:
            value, by, control = (read(m, ALL) for read in reads)
            by, control, lane = by.astype(np.int64) & 31, control.astype(np.int64), m.lane.astype(np.int64)
            segment, clamp = (control >> 8) & 31, control & 31
            last = (lane & segment) | (clamp & ~segment)
            source = {
                "bfly": lane ^ by, "up": lane - by, "down": lane + by, "idx": (lane & segment) | (by & ~segment)
            }[mode]  # fmt: skip
            inside = source >= last if mode == "up" else source <= last
            place = m.thread - lane + np.where(inside, source, lane)
            if not isinstance(at, slice):
                taking = np.zeros(m.size, bool)
                taking[at] = True
                if not taking[place[at]].all():
                    raise Unsupported(f"{op} from a thread that does not take part")
            m.write(outs[0], value[place][at].copy() if not isinstance(at, slice) else value[place], at)
            if len(outs) > 1:
                m.write(outs[1], inside[at].copy(), at)

        return step

    def _redux(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step | None:
        kind, how = kinds[-1], next(iter(rest & {"add", "min", "max", "and", "or", "xor"}))
        nan = "_nan" if "NaN" in rest else ""
        rest -= {"sync", how} | ({"NaN"} if nan else set())
        if kind.floats != (kind == Kind("f", 32)) or (nan and not kind.floats):
            return None
        read = self.read(o[1], kind)

        def together(lanes_of: Array) -> Array:
            if not kind.floats:
                return np.asarray(_INTEGERS[how].reduce(lanes_of, axis=1, dtype=kind.dtype))
            while lanes_of.shape[1] > 1:
                half = lanes_of.shape[1] // 2
                found = lanes.arithmetic(f"{how}{nan}", lanes_of[:, :half], lanes_of[:, half:])
                lanes_of = found.view(kind.dtype).reshape(-1, half)
            return lanes_of[:, 0]

        def step(m: Machine, at: Select) -> None:
            _whole_warps(m, at, op)
            each = together(read(m, ALL).reshape(-1, 32)).repeat(32)
            m.write(o[0], each.view(np.uint32)[at].copy(), at)

        return step

    def _bar(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        rest -= {"sync", "cta", "aligned", "warp"}

        def step(m: Machine, at: Select) -> None:
            if m.counters is not None and "warp" not in op:
                end = len(m.program.steps)
                alive = np.bincount(m.block[m.counters < end], minlength=m.block[-1] + 1)
                here = np.bincount(m.block[at], minlength=len(alive))
                if not np.array_equal(here[here > 0], alive[here > 0]):
                    raise Unsupported(f"{op} that not all threads of a block reach together")

        return step

    _barrier = _bar

    def _membar(self, op: str, rest: set[str], kinds: list[Kind], o: list[str]) -> Step:
        rest.clear()
        return lambda m, at: None

    _fence = _membar


#: How many operands instructions have that are modelled.
OPERANDS = {
    **dict.fromkeys(("abs", "clz", "cvta", "mov", "neg", "not"), (2,)),
    **dict.fromkeys(("cos", "ex2", "lg2", "rcp", "rsqrt", "sin", "sqrt", "tanh"), (2,)),
    **dict.fromkeys(("add", "addc", "and", "copysign", "div", "mul", "or", "rem"), (3,)),
    **dict.fromkeys(("redux", "shl", "shr", "sub", "subc", "xor"), (3,)),
    **dict.fromkeys(("bfe", "fma", "mad", "madc", "prmt", "selp", "shf"), (4,)),
    "bar": (1,), "cvt": (2, 3), "ld": (2, 3), "max": (3, 4), "min": (3, 4), "setp": (3, 4), "shfl": (5,),
    "st": (2, 3),
}  # fmt: skip


# Values

_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    "equ": np.equal, "neu": np.not_equal, "ltu": np.less, "leu": np.less_equal, "gtu": np.greater,
    "geu": np.greater_equal, "num": None, "nan": None,
}  # fmt: skip


def _listed(text: str) -> list[str]:
    """Names of {a, b, c}."""
    return [one.strip() for one in text.strip("{} ").split(",")]


def _widened(dtype: torch.dtype, words: Array) -> Array:
    """Pairs of 8-bit numbers as pairs of float16, exactly."""
    value = torch.from_numpy(np.ascontiguousarray(words).view(np.int8)).view(dtype).double().numpy()
    return _halved(value, Kind("f", 16, packed=True))


def _tf32(word: Array) -> Array:
    """As sm_80 to sm_100 do (their SASS): numbers to nearest, ties away; of infinities and NaNs the lower bits go."""
    finite = word & np.uint32(0x7F800000) != np.uint32(0x7F800000)
    return np.where(finite, word + np.uint32(0x1000), word) & np.uint32(0xFFFFE000)


def _compared(word: str, kind: Kind, ftz: bool, a: Array, b: Array) -> Array:
    if not kind.floats:
        return np.asarray(_COMPARISONS[word](a, b))  # type: ignore[misc]
    if kind.letter == "bf":
        a, b = ((x.astype(np.uint32) << np.uint32(16)).view(np.float32) for x in (a, b))
    if ftz:
        a, b = (_flushed(x.view(np.uint32)).view(np.float32) for x in (a, b))
    unordered = np.isnan(a) | np.isnan(b)
    if word in ("num", "nan"):
        return unordered if word == "nan" else ~unordered
    ordered = np.asarray(_COMPARISONS[word](a, b))  # type: ignore[misc]
    return ordered | unordered if len(word) == 3 else ordered & ~unordered


def _flushed(word: Array) -> Array:
    """Bits of float32 without subnormals."""
    return np.where(word & np.uint32(0x7F800000), word, word & np.uint32(0x80000000))


def _wide(word: Array, kind: Kind) -> Array:
    """float16 or bfloat16, one or two a word, as float64."""
    halves = np.ascontiguousarray(word).view(np.uint16)
    if kind.letter == "f":
        return halves.view(np.float16).astype(np.float64)
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def _halved(value: Array, kind: Kind) -> Array:
    """float64 rounded to nearest in float16 or bfloat16, as words."""
    if kind.letter == "f":
        halves = value.astype(np.float16).view(np.uint16)
        halves = np.where(np.isnan(value), np.uint16(0x7FFF), halves)
    else:
        halves = _bfloat16(value)
    return halves.view(UNSIGNED[kind.word])


def _bfloat16(value: Array) -> Array:
    """Bits of float64 values rounded once: to float32 by rounding to odd, then to nearest even."""
    single = value.astype(np.float32)
    exact = single.astype(np.float64) == value
    word = single.view(np.int32)
    away = np.abs(single.astype(np.float64)) > np.abs(value)
    word = np.where(exact | np.isnan(value), word, np.where(away, word - 1, word) | 1).view(np.uint32)
    rounded = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(value), np.uint16(0x7FFF), rounded.astype(np.uint16))


def _divided(which: int, a: Array, b: Array) -> Array:
    """Quotients towards zero (0) or remainders (1) of integers; the ISA leaves those by 0 open."""
    if (b == 0).any():
        raise Unsupported("a division of integers by 0")
    quotient, rest = np.divmod(a, b)
    up = (rest != 0) & ((a < 0) ^ (b < 0))  # numpy's are towards minus infinity
    return rest - np.where(up, b, b.dtype.type(0)) if which else quotient + up.astype(b.dtype)


def _high(a: Array, b: Array) -> Array:
    """The high word of unsigned 64-bit products."""
    if a.dtype != np.uint64:
        raise Unsupported("mul.hi.s64")
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> shift, b & low, b >> shift
    middle = a1 * b0 + ((a0 * b0) >> shift)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> shift) + (other >> shift)


def _extended(value: Array, kind: Kind) -> Array:
    """A value as a wider register gets it: of a signed type the sign goes on."""
    return value.view(kind.dtype).astype(np.int64).view(np.uint64) if kind.letter == "s" else value


_WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _converted(to: Kind, source: Kind, whole: str, ftz: bool, sat: bool, x: Array) -> Array:
    """cvt: numbers to the nearest of the other type, ties to even; beyond the ends to these. A NaN gives the integer 0,
    or its highest bit where either type has 64 (PTX ISA 9.0, cvt; an H200 gives them too)."""
    if source.letter == "bf":
        x, source = (x.astype(np.uint32) << np.uint32(16)).view(np.float32), Kind("f", 32)
    if source.floats:
        if ftz and source.bits == 32:
            x = _flushed(x.view(np.uint32)).view(np.float32)
        if not to.floats:
            return _integer(to, _WHOLE[whole](x), 64 in (to.bits, source.bits))
        value = _WHOLE[whole](x) if whole else x
        if sat:
            value = np.where(value > 0, np.minimum(value, value.dtype.type(1)), value.dtype.type(0))
        if to.letter == "bf":
            return _bfloat16(value.astype(np.float64))
        result = value.astype(to.dtype)
        if to.bits == 32:
            word = np.where(np.isnan(result), np.uint32(0x7FFFFFFF), result.view(np.uint32))
            return _flushed(word) if ftz else word
        return np.array(result)
    if to.letter == "bf":
        if source.bits > 32:
            raise Unsupported("cvt.rn.bf16 of 64-bit integers")
        return _bfloat16(x.astype(np.float64))
    if to.floats and to.bits == 16 and source.bits > 32:
        raise Unsupported("cvt.rn.f16 of 64-bit integers")
    if sat:
        raise Unsupported("cvt.sat of integers")
    return x.astype(np.float64).astype(to.dtype) if to.floats and to.bits == 16 else x.astype(to.dtype)


def _integer(to: Kind, value: Array, highest: bool) -> Array:
    limits = np.iinfo(to.dtype)
    wide = np.where(np.isnan(value), 0, value.astype(np.float64))
    high, low = wide >= float(limits.max), wide <= float(limits.min)
    inside = np.where(high | low, 0, wide).astype(to.dtype)
    found = np.where(high, to.dtype(limits.max), np.where(low, to.dtype(limits.min), inside))
    of_nan = UNSIGNED[to.bits](1 << (to.bits - 1) if highest else 0)
    return np.where(np.isnan(value), of_nan.view(to.dtype), found)


# Where threads meet


def _behind(m: Machine, space: str, address: Array, at: Select) -> tuple[lanes.Memory, Array]:
    """The memory that addresses of a space mean; generic ones are those of tensors or of a thread's own memory."""
    if space in ("shared", "local"):
        return m.space(space, address, at)
    own = address >= np.uint64(LOCAL)
    if space == "" and own.any():
        if not own.all():
            raise Unsupported("a generic access that is local in some threads and global in others")
        return m.space("local", address - np.uint64(LOCAL), at)
    return m.memory, address


def _whole_warps(m: Machine, at: Select, op: str, threads: int = 32) -> None:
    if (
        m.program.threads % threads
        or not isinstance(at, slice)
        and (np.bincount(m.thread[at] // threads) % threads).any()
    ):
        raise Unsupported(f"{op} of part of a " + ("warp" if threads == 32 else "warpgroup"))
