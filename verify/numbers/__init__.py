"""Number systems: one oracle expression, evaluated as truth, as enclosure, or as rounded bits.

Every system offers, on its values: + - * / and unary -, abs(); `const(x)` for an int, float,
Fraction or a string such as '1/3'; the functions of `verify.numbers.functions` and `pow`;
`where(predicate, a, b)`, `max`, `min`. On *exact inputs* (and their negation and absolute value)
it offers the comparisons < <= > >= ==, `is_nan`, `is_inf`, `is_zero`, `signbit`, `is_integer`,
`is_odd`; predicates combine with & | ~. Comparing a computed value raises `Undecidable`, since
an enclosure cannot answer; `ieee` alone compares anything, because it has only exact values.
"""

from verify.facts.oracle import OracleError


class Undecidable(TypeError):
    """An oracle compared a computed value; predicates take exact inputs only."""


class NotAdmitted(OracleError):
    """An operation does not do on a device what a number system takes for granted: which, and where it was seen.
    No truth can be had there."""
