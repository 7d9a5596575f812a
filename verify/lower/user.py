"""A lowering of your own: `FILE.py:FUNCTION`, read before it is imported, called as its signature says."""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import itertools
import keyword
import os
import sys
import sysconfig
import time
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify.facts.kernel import Kernel, Scalars, UsageError
from verify.facts.properties import same
from verify.lower.lowering import (
    Breach,
    Call,
    Lowering,
    NotLowered,
    Target,
    Unsuited,
    describe,
    device_flushes,
    here,
    laid_out,
)
from verify.lower.lowerings import lowerings

if TYPE_CHECKING:
    import torch

    from verify.numbers.orders import Order

_WRITING: ContextVar[bool] = ContextVar("_WRITING", default=False)
SLOW = 10.0  # seconds for the calls of a launch after the first, which may compile, where there are thousands


def user_lowering(
    text: str, elsewhere: Callable[[Target], Call] | None = None, function: Callable[..., Any] | None = None
) -> Lowering:  # fmt: skip
    """The lowering 'FILE.py:FUNCTION': called with all of `kernel.inputs`, scalars as floats, in the default spelling
    and in every layout; with an output to write where it has a parameter `out` without a default.

    elsewhere: builds it without importing the file here. function: the function itself; `text` is then only its name.
    Raises UsageError, at once, for what is wrong with the file; in `build` Unsuited, where its signature fits no case
    of the kernel, and NotLowered where it fits another case.
    """
    named = text if function is None else ""
    label, function, flags = _found(text, elsewhere, function)

    def build(target: Target) -> Call:
        if function is None:
            assert elsewhere is not None
            return elsewhere(target)
        import numpy as np
        import torch

        names, scalars = target.kernel.tensors(target.scalars), target.scalars
        positional, required = _arguments(function, label, target)
        optional = "out" not in target.kernel.inputs and _writes_if_asked(function)

        def run(*tensors: torch.Tensor) -> Any:
            values = {**dict(zip(names, tensors, strict=True)), **scalars}
            named = [*required, "out"] if optional and _WRITING.get() else required
            if "out" in (*positional, *named):
                shape = np.broadcast_shapes(*(t.shape for t in tensors))
                values["out"] = torch.empty(shape, dtype=tensors[0].dtype, device=tensors[0].device)
            try:
                result = function(*(values[name] for name in positional), **{name: values[name] for name in named})
            except TypeError as error:
                if _signed(function):
                    raise
                inputs = ", ".join(target.kernel.inputs)
                told = f"{label} has no signature that could be read, and refuses {inputs} by position"
                raise Unsuited(f"{told} ({error}): expected a function, such as def f({inputs}): ...") from None
            return _written(result, values["out"]) if "out" in values else result

        width = target.layout.width if target.layout else 0
        return here(target, label, _soon(target, label, run) if width else laid_out(target, run))

    def reason(target: Target) -> str | None:
        if target.spelling != target.default_spelling and target.layout is None:
            return f"{label} is called as {target.default_spelling!r} and in every layout, not as {target.spelling!r}"
        return target.backend.dtype_unavailable(target.dtype)

    return Lowering(label, build, reason, ftz=device_flushes, flags=lambda target: flags, text=named)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Inside, functions get an output to write where their parameter `out` is None by default."""
    token = _WRITING.set(True)
    try:
        yield
    finally:
        _WRITING.reset(token)


def _written(result: Any, out: torch.Tensor) -> Any:
    """The output of a function that was to write `out` and returned `result`. Of another shape or dtype the caller
    tells."""
    if result is None:
        return out
    alike = all(getattr(result, name, None) == getattr(out, name) for name in ("shape", "dtype"))
    if alike and not bool(same(result, out).all()):
        raise Breach("returned other numbers than it left in `out`; expected `out` itself, or None")
    return result


def _soon(target: Target, label: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` under a layout of many calls a launch, which raises NotLowered where they take long."""
    layout, ended = target.layout, list[float]()
    assert layout is not None

    def timed(*tensors: torch.Tensor) -> Any:
        result = call(*tensors)
        ended.append(time.monotonic())
        if ended[-1] - ended[0] > SLOW:
            took = f"{len(ended)} took {ended[-1] - ended[0]:.0f} s, and more than {SLOW:g} s is not waited for"
            each = f"{layout.width} element{'s' * (layout.width > 1)}"
            raise NotLowered(f"{label} takes too long for a launch of calls of {each}: {took}")
        return result

    laid = layout.arrange(timed)

    def run(*tensors: torch.Tensor) -> Any:
        ended.clear()
        return laid(*tensors)

    return run


def _found(
    text: str, elsewhere: Any, function: Callable[..., Any] | None
) -> tuple[str, Callable[..., Any] | None, dict[str, Any]]:  # fmt: skip
    """Name, function (None: elsewhere) and flags of a user's own lowering."""
    if function is not None:
        return text, function, {"process": "the caller's"}
    label = _label(text)
    if elsewhere:
        examine(text)
    return label, None if elsewhere else user_function(text)[1], {"source": source_digest(text)}


def user_composite(
    text: str, order: Order | None = None, elsewhere: Callable[[Target], Callable[[Any], Any]] | None = None,
    function: Callable[..., Any] | None = None, fixed: Scalars | None = None,
) -> Lowering:  # fmt: skip
    """The user's FILE.py:FUNCTION for composite kernels: called with the kernel's inputs by position and, where it has
    parameters of their names (or `**kwargs`, which get those of the stub), by keyword with the problem's other tensors,
    the setting's parameters, the scalars and what the kernel declares as `keywords`; `out` without a default gets a
    tensor to write, where there is one output. order: see `Lowering`; elsewhere, function: see `user_lowering`; fixed:
    scalars that the user names, with which it is run even without a parameter for them."""
    named = text if function is None else ""
    label, function, flags = _found(text, elsewhere, function)
    flags |= {} if order is None else {"algorithm": str(order)}

    def build(target: Target) -> Callable[[Any], Any]:
        if function is None:
            assert elsewhere is not None
            return elsewhere(target)
        import torch

        kernel = target.kernel
        # of what has none the first call will tell
        signature = _signature(function) if _signed(function) else inspect.signature(lambda *inputs: None)
        defined = {one.name: one for one in ast.parse(kernel.stub).body if isinstance(one, ast.FunctionDef)}
        start = defined[kernel.name]
        usual = {one.arg for one in (*start.args.args, *start.args.kwonlyargs)}  # what `**kwargs` get
        by_kind: dict[Any, list[str]] = defaultdict(list)
        for one in signature.parameters.values():
            by_kind[one.kind].append(one.name)
        positional = by_kind[inspect.Parameter.POSITIONAL_ONLY] + by_kind[inspect.Parameter.POSITIONAL_OR_KEYWORD]
        more = usual if by_kind[inspect.Parameter.VAR_KEYWORD] else ()
        spared = tuple(name for name in kernel.inputs if name not in kernel.spared)
        offered = usual.difference(kernel.inputs)
        inputs = next((names for names in (kernel.inputs, spared) if _takes(signature, names, offered)), None)
        told = f"{label} takes {signature}, but is called by position with the inputs of {kernel.name}: "
        told += ", ".join(kernel.inputs)
        if inputs is None:
            raise Unsuited(told)
        known = {**kernel.defaults, **(fixed or {})}
        out = signature.parameters.get("out")
        required = out is not None and out.default is inspect.Parameter.empty and len(kernel.outputs) == 1
        optional = _writes_if_asked(function) and len(kernel.outputs) == 1
        taken = {*positional[len(inputs) :], *by_kind[inspect.Parameter.KEYWORD_ONLY], *more}

        def run(problem: Any) -> dict[str, Any]:
            writes = required or (optional and _WRITING.get())
            others = {name: t for name, t in problem.tensors.items() if name not in kernel.inputs}
            given = {**problem.parameters, **problem.scalars, **problem.keywords, **others}
            unsure = [name for name, value in problem.scalars.items() if known.get(name) != value]
            wanted = (*kernel.asks(problem.parameters), *others, *unsure)
            if lacking := [name for name in wanted if name not in taken]:
                asked = (f"{k}={given[k]}" if isinstance(given[k], str | int | float) else k for k in lacking)
                why = f"{label} takes {signature}, and has no parameter for {', '.join(asked)}"
                own = " ".join(f"--scalar {name}=VALUE" for name in lacking if name in unsure)
                raise NotLowered(why + (f"; where it has a value of its own, name that: {own}" if own else ""))
            if writes:
                shapes = replace(problem, tensors={name: t.to("meta") for name, t in problem.tensors.items()})
                (like,) = lowerings(kernel)[0].build(target)(shapes).values()
                given["out"] = torch.empty(like.shape, dtype=like.dtype, device=target.backend.device)
            keywords = {name: value for name, value in given.items() if name in taken}
            tensors = [problem.tensors[name] for name in inputs]
            try:
                signature.bind(*tensors, **keywords)
            except TypeError as error:
                named = ", ".join(sorted(offered)) or "nothing"
                raise NotLowered(f"{told}; by name it may have {named} ({error})") from None
            result = function(*tensors, **keywords)
            if writes:
                result = _written(result, given["out"])
            if isinstance(result, Mapping):
                return dict(result)
            outputs = kernel.outputs
            if not isinstance(result, tuple | list):
                result = (result,)
            elif len(outputs) == len(result) == 1:  # callers would have to unpack it
                raise Breach(f"returned a {type(result).__name__} of one value; expected a tensor")
            if len(result) > len(outputs):
                many = f"returned {len(result)} values; expected {len(outputs)} at most"
                raise Breach(many + (f": {', '.join(outputs)}" if len(outputs) > 1 else ", a tensor"))
            return dict(zip(outputs, result, strict=False))

        return here(target, label, run)

    return Lowering(label, build, lambda target: None, flags=lambda target: flags, order=order, text=named)


def _takes(signature: inspect.Signature, inputs: Sequence[str], offered: Container[str]) -> bool:
    """Whether as many inputs are taken by position, before any parameter that is `offered` by name."""
    places = 0
    for one in signature.parameters.values():
        if one.kind is inspect.Parameter.VAR_POSITIONAL:
            return True
        if one.kind is inspect.Parameter.KEYWORD_ONLY or one.name in offered:
            break
        places += 1
    return places >= len(inputs)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """A function's; a module's is that of its `forward`. Raises TypeError and ValueError where there is none."""
    import torch

    if isinstance(function, torch.nn.Module):
        function = getattr(function, "_orig_mod", function).forward  # that of a compiled one tells nothing
    return inspect.signature(function)


def _signed(function: Callable[..., Any]) -> bool:
    """Whether a function has a signature, which some built-in ones have not."""
    try:
        _signature(function)
    except (TypeError, ValueError):
        return False
    return True


#: Files beside a user's own that its extensions may be built from.
BUILT = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".metal", ".so")


def sources(text: str) -> dict[str, Path]:
    """The file of 'FILE.py:FUNCTION', what it imports, directly or not, from its folder or another one of `sys.path`
    where nothing is installed, and what extensions are built from in its folder; by their names there. Raises
    UsageError where there is no such file."""
    _label(text)
    path = Path(text.rpartition(":")[0])
    folder, found = path.resolve().parent, dict[str, Path]()
    roots = [folder, *_roots()]
    waiting = [(one, folder) for one in (path, *(one for one in folder.iterdir() if one.suffix in BUILT))]
    while waiting:
        one, root = waiting.pop()
        name = os.path.relpath(one.resolve(), root)
        if name in found or not one.is_file():
            continue
        found[name] = one
        if one.suffix == ".py":
            for level, words in _imports(one, one.stat().st_mtime_ns):
                waiting += _named(level, words, one, [root] if level else roots)
    return dict(sorted(found.items()))


def _roots() -> Iterator[Path]:
    """The folders of `sys.path` whose modules are a user's: neither Python's own nor installed."""
    paths = sysconfig.get_paths()
    own = [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    for entry in dict.fromkeys(sys.path):
        root = Path(entry).resolve()
        installed = {"site-packages", "dist-packages"}.intersection(root.parts)
        if root.is_dir() and not installed and not any(root.is_relative_to(one) for one in own):
            yield root


@lru_cache(4096)
def _imports(path: Path, changed: int) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The level (0: absolute) and the words of each name that a file imports; `changed` is when the file was."""
    found: list[tuple[int, tuple[str, ...]]] = []
    with contextlib.suppress(SyntaxError, ValueError), warnings.catch_warnings():  # importing it will tell
        warnings.simplefilter("ignore")
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                level, module = (node.level, node.module or "") if isinstance(node, ast.ImportFrom) else (0, "")
                names = (f"{module}.{alias.name}".strip(".") for alias in node.names)
                found += [(level, tuple(name.split("."))) for name in names]
    return tuple(found)


def _named(level: int, words: Sequence[str], file: Path, roots: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Where an import of `file` may find what it names, and below which of the roots, but for this project's own."""
    if level:
        base, root = file.parents[level - 1], roots[0]
    elif words[0] == "verify":
        return
    else:
        top = words[0]
        modules = (one for one in roots if (one / f"{top}.py").is_file() or (one / top / "__init__.py").is_file())
        namespaces = (one for one in roots if (one / top).is_dir())  # of which any module is found first
        base = root = next(itertools.chain(modules, namespaces, roots))
    for k in range(1, len(words) + 1):
        place = base.joinpath(*words[:k])
        yield from ((place.with_suffix(".py"), root), (place / "__init__.py", root))


def source_digest(text: str) -> str:
    """`digest_of` of `sources`. Raises as that does."""
    return _digest_now(sources(text))


def _digest_now(files: Mapping[str, Path]) -> str:
    return digest_of({name: path.read_bytes() for name, path in files.items()})


class Version:
    """The files of 'FILE.py:FUNCTION' as they are now. Raises as `sources` does. digest: `source_digest`."""

    def __init__(self, text: str) -> None:
        self.label, self.files = _label(text), sources(text)
        self.digest = _digest_now(self.files)

    def ensure_kept(self) -> None:
        """Raise UsageError where a file is another one now: a process that starts would import what the digest is not
        of. A file that is new is none of them, since importing may build extensions."""
        with contextlib.suppress(OSError):  # one is gone
            if _digest_now(self.files) == self.digest:
                return
        path = self.label.rpartition(":")[0]
        told = "changed while it was judged, so that cells would be of two versions"
        raise UsageError(f"{path}, or what it imports, {told}; run it again")


def digest_of(files: Mapping[str, bytes]) -> str:
    """16 hex digits of files' names and contents, in the order of the names."""
    hasher = hashlib.sha256()
    for name, data in sorted(files.items()):
        hasher.update(f"{name} {len(data)}\n".encode(errors="surrogateescape") + data)
    return hasher.hexdigest()[:16]


def _label(text: str) -> str:
    """The name of 'FILE.py:FUNCTION' in reports. Raises UsageError where there is no such file."""
    path, separator, name = text.rpartition(":")
    if not separator or not path.endswith(".py") or not name:
        raise UsageError(f"lowering {text!r} names no function: expected FILE.py:FUNCTION")
    if not Path(path).is_file():
        is_ = "a directory" if Path(path).is_dir() else "no regular file"
        told = f"is {is_}; expected a Python file" if os.path.lexists(path) else "does not exist"
        raise UsageError(f"lowering file {path} {told}")
    return f"{Path(path).name}:{name}"


def user_function(text: str) -> tuple[str, Callable[..., Any]]:
    """Label and function of 'FILE.py:FUNCTION'. Raises UsageError for what is wrong with the file."""
    label, path, name = _label(text), Path(text.rpartition(":")[0]), text.rpartition(":")[2]
    module = _import(path)
    function = getattr(module, name, None)
    if function is None and name not in vars(module):
        raise _absent(path, name, (key for key, value in vars(module).items() if inspect.isroutine(value)))
    if not callable(function):
        raise UsageError(f"{label} is of type {type(function).__name__}; expected a function")
    if inspect.isclass(function):
        raise UsageError(f"{label} is a class; expected a function, or an object that is called as one")
    if inspect.iscoroutinefunction(function):
        raise UsageError(f"{label} is async and returns a coroutine; expected a function that returns tensors")
    return label, function


def _absent(path: Path, name: str, functions: Iterable[str]) -> UsageError:
    known = sorted(key for key in functions if key[0] != "_")
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UsageError(f"{path} has no function {name!r}{hint} (it has: {', '.join(known) or 'none'})")


def importing(text: str, modules: str) -> str:
    """Two lines of Python that import the modules and the function of 'FILE.py:FUNCTION', where that is a path from the
    folder that they are run in; '' where it is none, as of a function that no file has by this name."""
    path, _, function = text.rpartition(":")
    file, parts = Path(path), function.split(".")
    if not file.is_file() or not all(part.isidentifier() for part in parts):
        return ""
    taken = keyword.iskeyword(file.stem) or file.stem in sys.stdlib_module_names
    installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    taken = taken or importlib.machinery.PathFinder.find_spec(file.stem, installed) is not None
    if file.stem.isidentifier() and not taken:
        apart = "" if file.parent == Path() else f", sys; sys.path.insert(0, {str(file.parent)!r})"
        return f"import {modules}{apart}\nfrom {file.stem} import {parts[0]}"
    return f"import runpy, {modules}\n{parts[0]} = runpy.run_path({path!r})[{parts[0]!r}]"


#: Words of a file that may define names which the file does not spell out.
DYNAMIC = frozenset(
    {"__dict__", "__getattr__", "eval", "exec", "f_globals", "f_locals", "globals", "locals", "modules", "setattr",
     "vars"}
)  # fmt: skip


def examine(text: str) -> None:
    """Raise UsageError for what is certainly wrong with 'FILE.py:FUNCTION', without running any of it."""
    _label(text)
    path, name = Path(text.rpartition(":")[0]), text.rpartition(":")[2]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = path.read_bytes()
            tree = ast.parse(data, str(path))
            compile(data, str(path), "exec", dont_inherit=True)  # also what the grammar alone does not tell
    except SyntaxError as error:
        raise UsageError(f"{path} does not import: {_unparsed(path, error)}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} does not import: {describe(error, path)}") from None
    words = {value for node in ast.walk(tree) for _, value in ast.iter_fields(node) if isinstance(value, str)}
    words |= {word for node in ast.walk(tree) if isinstance(node, ast.Global) for word in node.names}
    star = any(isinstance(node, ast.alias) and node.name == "*" for node in ast.walk(tree))
    if name not in words and not star and not words & DYNAMIC:
        functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        raise _absent(path, name, functions)


def _unparsed(path: Path, error: SyntaxError) -> str:
    """Where a file stops being Python, and why; a file that cannot be decoded has no such line."""
    return f"{path.name}:{error.lineno}: {error.msg}" if error.lineno else str(error.msg)


class _Source(importlib.machinery.SourceFileLoader):
    """Never cached bytecode: Python knows it by size and second, and so runs the old text after a quick edit."""

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _import(path: Path) -> types.ModuleType:
    """Import a user's file as Python would run it: its folder first on the path while it loads."""
    label = f"ulproof_user_{path.stem}_{abs(hash(str(path.resolve()))):x}"
    spec = importlib.util.spec_from_file_location(label, path, loader=_Source(label, str(path)))
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module  # torch.compile, triton.jit and dataclasses look functions up there
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{path} does not import: {_unparsed(Path(error.filename or path), error)}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} does not import: {describe(error, path)}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
        if sys.exc_info()[0] is not None:
            sys.modules.pop(label, None)
    return module


def _arguments(function: Callable[..., Any], label: str, target: Target) -> tuple[list[str], list[str]]:
    """The inputs (and 'out') that a function takes by position and by name, from its signature alone."""
    kernel, scalars = target.kernel, target.scalars
    if not _signed(function):  # the first call will tell
        return list(kernel.inputs), []
    signature = _signature(function)
    if found := _fitted(signature, kernel, scalars):
        return found
    told = f"{label} takes {signature}"
    if any(_fitted(signature, kernel, case) for case in kernel.cases):
        told += f", which does not fit {', '.join(kernel.inputs)} where "
        texts = [f"{', '.join(kernel.tensors(scalars))} are tensors", f"{', '.join(scalars)} Python numbers"]
        raise NotLowered(told + " and ".join(texts[: 1 + bool(scalars)]))
    raise Unsuited(
        f"{told}, but is called by position or by name with the inputs of {kernel.name}: {', '.join(kernel.inputs)}"
    )


def _fitted(signature: inspect.Signature, kernel: Kernel, scalars: Scalars) -> tuple[list[str], list[str]] | None:
    """How the signature takes the inputs of a case; None where it does not. A scalar that has the operation's default
    may be left out."""
    parameters, tensors = signature.parameters, kernel.tensors(scalars)
    out = parameters.get("out") if "out" not in kernel.inputs else None
    writes = ["out"] if out is not None and out.default is inspect.Parameter.empty else []
    omitted = {one.omits for one in kernel.spellings.values() if one.omits and one.applies(scalars)}
    for left_out in (set(), omitted):
        given = [name for name in kernel.inputs if name not in left_out]
        positional: list[str] = []
        if all(name in parameters and parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY for name in given):
            # by position as far as the orders agree, since what is wrapped may take no names
            pairs = zip(given, parameters.values(), strict=False)
            agree = itertools.takewhile(lambda pair: pair[0] == pair[1].name, pairs)
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            positional = [name for name, one in agree if one.kind is kind]
            named = [name for name in (*given, *writes) if name not in positional]
        else:
            by_name = [one.name for one in parameters.values() if one.kind is inspect.Parameter.KEYWORD_ONLY]
            named = [name for name in (*given, *writes) if name in by_name]
            waiting = [name for name in given if name not in named]
            for one in parameters.values():
                if one.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
                    break
                if one.name in writes or waiting:
                    positional.append(one.name if one.name in writes else waiting.pop(0))
            positional += waiting
        try:
            bound = signature.bind(*positional, **{name: name for name in named}).arguments
        except TypeError:
            continue
        kinds = {value: _annotated(parameters[key].annotation) for key, value in bound.items() if value in given}
        if all(kind in ("", "tensor" if name in tensors else "number") for name, kind in kinds.items()):
            return positional, named
    return None


def declared(text: str, function: Callable[..., Any] | None = None) -> inspect.Signature | None:
    """The signature of a function, or of 'FILE.py:FUNCTION' where a plain `def` tells it without an import; else
    None."""
    if function is not None:
        return _signature(function) if _signed(function) else None
    path, _, name = text.rpartition(":")
    try:
        body = ast.parse(Path(path).read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    found = [one for one in body if isinstance(one, ast.FunctionDef) and one.name == name]
    if len(found) != 1 or found[0].decorator_list:
        return None
    given = found[0].args
    plain = [*given.posonlyargs, *given.args]
    left_out = {one.arg for one in plain[len(plain) - len(given.defaults) :]}
    left_out |= {one.arg for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None}
    kinds = (
        (inspect.Parameter.POSITIONAL_ONLY, given.posonlyargs), (inspect.Parameter.POSITIONAL_OR_KEYWORD, given.args),
        (inspect.Parameter.VAR_POSITIONAL, [given.vararg]), (inspect.Parameter.KEYWORD_ONLY, given.kwonlyargs),
        (inspect.Parameter.VAR_KEYWORD, [given.kwarg]),
    )  # fmt: skip
    empty = inspect.Parameter.empty
    return inspect.Signature([
        inspect.Parameter(
            one.arg, kind, default=None if one.arg in left_out else empty,
            annotation=ast.unparse(one.annotation) if one.annotation else empty,
        )
        for kind, every in kinds
        for one in every
        if one is not None
    ])  # fmt: skip


def may_take(signature: inspect.Signature | None, kernel: Kernel, scalars: Scalars) -> bool:
    """Whether a function of that signature, as far as it is known, takes a case."""
    return signature is None or _fitted(signature, kernel, scalars) is not None


def _writes_if_asked(function: Callable[..., Any]) -> bool:
    """Whether it has a parameter `out` that is None unless it is given."""
    out = _signature(function).parameters.get("out") if _signed(function) else None
    return out is not None and out.default is None and out.kind is not inspect.Parameter.POSITIONAL_ONLY


def _annotated(annotation: Any) -> str:
    """The kind of parameter that an annotation declares: 'tensor', 'number', or '' (none, or either)."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return {"Tensor": "tensor", "torch.Tensor": "tensor", "float": "number", "int": "number"}.get(text, "")
