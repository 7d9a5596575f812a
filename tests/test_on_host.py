"""What is compiled of the project's own arithmetic has the bits of the tensors' operations that define it."""

from __future__ import annotations

import inspect
import itertools
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from test_fused import doubles
from verify import native
from verify.facts.formats import FORMATS
from verify.numbers import arrays, ball, cpp, grid, roundoff, roundoff_scans
from verify.numbers.functions import FUNCTIONS

Tensor = torch.Tensor
ROOT = Path(__file__).resolve().parents[1]
HOSTED = {
    name: function
    for module in (arrays, ball, grid, roundoff, roundoff_scans)
    for name, function in vars(module).items()
    if getattr(function, "__code__", None) is cpp.on_host(doubles).__code__
}
#: Values of facts by name, and of numbers.
FACTS: dict[str, tuple[Any, ...]] = {
    "exact": (True, False), "finite": (True, False), "other": (True, False), "flushes": (False, True),
    "points": (True, False), "name": tuple(name for name in FUNCTIONS if name not in ("pow", "atan2", "exp2")),
    "compute": tuple(FORMATS[f] for f in ("float16", "bfloat16", "float32", "float64")),
    "fmt": tuple(FORMATS[f] for f in ("float16", "bfloat16", "float32", "float64")),
}  # fmt: skip
DOUBLED = arrays.BallDDArrays
SYSTEMS = {"_rejoined": arrays.BallArrays, "_gathered": DOUBLED, "_exponential": DOUBLED, "_reduced": DOUBLED}
NUMBERS = {"overflow": 1e38, "flush": 1e-38, "least": 1e-45, "absolute": 1e-38}


def data(n: int, seed: int, size: bool) -> Tensor:
    """float64 of all kinds; size: none below 0, half of them 0."""
    found = doubles(n, seed)
    if not size:
        return found
    return torch.where(found.isnan() | (torch.arange(n) % 2 == 0), 0.0, found.abs())


def given(function: Callable[..., Any], n: int, seed: int) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Arguments of a hosted function: each that may be None is, or is not; and of facts all."""
    parameters = inspect.signature(function).parameters.values()
    choices: list[list[Any]] = []
    for k, p in enumerate(p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD):
        if "Tensor" in p.annotation:
            sizes = ("rad", "error", "spread", "width", "most", "quarter", "bit")
            one: list[Any] = [data(n, 100 * seed + k, p.name.endswith(sizes))]
        else:
            one = [NUMBERS.get(p.name, 2.0**-24)]
        choices.append([*one, None] if "None" in p.annotation else one)
    facts = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    systems = {"n": SYSTEMS[function.__name__]("cpu")} if "n" in facts else {}
    facts = [name for name in facts if name != "n"]
    for arguments in itertools.product(*choices):
        for values in itertools.product(*(FACTS[name] for name in facts)):
            yield list(arguments), systems | dict(zip(facts, values, strict=True))


def bits(found: Any) -> list[Tensor]:
    every = [found] if isinstance(found, Tensor) else list(found)
    return [torch.where(t.isnan(), math.nan, t).view(torch.int64) if t.is_floating_point() else t for t in every]


def require_same(function: Callable[..., Any], arguments: list[Any], facts: dict[str, Any]) -> None:
    function(*arguments, **facts)
    cpp.settled()
    compiled, defined = bits(function(*arguments, **facts)), bits(inspect.unwrap(function)(*arguments, **facts))
    assert len(compiled) == len(defined)
    for a, b in zip(compiled, defined, strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b.expand(a.shape)), (function.__name__, facts)


@pytest.mark.skipif(native.host() is None, reason="there is no C++ compiler")
def test_what_a_thread_compiles_is_not_compiled_again(tmp_path: Path) -> None:
    """host.cpp, where a command begins: whoever needs it meanwhile waits for the thread."""
    told, compiler = tmp_path / "told", tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {told}\nexec {shutil.which("g++") or "c++"} "$@"\n')
    compiler.chmod(0o755)
    code = "from verify import native; native.begin(); native.begin(); assert native.host() is native.host()"
    given = os.environ | {"CXX": str(compiler), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=given, check=True)
    assert sum("-shared" in line for line in told.read_text().splitlines()) == 1


@pytest.mark.skipif(native.host() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("name", HOSTED)
def test_what_is_compiled_has_the_same_bits(name: str) -> None:
    function = HOSTED[name]
    for arguments, facts in given(function, 2003, 1):
        require_same(function, arguments, facts)
    mine = {key: found for key, found in cpp._HOSTED.items() if key[0] is inspect.unwrap(function)}
    assert mine
    called = {"exp2", "log", "log2", "log10", "log1p", "rsqrt", "sqrt", "asin", "acos", "acosh", "asinh", "atanh"}
    for (_, _, told), found in mine.items():
        assert found is not None or called & {value for _, _, value in told}, told


@pytest.mark.skipif(native.host() is None, reason="there is no C++ compiler")
def test_nobody_waits_for_what_is_compiled(tmp_path: Path) -> None:
    """Tensors serve meanwhile; a process that ends leaves no part of a file, and several compile each thing once."""
    told, compiler = tmp_path / "told", tmp_path / "g++"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *-shared*) echo x >> {told}; sleep 4;; esac\n'
        f'exec {shutil.which("g++") or "c++"} "$@"\n'
    )
    compiler.chmod(0o755)
    code = """
import time, torch
from verify.numbers import cpp, grid
x, began = torch.arange(1.0, 9.0, dtype=torch.float64), time.perf_counter()
assert grid.last_bit(x).tolist() == [0, 1, 0, 2, 0, 1, 0, 3]
assert time.perf_counter() - began < 3 and len(cpp._HOSTED) == 2, cpp._HOSTED
"""
    given = os.environ | {"CXX": str(compiler), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    rest = "\ncpp.settled()\nassert None not in cpp._HOSTED.values()"
    command = [sys.executable, "-c"]
    for done in [subprocess.Popen([*command, text], env=given) for text in (code, code + rest, code + rest)]:
        assert done.wait() == 0
    assert sorted(path.suffix for path in (tmp_path / "ulproof").iterdir()) == [".json", ".json", ".so", ".so"]
    assert told.read_text().split() == ["x", "x"]


def test_all_of_them_are_tried() -> None:
    assert {"_added", "_multiplied", "_summed", "_factors", "_storing", "_rounding", "_reduced", "_bit"} <= set(HOSTED)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 15, 17, 64])
def test_of_any_number_of_elements(n: int) -> None:
    """The last ones are fewer than a vector has."""
    for arguments, facts in itertools.islice(given(HOSTED["_added"], n, 2), 8):
        require_same(HOSTED["_added"], arguments, facts)


def test_tensors_broadcast_and_lie_anywhere() -> None:
    rows, column, number = doubles(35, 3).reshape(7, 5), doubles(7, 4).reshape(7, 1), doubles(1, 5)[0]
    for a, b in itertools.permutations((rows, rows.T.contiguous().T, rows[:, :1].expand(7, 5), column, number), 2):
        if a.dim() or b.dim():
            require_same(HOSTED["_added"], [a, None, None, b, None, a.abs()], {})
    require_same(HOSTED["_bit"], [doubles(64, 6)[::2]], {})


def test_a_number_is_not_compiled_in() -> None:
    before = len(cpp._HOSTED)
    x = doubles(9, 7)
    for value in (2.0, 3.0, 5.0):
        require_same(HOSTED["_relative"], [x, value, 0.0], {})
    assert len(cpp._HOSTED) <= before + 1


def test_without_a_compiler_tensors_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp, "_HOSTED", {})
    monkeypatch.setenv("VERIFY_NATIVE", "0")
    native._compiler.cache_clear()
    try:
        require_same(HOSTED["_added"], [doubles(9, 8), None, None, doubles(9, 9), None, None], {})
        assert list(cpp._HOSTED.values()) == [None]
    finally:
        monkeypatch.undo()
        native._compiler.cache_clear()


def test_what_calls_a_library_is_not_compiled() -> None:
    """There are several, and their results differ: also of the square root, of which torch has MKL's."""
    for function in (torch.exp, torch.sqrt):
        hosted = cpp.on_host(lambda x, function=function: function(x) * 2.0)
        x = doubles(99, 10)
        assert torch.equal(hosted(x).nan_to_num(), (function(x) * 2.0).nan_to_num())
    cpp.settled()
    assert [found for key, found in cpp._HOSTED.items() if "test_on_host" in key[0].__module__] == [None, None]


@pytest.mark.skipif(native.host() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(
    "left", ["", "no JSON", '{"library": "gone.so", "outputs": ["float64"], "single": true}', "{}"]
)
def test_what_is_kept_of_it_may_be_spoilt(left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made anew then; and as it is, it is not traced again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for spoilt in (None, left):
        monkeypatch.setattr(cpp, "_HOSTED", {})
        for path in tmp_path.rglob("*.json") if spoilt is not None else ():
            path.write_text(spoilt)
        require_same(HOSTED["_relative"], [doubles(9, 8), 2.0, 0.0], {})
        assert None not in cpp._HOSTED.values()
    assert all("single" in path.read_text() and path.read_text() != left for path in tmp_path.rglob("*.json"))
    monkeypatch.setattr(cpp, "_HOSTED", {})
    monkeypatch.setattr(cpp, "_traced", lambda *given: pytest.fail("it is traced again"))
    require_same(HOSTED["_relative"], [doubles(9, 9), 2.0, 0.0], {})
