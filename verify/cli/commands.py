"""The commands: options in, pages and report files out.

Options are in `verify.cli.options`, what surrounds a run in `verify.cli.conduct`, what is printed in
`verify.reports.*_page`.
Everything heavy (torch, triton, pydantic, rich) is imported inside the command that needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from verify import __version__
from verify.cli.conduct import conduct, exit_code, how_of, tell_parts, terminable
from verify.cli.options import (
    Address,
    Algorithm,
    Backends,
    BaselineDir,
    Dtypes,
    Engine,
    Jobs,
    JournalFile,
    Json,
    KeepCode,
    Limit,
    Lowerings,
    Markdown,
    Memory,
    Name,
    Names,
    Only,
    Profile,
    Reports,
    Resume,
    Scalars,
    Seed,
    Settings,
    ShardOf,
    Spellings,
    Timeout,
    Triples,
    begin,
    ensure_amount,
    ensure_known,
    keep_launches,
    scalars_of,
    selection_of,
    setting_of,
    sources_of,
    triples_of,
)
from verify.cli.output import (
    FAILED,
    INTERRUPTED,
    NO_READER,
    NOTHING,
    ORACLE_VIOLATION,
    USAGE,
    accepted_files,
    blame,
    complain,
    ensure_writable,
    json_lines,
    left_out,
    print_to,
    tell,
    text_of,
)
from verify.facts.kernel import (
    DTYPES,
    NARROW,
    Composite,
    Kernel,
    NothingToCompare,
    UsageError,
    comma_list,
    finished,
    is_file,
    load,
    mistake,
    names,
)
from verify.facts.oracle import OracleError
from verify.judge.status import combined
from verify.processes import start
from verify.reports.blocks import Page
from verify.reports.invariance import invariance_page
from verify.reports.registry_page import bounds_page, list_page, show_page
from verify.reports.text import printable
from verify.virtual.compile import TARGETS
from verify.walk.progress import shown

if TYPE_CHECKING:
    from verify.reports.schema import Report
    from verify.walk.plan import Selection

#: Options and arguments that the parser itself refuses. The class's module differs between typer's versions.
_CommandLineError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class _Commands(typer.core.TyperGroup):
    """The commands. One that is interrupted says so; a run does that itself, and keeps its cells."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            return complain("interrupted", INTERRUPTED)


#: What a full disk or device says.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

app = typer.Typer(
    name="verify",
    cls=_Commands,
    help="Certified errors of floating-point kernels against the real number: how large they are, which kernel is "
    "right, which formula its bits obey, and whether any of that has changed.",
    epilog="Exit codes: 0 passed; 1 a bound failed; 2 bad usage or input; 3 nothing could be compared; "
    "4 oracle violation. Where several apply: 4, 2, 1, 3.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (those of the process by default) and return the exit code; that of an oracle
    violation, which lets nothing be believed, also for a mistake of this project."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (until the process ends)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal's encoding lacks
    start.settle()
    try:
        with _buffered():
            code = app(args=None if arguments is None else list(arguments), prog_name="verify", standalone_mode=False)
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        # the reader has gone, as in `verify run --json - | head -1`; typer makes an exit with code 1 of that
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _drop_output()
        return NO_READER
    except OSError as error:
        if error.errno not in FULL or error.filename is not None:
            raise
        _drop_output()
        return complain(f"standard output: {error.strerror}", USAGE)
    except UsageError as error:
        return complain(error, USAGE)
    except NothingToCompare as error:
        return complain(error, NOTHING)
    except OracleError as error:
        return complain(error, ORACLE_VIOLATION)
    except _CommandLineError as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "verify")
        return complain(f"{error.format_message().removesuffix('.')}; see `{command} --help`", USAGE)
    except ModuleNotFoundError:  # which `verify.__main__` tells
        raise
    except Exception as error:
        told = mistake(error)
        return blame(error) if told is None else complain(told, ORACLE_VIOLATION)
    return code or 0


@contextlib.contextmanager
def _buffered() -> Iterator[None]:
    """Standard output has a buffer, also where PYTHONUNBUFFERED says otherwise: what a short write leaves out would be
    lost. Each line is written at once."""
    usual, raw = sys.stdout, getattr(sys.stdout, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        yield
        return
    sys.stdout = whole = io.TextIOWrapper(
        io.BufferedWriter(raw), usual.encoding, "backslashreplace", line_buffering=True
    )
    try:
        yield
    finally:
        sys.stdout = usual
        whole.detach().detach()  # or it would close what it wrote to


def _drop_output() -> None:
    """What is still buffered goes nowhere, or the interpreter would fail on it once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        print(f"verify (ulproof) {__version__}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)


@app.command()
def kernel(
    name: Names,
    backend: Backends = None,
    dtype: Dtypes = None,
    lowering: Lowerings = None,
    spelling: Spellings = None,
    scalar: Scalars = None,
    setting: Settings = None,
    algorithm: Algorithm = "",
    timeout: Timeout = None,
    memory: Memory = None,
    profile: Profile = "default",
    triples: Triples = False,
    seed: Seed = 0,
    jobs: Jobs = None,
    engine: Engine = "local",
    address: Address = None,
    shard: ShardOf = None,
    journal: JournalFile = None,
    resume: Resume = False,
    invariance: Annotated[
        bool,
        typer.Option(
            "--invariance", help="Of kernels of rows: whether a row's bits depend on the batch; nothing else is judged."
        ),
    ] = False,
    keep_code: KeepCode = None,
    length: Annotated[
        list[int] | None,
        typer.Option("--length", metavar="N", min=1, help="With --invariance: of rows; repeatable. [64, 1000, 4096]"),
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Also write the report; '-' is standard output.")
    ] = None,
) -> None:
    """Certified errors of kernels, lowering by lowering."""
    wanted = tuple(dict.fromkeys(name))
    for option, amount in (("--timeout", timeout), ("--memory", memory)):
        if amount is not None:
            ensure_amount(option.strip("-"), f"{option} {amount:g}", amount)
    asked = wanted, backend, dtype, lowering, spelling, scalar, profile, seed, setting, algorithm
    selection = selection_of(*asked, here=engine == "local", jobs=jobs)
    for option, given in (("--timeout", timeout), ("--memory", memory)):
        if given is not None and not selection.user_lowerings:
            raise UsageError(f"{option} is for a lowering of your own, --lowering FILE.py:FUNCTION; leave it out")
    selection = dataclasses.replace(
        selection, timeout=timeout or selection.timeout, memory=memory, triples=triples_of(triples, profile)
    )
    if length and not invariance:
        raise UsageError("--length is for --invariance; the shape of rows is given by --set")
    if invariance:
        of_jobs: dict[str, object] = {"--shard": shard, "--journal": journal, "--resume": resume, "--jobs": jobs}
        of_jobs |= {"--engine": engine != "local", "--address": address, "--keep-code": keep_code}
        of_jobs |= {"--profile": profile != "default", "--triples": triples}
        of_jobs |= {"--algorithm": algorithm, "--set": setting, "--spelling": spelling}
        for option in (name for name, given in of_jobs.items() if given):
            raise UsageError(f"{option} is of no use with --invariance, which compares rows with themselves")
        raise typer.Exit(_invariance(selection, tuple(length or (64, 1000, 4096)), json_file))
    keep_launches(keep_code)
    how = how_of(jobs, engine, address, shard, journal, resume, json_file)
    from verify.reports.run_page import kernel_page

    def pages(report: Report) -> list[Page]:
        there = {cell.kernel for cell in report.cells}
        return [kernel_page(report, name) for name in wanted if name in there]

    raise typer.Exit(conduct("kernel", selection, json_file, pages, how))


@app.command()
def run(
    backend: Backends = None,
    dtype: Dtypes = None,
    lowering: Lowerings = None,
    spelling: Spellings = None,
    profile: Profile = "default",
    triples: Triples = False,
    seed: Seed = 0,
    jobs: Jobs = None,
    engine: Engine = "local",
    address: Address = None,
    shard: ShardOf = None,
    journal: JournalFile = None,
    resume: Resume = False,
    keep_code: KeepCode = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "--json", metavar="FILE", help="The report; '-' is standard output. [report[-BACKEND].json]"
        ),
    ] = None,
) -> None:
    """All kernels: write a report and print one row for each kernel."""
    keep_launches(keep_code)
    kernels, wrong = finished(names())
    asked = tuple(k.name for k in kernels), backend, dtype, lowering, spelling, None, profile, seed
    selection = selection_of(*asked, here=engine == "local", jobs=jobs)
    selection = dataclasses.replace(selection, triples=triples_of(triples, profile))
    for text in selection.user_lowerings:
        complain(f"{text} is judged as every kernel that its signature fits; `verify kernel NAME` judges it as one", 0)
    out = out or "-".join(["report", *(backend or ())]) + ".json"
    how = how_of(jobs, engine, address, shard, journal, resume, out)
    from verify.reports.run_page import run_page

    code = conduct("run", selection, out, lambda report: [run_page(report)], how)
    raise typer.Exit(left_out(wrong, code))


@app.command()
def audit(
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Kernels of `verify list`. [all]", autocompletion=names),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", metavar="NAME,NAME...", help=f"GPUs to compile for: {', '.join(TARGETS)}.")
    ] = ",".join(TARGETS),
    dtype: Dtypes = None,
    lowering: Annotated[
        list[str] | None,
        typer.Option(
            "--lowering",
            metavar="NAME|PATTERN|FILE.py:FUNCTION",
            help="A Triton lowering, a shell pattern, or a function of your own that launches a Triton kernel; "
            "repeatable. [all Triton lowerings]",
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes. [one a core]")] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="FILE", help="An accepted census (--json): exit code 1 where it changed."),
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Also write the census; '-' is standard output.")
    ] = None,
) -> None:
    """Compile Triton lowerings for GPUs that need not be here, and list the instructions that decide roundings.

    Each is compiled twice, with fp fusion (contraction of products into sums) permitted and forbidden; differences
    between targets and flags are listed in words. dtype: float32 unless given.
    """
    ensure_known("dtype", dtype or (), DTYPES)
    own = [text for text in lowering or () if is_file(text)]
    ensure_writable(json_file, reading=[*filter(None, [baseline]), *sources_of(own)])
    from verify.processes import standby

    standby.prepare()  # while this process imports torch
    from verify import backends
    from verify.reports.audit_page import audit_page
    from verify.walk import audit as audited

    chosen = [text for text in lowering or () if not is_file(text)]
    before = None if baseline is None else audited.accepted(text_of(baseline))
    kernels, wrong = finished(names() if not name else ())
    each = audited.asked(name or [k.name for k in kernels], comma_list(target), dtype or (), chosen, own)
    with shown() as progress:
        rows = audited.audit(each, jobs or backends.cores(), progress)
    told = audited.differences(rows)
    document = {"schema": audited.SCHEMA, "rows": [row.record() for row in rows],
                "differences": [{"kernel": k, "lowering": one, "dtype": d, "told": t}
                                for (k, one, d), t in told.items()]}  # fmt: skip
    lines, notes = None, list[str]()
    if before is not None:
        targets = [] if target == ",".join(TARGETS) else comma_list(target)
        gone = audited.vanished(rows, before, name or (), targets, dtype or (), chosen, own)
        lines, notes = [*audited.changed(rows, before), *gone], audited.renewed(rows, before)
    tell([audit_page(rows, told, lines, notes)], json_lines(document), None, json_file)
    if not any(row.census for row in rows):
        raise NothingToCompare(f"nothing was compiled: {rows[0].reason if rows else 'no lowering exists here'}")
    raise typer.Exit(left_out(wrong, FAILED if lines else 0))


@app.command()
def replay(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="A folder written by --keep-code, or a tar archive of one.")
    ],
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Also write the facts; '-' is standard output.")
    ] = None,
) -> None:
    """Execute kept launches of a GPU on the CPU, and compare their bits with what the GPU gave.

    Exit code 1 where a bit differs, 3 where nothing could be executed.
    """
    ensure_writable(json_file)
    from verify.reports.audit_page import replay_page
    from verify.virtual.replay import replay as replayed

    with terminable() as stop:
        try:
            found = list(replayed(Path(folder)))
        except KeyboardInterrupt:
            print(f"verify: {stop.word}", file=sys.stderr)
            raise typer.Exit(stop.code) from None
    document = {"schema": 1, "launches": [one.record() for one in found]}
    tell([replay_page(found)], json_lines(document), None, json_file)
    if all(one.reason for one in found):
        raise NothingToCompare(f"nothing was replayed: {found[0].reason}")
    raise typer.Exit(FAILED if any(one.differing for one in found) else 0)


@app.command()
def merge(
    report: Annotated[list[str], typer.Argument(metavar="REPORT...", help="The reports of all shards of a run.")],
    out: Annotated[str, typer.Option("--out", "-o", "--json", metavar="FILE", help="The report of the whole run.")],
) -> None:
    """Join the reports of `--shard 1/N` to `N/N` into the one that the whole run would have written.

    Reports of different kernels can be joined, too. All must have the same environment, profile and seed.
    """
    from verify.reports import store
    from verify.reports.run_page import run_page
    from verify.walk.merge import merged

    ensure_writable(out, reading=report)
    parts = [store.read(file) for file in report]
    whole = merged(parts)
    store.write(whole, out)
    if whole.cells:
        print_to(run_page(whole), sys.stderr if out == "-" else sys.stdout)
    else:
        complain(f"{', '.join(map(printable, report))}: no cell in any of them", NOTHING)
    tell_parts(whole)
    for file, part in zip(report, parts, strict=True):
        if part.interrupted:
            print(f"verify: {printable(file)} was interrupted: {printable(out)} lacks cells, too", file=sys.stderr)
    code = exit_code(whole)
    if whole.shard is not None:
        left = whole.shard.of - 1 - len(whole.shard.others)
        are = "shards is" if left == 1 else "shards are"
        told = f"{left} of {whole.shard.of} {are} missing; what is there is in {out}, to be merged with them"
        code = combined([code, complain(told, USAGE)])
    raise typer.Exit(code)


@app.command("list")
def list_() -> None:
    """The registered kernels. Unfinished files of kernels/ are named, and the exit code is 2."""
    from verify.lower.lowerings import lowering_names

    kernels, wrong = finished(names())
    print_to(list_page(kernels, {k.name: lowering_names(k) for k in kernels}), sys.stdout)
    raise typer.Exit(left_out(wrong, 0))


@app.command()
def show(
    name: Name,
    stub: Annotated[
        bool, typer.Option("--stub", help="Print a lowering of your own to start from: FILE.py:NAME.")
    ] = False,
    bounds: Annotated[
        bool, typer.Option("--bounds", help="List all bounds of an elementwise kernel's lowerings, with their sources.")
    ] = False,
) -> None:
    """One kernel's facts: cases, formulas, special values, lowerings, and how one of your own is called and held."""
    from verify.lower import stubs
    from verify.lower.lowerings import lowering_names

    kernel = load(name)
    if stub and bounds:
        raise UsageError("--stub and --bounds: give one of them")
    if stub:
        print(stubs.source(kernel), end="")
    elif bounds:
        if isinstance(kernel, Composite):
            raise UsageError(f"--bounds: {kernel.name} has no table of bounds; its algorithm gives each element one")
        print_to(bounds_page(kernel), sys.stdout)
    else:
        print_to(show_page(kernel, lowering_names(kernel), stubs.terms(kernel)), sys.stdout)


@app.command()
def explain(
    name: Name,
    values: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="HEX,HEX...",
            help="The tensor inputs in order: hex floats, decimals, inf, nan or raw bits '#3f800000'. "
            "Write --input=... where the first is negative.",
        ),
    ] = None,
    index: Annotated[
        int | None,
        typer.Option("--index", metavar="N", min=0, help="Composite kernels: the element, in C order of the output."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="NAME", help="Composite kernels: which output. [the first]")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", metavar="NAME", help=", ".join(DTYPES))] = "float32",
    backend: Annotated[
        str | None, typer.Option("--backend", metavar="NAME", help="Where to run. [the first present]")
    ] = None,
    lowering: Lowerings = None,
    spelling: Spellings = None,
    scalar: Scalars = None,
    setting: Settings = None,
    seed: Seed = 0,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the facts as JSON; '-' is standard output.")
    ] = None,
) -> None:
    """One element in detail.

    Its exact value, the correctly rounded result, each lowering's bits, error and class, and the
    formulas step by step; of a composite kernel its terms.
    """
    of = load(name)
    composite = isinstance(of, Composite)
    ensure_known("dtype", [dtype], DTYPES + NARROW)
    if composite and (index is None or values is not None):
        raise UsageError(f"{name} is a composite kernel: expected --index N, the place in its output, and no --input")
    if composite and spelling and len(spelling) > 1:
        raise UsageError(f"--spelling {' and '.join(spelling)}: an element lies in one; name one")
    for option, given in (("--index", index is not None), ("--output", output is not None), ("--set", setting)):
        if given and not composite:
            raise UsageError(f"{option} is for composite kernels, and {name} is an elementwise one; leave it out")
    if isinstance(of, Kernel) and values is None:
        wanted = ",".join(["HEX"] * len(of.tensors(scalars_of(scalar) or {})))
        raise UsageError(f"{name} is an elementwise kernel: expected --input {wanted}")
    begin(lowering)
    from verify.reports import store
    from verify.reports.explain_page import explain_page, explain_place_page
    from verify.walk import explain as take_apart

    ensure_writable(json_file, reading=sources_of(text for text in lowering or () if is_file(text)))
    chosen = tuple(lowering or ())
    if composite:
        told = take_apart.explain_place(
            name,
            index or 0,
            output=output,
            spelling=spelling[0] if spelling else None,
            setting=setting_of(setting or ()),
            dtype=dtype,
            scalars=scalars_of(scalar),
            lowerings=chosen,
            backend=backend,
            seed=seed,
        )
        page = explain_place_page(told)
    else:
        told = take_apart.explain(
            name,
            comma_list(values or ""),
            dtype=dtype,
            scalars=scalars_of(scalar),
            lowerings=chosen,
            spellings=tuple(spelling or ()),
            backend=backend,
        )
        page = explain_page(told)
    if json_file is not None:
        store.write_text([json.dumps(told, indent=1, allow_nan=False), "\n"], json_file)
    print_to(page, sys.stderr if json_file == "-" else sys.stdout)


@app.command()
def gate(
    report: Reports,
    baseline: BaselineDir,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="STATUS,...",
            help="exceeds-bound, unsteady, suspect, unbounded, unjudged, regressed, changed, stale, deviates, not-run, "
            "improved. oracle-violation and error always fail. [all but stale, deviates and improved]",
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="PATTERN", help="Cells that may fail, such as 'lerp inductor'; repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PATTERN", help="Gate only these cells; repeatable.")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write every verdict; '-' is standard output.")
    ] = None,
    markdown_file: Annotated[
        str | None, typer.Option("--markdown", metavar="FILE", help="Write the page as GitHub Markdown.")
    ] = None,
    sarif_file: Annotated[
        str | None, typer.Option("--sarif", metavar="FILE", help="Write SARIF 2.1.0, for code scanning.")
    ] = None,
    oss_benchmark_file: Annotated[
        str | None,
        typer.Option("--oss-benchmark", metavar="FILE", help="Write records of PyTorch's OSS benchmark database, v3."),
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Append the page to GitHub's step summary (GITHUB_STEP_SUMMARY).")
    ] = False,
    annotations: Annotated[
        bool, typer.Option("--annotations", help="Print '::error' lines, which GitHub shows beside the change.")
    ] = False,
) -> None:
    """Reports against accepted results: pass, or fail with reasons.

    Each cell gets one status, the first of: oracle-violation, error, exceeds-bound, unsteady, suspect, unbounded,
    unjudged, regressed, changed, stale, deviates, not-run, improved, passed. A PATTERN is a shell pattern of a cell's
    name as printed, or of its first words.
    JUnit XML: pytest --verify-report REPORT --verify-baseline DIR --junitxml FILE.
    """
    from verify.reports import store

    files = [json_file, markdown_file, sarif_file, oss_benchmark_file]
    if files.count("-") + (annotations and "-" in files) > 1:
        raise UsageError("only one output can be standard output; expected file names for the others")
    appended = os.environ.get("GITHUB_STEP_SUMMARY") or None if summary else None
    ensure_writable(*files, appended, reading=[*report, *accepted_files(baseline)])
    from verify.reports import ci, markdown, oss_benchmark
    from verify.reports import gate as gates
    from verify.reports import gate_page as pages

    statuses = [status for text in fail_on or () for status in comma_list(text)]
    outcome = gates.gate(report, baseline, statuses or gates.FAIL_ON, allow or (), only or ())
    page = pages.gate_page(outcome)
    if json_file is not None:
        store.write_text([json.dumps(pages.as_json(outcome), indent=1), "\n"], json_file)
    if markdown_file is not None:
        store.write_text(markdown.lines(page), markdown_file)
    if sarif_file is not None:
        store.write_text([json.dumps(ci.sarif(outcome), indent=1), "\n"], sarif_file)
    if oss_benchmark_file is not None:
        store.write_text(oss_benchmark.lines(report, only or ()), oss_benchmark_file)
    if summary and not ci.append_summary(page):
        print("verify: GITHUB_STEP_SUMMARY is not set; no step summary was written", file=sys.stderr)
    stream = sys.stderr if "-" in files else sys.stdout
    with ci.commands_stopped(stream, always=annotations):
        print_to(page, stream)
    if annotations:
        sys.stdout.writelines(ci.error_lines(outcome))
    raise typer.Exit(outcome.exit_code)


@app.command()
def accept(
    report: Reports,
    baseline: BaselineDir,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="PATTERN", help="Accept errors of these cells beyond their bounds."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; the device's budget file records it.")
    ] = "",
    prune: Annotated[bool, typer.Option("--prune", help="Remove accepted cells that the reports lack.")] = False,
) -> None:
    """Make reports the baseline of their devices, and print what changed.

    Reports with cells that fail by themselves, and that neither ledger nor budget covers, are refused as a whole.
    """
    from verify.reports import accept as accepting

    try:
        done = accepting.accept(report, baseline, allow or (), reason, prune)
    except accepting.Refused as refused:
        print_to(accepting.refused_page(refused), sys.stderr)
        raise typer.Exit(refused.code) from None
    print_to(accepting.accept_page(done), sys.stdout)


@app.command()
def compare(
    files: Annotated[
        list[str], typer.Argument(metavar="A.json B.json...", help="Reports; the first is the reference.")
    ],
    only: Only = None,
    dtype: Dtypes = None,
    lowering: Annotated[
        list[str] | None, typer.Option("--lowering", metavar="PATTERN", help="Names or shell patterns. [all]")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print equal cells too.")] = False,
    limit: Limit = 40,
    exchange: Annotated[
        str | None,
        typer.Option(
            "--exchange",
            metavar="OUT.npz",
            help="Compute the differing chunks of the first report, this machine's, again and write their outputs.",
        ),
    ] = None,
    exchange_from: Annotated[
        str | None,
        typer.Option(
            "--exchange-from",
            metavar="FILE.npz",
            help="List the elements that differ from the other machine's file; the first report is this machine's.",
        ),
    ] = None,
    markdown_file: Markdown = None,
    json_file: Json = None,
) -> None:
    """Reports side by side: what got worse or larger, and where formulas or bits differ.

    Cells are aligned by kernel, lowering, spelling, dtype, scalars and output, across devices too; those with other
    inputs are listed and not compared. A difference is not a failure (exit code 0): `verify gate` judges.
    """
    ensure_known("dtype", dtype or (), DTYPES + NARROW)
    from verify.reports import compare as comparing
    from verify.reports import store
    from verify.reports.compare_page import compare_page, exchange_page

    if exchange is not None and exchange_from is not None:
        raise UsageError("--exchange writes this machine's outputs, --exchange-from reads another's: give one of them")
    ensure_writable(markdown_file, json_file, exchange, reading=[*files, *filter(None, [exchange_from])])
    with store.no_collection():
        found = comparing.compare(comparing.load(files, only or (), dtype or (), lowering or ()))
        pages, further = [compare_page(found, every, limit or None)], {}
    if exchange is not None or exchange_from is not None:
        from verify.reports.exchange import as_json
        from verify.walk import recompute

        with shown() as progress:
            act = recompute.resolve if exchange is None else recompute.write
            told = act(found, path := exchange or exchange_from or "", progress)
        pages.append(exchange_page(found, told, path))
        further["exchange"] = as_json(told)
    tell(pages, comparing.json_lines(found, every, **further), markdown_file, json_file)


@app.command()
def history(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Reports (*.json, *.json.xz), in its subfolders too.")
    ],
    kernel: Only = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="TEXT", help="Part of the name of a backend, chip or capability; repeatable."),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql", metavar="SELECT", help="Run a query on the views `cells` and `regions` (docs/history.md) instead."
        ),
    ] = None,
    limit: Limit = 40,
    markdown_file: Markdown = None,
    json_file: Json = None,
) -> None:
    """When a cell changed, with which versions, and the first bad report.

    Reports are ordered by date, or by name where they have none. A file that is not a report is named and skipped.
    Needs DuckDB: pip install 'ulproof[history]'.
    """
    from verify.reports import history as past
    from verify.reports import store
    from verify.reports.history_page import history_page, query_page

    if sql is not None and (kernel or device):
        raise UsageError("--sql makes its own selection: write WHERE kernel = '...' instead of --kernel and --device")
    ensure_writable(markdown_file, json_file)
    with store.no_collection():
        archive = past.read(folder)
    for why in archive.skipped:
        complain(f"skipped: {why}", USAGE)
    ensure_writable(markdown_file, json_file, reading=[Path(folder) / one.file for one in archive.reports])
    if sql is not None:
        names, rows = past.query(archive, sql)
        tell([query_page(names, rows)], json_lines(past.answer_json(names, rows)), markdown_file, json_file)
        return
    found = past.changes(archive, kernel or (), device or ())
    tell([history_page(found, limit or None)], json_lines(past.as_json(archive, found)), markdown_file, json_file)
    if not found.series:
        raise NothingToCompare(
            "nothing to compare: no cell ran in two reports of one device, profile and seed; these are of "
            + "; ".join(past.sources(archive))
        )


@app.command("report")
def report_(
    files: Reports,
    html_file: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write one page that needs no network; '-' is standard output."),
    ] = None,
    markdown_file: Annotated[
        str | None,
        typer.Option("--markdown", metavar="FILE", help="Write GitHub Markdown; '-' is standard output."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="DIR|REPORT",
            help="Show what differs from accepted results or another report.",
        ),
    ] = None,
) -> None:
    """Reports as one self-contained page, or as Markdown.

    The page has the errors of kernels by lowering, device, region and binade, the worst inputs with the commands that
    replay them, the formulas, and which lowering is right. It needs Vega-Lite's package: pip install 'ulproof[page]'.
    """
    if html_file is None and markdown_file is None:
        raise UsageError("no output was named; expected --html FILE, --markdown FILE or both")
    if baseline is not None and html_file is None:
        raise UsageError("--baseline is shown on the page only; add --html FILE, or use `verify gate --markdown FILE`")
    ensure_writable(html_file, markdown_file, reading=[*files, *accepted_files(baseline)])
    from verify.reports import html, markdown, store
    from verify.reports.run_page import report_page

    if html_file is not None:
        print(printable(html.write(files, html_file, baseline)), file=sys.stderr)
    if markdown_file is not None:
        told = [_summarized(file) for file in files]
        if not any(one.cells or (one.shard and one.shard.parts) for one in told):
            raise NothingToCompare(f"nothing to show: no cell in {', '.join(map(str, files))}")
        pages = [report_page(one) for one in told]
        store.write_text((line for page in pages for line in markdown.lines(page)), markdown_file)


def _summarized(file: str) -> Report:
    """The report cut down to what `run_page` needs: 100,000 whole cells would take 3 GB."""
    from verify.reports import store
    from verify.reports.schema import Cell, Error

    dropped: dict[str, Any] = {"formula": None, "against_eager": None, "trust": [], "properties": [], "chunks": []}

    def small(error: Error) -> Error:
        return error.model_copy(update={"binades": [], "histogram": {}})

    def take(cell: Cell) -> Cell:
        worst = [] if cell.status in ("passed", "not-run") else cell.worst
        regions = {name: one.model_copy(update={"error": small(one.error)}) for name, one in cell.regions.items()}
        return cell.model_copy(update={**dropped, "error": cell.error and small(cell.error), "worst": worst,
                                       "regions": regions})  # fmt: skip

    head, cells = store.scan(file, take)
    return head.model_copy(update={"cells": cells})


def _invariance(selection: Selection, lengths: tuple[int, ...], json_file: str | None) -> int:
    """`verify kernel NAME --invariance`. What differs is told and no failure: the exit code says whether a lowering of
    the user's own failed, and whether any row ran of each kernel, of the user's own where there is one."""
    from verify.reports import store
    from verify.walk import invariance

    ensure_writable(json_file, reading=sources_of(selection.user_lowerings))
    with shown() as progress:
        found = invariance.walk(selection, lengths, progress)
    if json_file is not None:
        store.write_text([json.dumps(found, indent=1), "\n"], json_file)
    print_to(invariance_page(found["rows"]), sys.stderr if json_file == "-" else sys.stdout)
    rows = [one for one in found["rows"] if is_file(one["lowering"]) or not selection.own]
    codes = [complain(one["reason"], USAGE) for one in rows if one["failed"] and selection.own]
    for name in selection.kernels:
        reasons = [one["reason"] for one in rows if one["kernel"] == name]
        if all(reasons):
            told = next(iter(reasons), "no lowering and dtype agree with the options")
            codes.append(complain(f"{name}: nothing was compared: {told}", NOTHING))
    return combined(codes)
