"""Laws that kernels state: kept by what is right, and broken by planted faults with the input that shows it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from verify import backends
from verify.facts.formats import FORMATS
from verify.facts.kernel import elementwise, elementwise_names
from verify.lower.lowering import Target
from verify.lower.pytorch import EAGER
from verify.lower.user import user_lowering
from verify.walk.laws import SIZE, hold
from verify.workers.launch import LoweringError

Tensor = torch.Tensor
CPU = backends.load("cpu")


def target(name: str, scalars: dict[str, float] | None = None, dtype: str = "float32") -> Target:
    kernel = elementwise(name)
    given = dict(kernel.cases[0]) if scalars is None else scalars
    spelling = next(key for key, one in kernel.spellings.items() if one.applies(given))
    return Target(kernel, given, spelling, dtype, CPU)


def judged(at: Target, spoil: Callable[[Tensor], Tensor] = lambda y: y, name: str = "mine.py:f") -> dict[str, Any]:
    call = EAGER.build(at)
    return {one["name"]: one for one in hold(at, lambda *tensors: spoil(call(*tensors)), name)}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", elementwise_names())
def test_eager_keeps_its_laws(name: str, dtype: str) -> None:
    kernel = elementwise(name)
    told = 0
    for scalars in kernel.cases:
        at = target(name, dict(scalars), dtype)
        for one in hold(at, EAGER.build(at), "eager", size=4096):
            assert (one["violations"], one["witness"]) == (0, []), (name, scalars, one)
            assert one["inputs"] > 3000
            told += 1
    assert told or not kernel.properties or name == "lerp"


def test_only_the_laws_that_a_lowering_promises_are_judged() -> None:
    at = target("sqrt")
    assert set(judged(at, name="triton")) - set(judged(at)) == {"monotone"}
    assert [one["name"] for one in hold(target("lerp", {"w": 0.9}), lambda a, b: a - b, "mine.py:f")] == ["negation"]


#: A law, how outputs are spoiled, and what the witness must be.
BROKEN = [
    ("exp", "exp(0) = 1", lambda y: torch.where(y == 1, y + 2.0**-23, y), lambda x: x == ["0x0p+0"]),
    ("exp", "range", lambda y: torch.where(y < 1e-30, -y, y), lambda x: float.fromhex(x[0]) < -60),
    (
        "tanh",
        "negation",
        lambda y: torch.where(y > 0, torch.nextafter(y, y * 0), y),
        lambda x: x[0] not in ("0x0p+0", "nan"),
    ),
    ("add", "commutes", lambda y: y + next(COUNT) % 2, lambda x: len(x) == 2),
    ("add", "negation", lambda y: torch.where(y > 0, torch.nextafter(y, y * 0), y), lambda x: len(x) == 2),
    ("sigmoid", "sigmoid(0) = 1/2", lambda y: torch.where(y == 0.5, 0.25, y), lambda x: x == ["0x0p+0"]),
    ("pow", "x^0 = 1", lambda y: torch.where(y == 1, 2.0, y), lambda x: len(x) == 2 and x[1] == "0x0p+0"),
    ("lerp", "negation", lambda y: y.abs(), lambda x: len(x) == 3),
]
COUNT = iter(range(10**6))


@pytest.mark.parametrize(("name", "law", "spoil", "right"), BROKEN, ids=[f"{n}: {law}" for n, law, _, _ in BROKEN])
def test_a_broken_law_has_a_witness(
    name: str, law: str, spoil: Callable[[Tensor], Tensor], right: Callable[[list[str]], bool]
) -> None:
    at = target(name)
    found = judged(at, spoil)[law]
    assert found["inputs"] == SIZE and 0 < found["violations"] <= SIZE
    assert right(found["witness"]), found
    assert not judged(at)[law]["violations"]


def test_of_a_law_on_neighbours_both_are_told() -> None:
    at = target("sqrt")
    low, high = 1.75, 1.8

    def dented(y: Tensor) -> Tensor:
        return torch.where((y > low) & (y < high), low, y)

    def raised(y: Tensor) -> Tensor:
        return torch.where((y > low) & (y < high), high + 0.1, y)

    found = judged_by("triton", at, raised)["monotone"]
    assert found["violations"] == 1 and found["inputs"] == SIZE - 1
    first, second = (float.fromhex(x) for x in found["witness"])
    assert low**2 < first <= high**2 <= second * (1 + 2.0**-20) and first < second
    assert judged_by("triton", at, dented)["monotone"]["violations"] == 0  # flat is no descent
    assert "monotone" not in judged(at)  # which no user's lowering promises


def judged_by(name: str, at: Target, spoil: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    return judged(at, spoil, name)


def test_a_users_file_is_held_to_the_laws(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import torch\ndef f(a, b, alpha):\n    return torch.where(a > 0, a + b, a + b + a * 2.0**-20)\n")
    at = target("add")
    lowering = user_lowering(f"{path}:f")
    found = {one["name"]: one for one in hold(at, lowering.build(at), lowering.name)}
    assert found["negation"]["violations"] > 1000
    assert all(FORMATS["float32"].parse(text) >= 0 for text in found["negation"]["witness"])
    path.write_text("def f(a, b, alpha):\n    return (a + b).double()\n")
    broken = user_lowering(f"{path}:f")
    with pytest.raises(LoweringError, match="returned dtype"):
        hold(at, broken.build(at), broken.name)


def test_inputs_are_those_of_the_seed() -> None:
    seen: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        seen.append(x.clone())
        return torch.exp(x)

    at = target("exp")
    run = functools.partial(hold, at, keep, "mine.py:f", size=256)
    run(seed=1)
    run(seed=1)
    run(seed=2)
    first, again, other = (t.view(torch.int32) for t in seen if len(t.unique()) > 1)
    assert torch.equal(first, again) and not torch.equal(first, other)
