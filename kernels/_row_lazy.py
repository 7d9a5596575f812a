"""Formulas of row kernels by name, imported when they are asked for: they need torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verify.composite import Problem


def formulas(name: str) -> Callable[..., dict[str, Callable[[], Any]]]:
    return functools.partial(_formulas, name)


def _formulas(name: str, problem: Problem, output: str) -> dict[str, Callable[[], Any]]:
    from verify.kernels._row_formulas import formulas

    return formulas(name, problem)
