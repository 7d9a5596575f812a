"""The pytest plugin: `pytest --verify-report REPORT --verify-baseline DIR` makes each verdict of `verify gate` a test,
so that pytest's own reporters, `--junitxml` among them, show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from verify.reports.gate import Verdict


def pytest_configure(config: pytest.Config) -> None:
    reports = config.getoption("verify_report", [])
    if bool(reports) != bool(config.getoption("verify_baseline", None)):
        raise pytest.UsageError("--verify-report REPORT and --verify-baseline DIR go together")
    for path in map(Path, reports):
        if (config.invocation_params.dir / path).is_dir():  # whose tests pytest would run instead
            raise pytest.UsageError(f"cannot read the report {str(path)!r}: is a directory; expected a file")
    if reports:
        # The first report stands for all of them. Without further arguments nothing else is collected.
        given = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
        config.args = [*given, *([] if reports[0] in given else [reports[0]])]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ulproof", "accuracy reports")
    group.addoption(
        "--verify-report", action="append", default=[], metavar="REPORT", help="A report to gate; repeatable."
    )
    group.addoption("--verify-baseline", metavar="DIR", help="The folder of accepted results.")
    for name, metavar in (("fail-on", "STATUS"), ("allow", "PATTERN"), ("only", "PATTERN")):
        help_text = f"As --{name} of `verify gate`; repeatable."
        group.addoption(f"--verify-{name}", action="append", default=[], metavar=metavar, help=help_text)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    reports = parent.config.getoption("verify_report", [])
    if reports and file_path.samefile(parent.config.invocation_params.dir / reports[0]):
        return Gate.from_parent(parent, path=file_path)
    return None


class Gate(pytest.File):
    """All verdicts on the reports of `--verify-report`, each a test."""

    def collect(self) -> Iterator[pytest.Item]:
        from verify.facts.kernel import UsageError, comma_list
        from verify.reports import gate
        from verify.reports.gate_page import verdict_line
        from verify.reports.text import printable

        option, start = self.config.getoption, self.config.invocation_params.dir
        statuses = [status for text in option("verify_fail_on") for status in comma_list(text)]
        paths = [start / path for path in option("verify_report")]
        root = start / option("verify_baseline")
        try:
            outcome = gate.gate(paths, root, statuses or gate.FAIL_ON, option("verify_allow"), option("verify_only"))
        except UsageError as error:
            raise self.CollectError(str(error)) from None
        if outcome.exit_code and not outcome.failed:
            raise self.CollectError(verdict_line(outcome))
        facts = [(verdict.device, verdict.profile) for verdict in outcome.verdicts]
        several = [len(set(values)) > 1 for values in zip(*facts, strict=True)]
        for verdict, places in zip(outcome.verdicts, facts, strict=True):
            told = ", ".join(value for value, named in zip(places, several, strict=True) if named)
            name = f"{verdict.cell} [{told}]" if told else verdict.cell
            yield Cell.from_parent(self, name=printable(name), verdict=verdict)


class Cell(pytest.Item):
    """One verdict: fails as the gate does; what `--verify-allow` or the ledger's allowance excuses is an expected
    failure. What deviates, or would fail but for `--verify-fail-on`, is skipped with its reason: JUnit has no other
    word for neither passed nor failed."""

    def __init__(self, *, verdict: Verdict, **named: Any) -> None:
        super().__init__(**named)
        self.verdict = verdict
        for name in ("status", "device", "profile", "reason", "replay"):
            self.user_properties.append((name, getattr(verdict, name)))
        for name in ("deviates", "predicted"):
            self.user_properties.append((name, str(getattr(verdict, name)).lower()))
        self.user_properties.append(("ledger", " ".join(verdict.ledger)))

    def runtest(self) -> None:
        from verify.reports.gate import FAIL_ON

        if self.verdict.fails:
            raise Failing(self.verdict)
        told = f"{self.verdict.status}: {self.verdict.reason}"
        if by := self.verdict.allowed or self.verdict.allowance:
            pytest.xfail(f"{self.verdict.status}, allowed by {by!r}: {self.verdict.reason}")
        if self.verdict.deviates or self.verdict.status in FAIL_ON:
            self.add_report_section("call", "stdout", f"{told}\n{self.verdict.replay}\n")
            pytest.skip(told)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Failing):
            return f"{self.verdict.status}: {self.verdict.reason}\n{self.verdict.replay}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


class Failing(Exception):
    """A verdict that fails the gate."""
