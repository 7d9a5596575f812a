"""Which cases a kernel of rows, products, attention or steps has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from verify.facts.kernel import Composite, Scalars, Setting, UsageError, suggest


def settings_of(
    facts: Composite, given: Mapping[str, str] | None, spellings: tuple[str, ...], profile: str, dtype: str
) -> list[Setting]:
    """The user's own setting, those named (a name of NAME=VALUE words that is not listed is a custom one), or those of
    the profile, as far as they exist for `dtype`. Raises UsageError."""
    if given:
        return [_own(facts, given)]
    if spellings:
        words = [own_setting(name) for name in spellings if name not in facts.spellings]
        own = [_own(facts, one) for one in words if one]
        return own + [s for s in facts.settings if s.name in spellings and dtype in s.dtypes]
    return [s for s in facts.settings if dtype in s.dtypes and (s.quick or profile != "quick")]


def own_setting(spelling: str) -> dict[str, str] | None:
    """The NAME=VALUE words that `spelling` consists of, or None where it is a name."""
    words = spelling.split()
    if not words or not all("=" in word for word in words):
        return None
    return dict(word.split("=", 1) for word in words)


def _own(facts: Composite, given: Mapping[str, str]) -> Setting:
    """A setting of the user's own; its name gives it back, see `own_setting`."""
    if facts.custom is None:
        raise UsageError(f"{facts.name} takes no --set; its settings are {', '.join(facts.spellings)}")
    for name in given:
        if name not in facts.parameters:
            raise UsageError(suggest(f"parameter of {facts.name}", name, tuple(facts.parameters)))
    own = facts.custom(given)
    name = " ".join(f"{name}={value}" for name, value in given.items())
    if name in facts.spellings:  # which may have other parameters beside
        name = " ".join(f"{name}={own.parameters[name]}" for name in facts.parameters if name in own.parameters)
    return replace(own, name=name)


def cases_of(facts: Composite, given: Scalars | None, profile: str) -> list[Scalars]:
    """The cases of the profile; with scalars given, the first case that has these, with them as given."""
    if not given:
        return list(facts.cases[: facts.quick_cases] if profile == "quick" else facts.cases)
    known = tuple(dict.fromkeys(name for case in facts.cases for name in case))
    if not known:
        raise UsageError(f"{facts.name} takes no --scalar; its parameters are given by --set, see `verify show`")
    for name in given:
        if name not in known:
            raise UsageError(suggest(f"scalar of {facts.name}", name, known))
    return [{**next(case for case in facts.cases if given.keys() <= case.keys()), **given}]
