"""The command line: options in, pages and report files out, exit codes.

What runs is in `verify.run` and `verify.explain`, what is printed in `verify.reports.rows`.
Everything heavy (torch, triton, pydantic, rich) is imported inside the command that needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer

from verify import __version__
from verify.judge.status import combined
from verify.judge.status import exit_code as status_code
from verify.kernel import DTYPES, NARROW, Composite, Kernel, NothingToCompare, UsageError, is_file, load, names, suggest
from verify.oracle import OracleError
from verify.progress import Kinds, shown, spoken
from verify.reports.rows import (
    Page,
    assignments,
    code_of,
    explain_page,
    explain_place_page,
    invariance_page,
    kernel_page,
    list_page,
    printable,
    run_page,
    show_page,
)
from verify.virtual.compile import TARGETS

if TYPE_CHECKING:
    from verify.jobs.journal import Journal
    from verify.reports.schema import Report
    from verify.run import Selection

PROFILES = ("quick", "default", "exhaustive")
ENGINES = ("local", "ray")

# Exit codes; where several apply: 4, 2, 1, 3.
FAILED = 1
USAGE = 2
NOTHING = 3
ORACLE_VIOLATION = 4
INTERRUPTED = 130  # 128 + SIGINT, as shells do
TERMINATED = 143  # 128 + SIGTERM
NO_READER = 141  # 128 + SIGPIPE: whether anything failed, nobody read

#: Options and arguments that the parser itself refuses. The class's module differs between typer's versions.
_CommandLineError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="verify",
    help="Certified errors of floating-point kernels against the real number: how large they are, which kernel is "
    "right, which formula its bits obey, and whether any of that has changed.",
    epilog="Exit codes: 0 passed; 1 a bound failed; 2 bad usage or input; 3 nothing could be compared; "
    "4 oracle violation. Where several apply: 4, 2, 1, 3.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A kernel of `verify list`.", autocompletion=names)]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Kernels of `verify list`.", autocompletion=names)]
Backends = Annotated[
    list[str] | None, typer.Option("--backend", metavar="NAME", help="Where to run; repeatable. [all present]")
]
Dtypes = Annotated[
    list[str] | None, typer.Option("--dtype", metavar="NAME", help=f"{', '.join(DTYPES)}; repeatable. [all]")
]
Lowerings = Annotated[
    list[str] | None,
    typer.Option(
        "--lowering",
        metavar="NAME|PATTERN|FILE.py:FUNCTION",
        help="A registered lowering, a shell pattern, or a function of your own (see `verify show`), checked "
        "beside eager; repeatable. [all]",
    ),
]
Spellings = Annotated[
    list[str] | None, typer.Option("--spelling", metavar="NAME", help="How the kernel is called; repeatable. [all]")
]
Scalars = Annotated[
    list[str] | None,
    typer.Option(
        "--scalar",
        metavar="NAME=VALUE",
        help="A Python scalar of the kernel, as a decimal or hex float; none: tensors alone.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Your own setting of a composite kernel, see `verify show`; repeatable.",
    ),
]
Algorithm = Annotated[
    str,
    typer.Option(
        "--algorithm",
        metavar="ORDER:ACCUMULATOR",
        help="In which order your own lowering combines the terms of a row, and the format of its partial results: "
        "sequential:float32, tree:float32, blocked=128:float32, any:bfloat16. Its bound is then that order's; without "
        "it, what is beyond the known algorithms and within any order in float32 is suspect.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", help="For a launch of your own lowering, compilation apart."),
]
Memory = Annotated[
    float | None,
    typer.Option("--memory", metavar="GIB", help="What your own lowering may allocate on the CPU. [the machine's]"),
]
Profile = Annotated[str, typer.Option("--profile", metavar="NAME", help=f"Size of the domains: {', '.join(PROFILES)}.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Processes that share the work; the report does not depend on it. [as many as pay: one a core, on GPUs up "
        "to 8 a host; 1 for little work]",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine", metavar="NAME", help="Whose processes share the work: local, those of this machine, or ray."
    ),
]
Address = Annotated[
    str | None,
    typer.Option("--address", metavar="HOST:PORT", help="Of the Ray cluster, with --engine ray. [auto: the one here]"),
]
JournalFile = Annotated[
    str | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help="Where jobs are recorded as they finish, so that --resume goes on. [beside --json, FILE.journal, which "
        "is removed when the report is complete]",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on where the journal ends, whatever ended it; another source, environment or selection is refused.",
    ),
]
ShardOf = Annotated[
    str | None,
    typer.Option("--shard", metavar="I/N", help="Part I of N of the jobs; `verify merge` joins the reports of all."),
]
KeepCode = Annotated[
    str | None,
    typer.Option(
        "--keep-code",
        metavar="DIR",
        help="Keep the code, arguments and memory of each Triton kernel that lowerings launch, for `verify replay`.",
    ),
]
Triples = Annotated[
    bool,
    typer.Option(
        "--triples",
        help="Under --profile exhaustive: kernels of three 16-bit inputs on all 2^48 triples, not a part of them. "
        "Hours on GPUs, years on a CPU, unless --shard I/N does a part.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the domains.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", "--kernel", metavar="PATTERN", help="Kernels, names or shell patterns; repeatable. [all]"),
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=0, help="How many rows of each kind to print; 0 prints all.")
]
Markdown = Annotated[
    str | None,
    typer.Option("--markdown", metavar="FILE", help="Also write GitHub Markdown; '-' is standard output."),
]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Also write the facts as JSON; '-' is standard output."),
]
Reports = Annotated[list[str], typer.Argument(metavar="REPORT...", help="Reports of `verify run` or `verify kernel`.")]
BaselineDir = Annotated[
    str,
    typer.Option("--baseline", metavar="DIR", help="Accepted results, with one folder for each device."),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (those of the process by default) and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal's encoding lacks
    # torch's threads would spin where they wait; beside another program that takes a second for each millisecond
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="verify", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        # the reader has gone, as in `verify run --json - | head -1`; typer makes an exit with code 1 of that
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except UsageError as error:
        return _complain(error, USAGE)
    except NothingToCompare as error:
        return _complain(error, NOTHING)
    except OracleError as error:
        return _complain(error, ORACLE_VIOLATION)
    except _CommandLineError as error:
        return _complain(error.format_message(), USAGE)
    return code or 0


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
    timeout: Timeout = 60.0,
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
        if amount is not None and not 0 < amount < math.inf:
            raise UsageError(f"{option} {amount:g}; expected a number above 0")
    here = engine == "local" and jobs in (None, 1)
    selection = _selection(wanted, backend, dtype, lowering, spelling, scalar, profile, seed, setting, algorithm, here)
    selection = dataclasses.replace(selection, timeout=timeout, memory=memory, triples=_triples(triples, profile))
    if length and not invariance:
        raise UsageError("--length is for --invariance; the shape of rows is given by --set")
    if invariance:
        _invariance(selection, tuple(length or (64, 1000, 4096)), json_file)
        return
    _keep_code(keep_code)
    how = _how(jobs, engine, address, shard, journal, resume, json_file)
    raise typer.Exit(
        _walk("kernel", selection, json_file, lambda report: [kernel_page(report, n) for n in wanted], how)
    )


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
    _keep_code(keep_code)
    here = engine == "local" and jobs in (None, 1)
    selection = _selection(tuple(names()), backend, dtype, lowering, spelling, None, profile, seed, here=here)
    selection = dataclasses.replace(selection, triples=_triples(triples, profile))
    out = out or "-".join(["report", *(backend or ())]) + ".json"
    raise typer.Exit(
        _walk(
            "run",
            selection,
            out,
            lambda report: [run_page(report)],
            _how(jobs, engine, address, shard, journal, resume, out),
        )
    )


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

    Each is compiled with fp fusion (contraction of products into sums) permitted and not; differences between targets
    and flags are told in words. dtype: float32 unless given.
    """
    _known("dtype", dtype or (), DTYPES)
    _ensure_writable(json_file)
    from verify import audit as audited
    from verify import backends
    from verify.reports.rows import audit_page

    own = [text for text in lowering or () if is_file(text)]
    chosen = [text for text in lowering or () if not is_file(text)]
    before = None if baseline is None else audited.accepted(_read(baseline))
    each = audited.asked(name or names(), target.split(","), dtype or (), chosen, own)
    with shown() as progress:
        rows = audited.audit(each, jobs or backends.cores(), progress)
    told = audited.differences(rows)
    document = {"schema": audited.SCHEMA, "rows": [row.record() for row in rows],
                "differences": [{"kernel": k, "lowering": one, "dtype": d, "told": t}
                                for (k, one, d), t in told.items()]}  # fmt: skip
    lines = [] if before is None else audited.changed(rows, before)
    _tell([audit_page(rows, told, None if before is None else lines)], _json(document), None, json_file)
    if not any(row.census for row in rows):
        raise NothingToCompare(f"nothing was compiled: {rows[0].reason if rows else 'no lowering exists here'}")
    raise typer.Exit(FAILED if lines else 0)


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
    _ensure_writable(json_file)
    from verify.reports.rows import replay_page
    from verify.virtual.replay import replay as replayed

    found = list(replayed(Path(folder)))
    document = {"schema": 1, "launches": [one.record() for one in found]}
    _tell([replay_page(found)], _json(document), None, json_file)
    if all(one.reason for one in found):
        raise NothingToCompare(f"nothing was replayed: {found[0].reason}")
    raise typer.Exit(FAILED if any(one.differing for one in found) else 0)


@app.command()
def merge(
    report: Annotated[list[str], typer.Argument(metavar="REPORT...", help="The reports of all shards of a run.")],
    out: Annotated[str, typer.Option("--out", "-o", "--json", metavar="FILE", help="The report of the whole run.")],
) -> None:
    """Reports of `--shard 1/N` to `N/N` as the one that the whole run would have written.

    Also parts that were run kernel by kernel. They must be of one environment, profile and seed.
    """
    from verify.merge import merged
    from verify.reports import store

    store.ensure_writable(out)
    whole = merged([store.read(file) for file in report])
    store.write(whole, out)
    if whole.cells:
        _print(run_page(whole), sys.stderr if out == "-" else sys.stdout)
    _tell_parts(whole)
    code = exit_code(whole)
    if whole.shard is not None:
        left = whole.shard.of - 1 - len(whole.shard.others)
        told = f"{left} of {whole.shard.of} shards are missing; what is there is in {out}, to be merged with them"
        code = combined([code, _complain(told, USAGE)])
    raise typer.Exit(code)


@app.command("list")
def list_() -> None:
    """The registered kernels."""
    from verify.lowerings import lowering_names

    kernels = [load(name) for name in names()]
    _print(list_page(kernels, {k.name: lowering_names(k) for k in kernels}), sys.stdout)


@app.command()
def show(
    name: Name,
    stub: Annotated[
        bool, typer.Option("--stub", help="Print a lowering of your own to start from: FILE.py:NAME.")
    ] = False,
) -> None:
    """One kernel's facts: cases, formulas, bounds, special values, and how a lowering of your own is called.

    With the source of each bound and special value, the spellings, lowerings and properties.
    """
    from verify import stubs
    from verify.lowerings import lowering_names

    kernel = load(name)
    if stub:
        print(stubs.source(kernel), end="")
    else:
        _print(show_page(kernel, lowering_names(kernel), stubs.terms(kernel)), sys.stdout)


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
    composite = isinstance(load(name), Composite)
    _known("dtype", [dtype], DTYPES + NARROW)
    if composite and (index is None or values is not None):
        raise UsageError(f"{name} is a composite kernel: expected --index N, the place in its output, and no --input")
    if not composite and (values is None or index is not None or output is not None or setting):
        raise UsageError(
            f"{name} is an elementwise kernel: expected --input HEX,HEX... and no --index, --output, --set"
        )
    _begin(lowering)
    from verify import explain as take_apart
    from verify.reports import store

    if json_file is not None:
        store.ensure_writable(json_file)
    chosen = tuple(lowering or ())
    if composite:
        told = take_apart.explain_place(
            name,
            index or 0,
            output=output,
            spelling=spelling[0] if spelling else None,
            setting=_setting(setting or ()),
            dtype=dtype,
            scalars=_scalars(scalar),
            lowerings=chosen,
            backend=backend,
            seed=seed,
        )
        page = explain_place_page(told)
    else:
        told = take_apart.explain(
            name,
            [value.strip() for value in (values or "").split(",")],
            dtype=dtype,
            scalars=_scalars(scalar),
            lowerings=chosen,
            spellings=tuple(spelling or ()),
            backend=backend,
        )
        page = explain_page(told)
    if json_file is not None:
        store.write_text([json.dumps(told, indent=1, allow_nan=False), "\n"], json_file)
    _print(page, sys.stderr if json_file == "-" else sys.stdout)


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
    for file in filter(None, files):
        store.ensure_writable(file)
    from verify.reports import ci, markdown, oss_benchmark
    from verify.reports import gate as gates

    statuses = [status.strip() for text in fail_on or () for status in text.split(",")]
    outcome = gates.gate(report, baseline, statuses or gates.FAIL_ON, allow or (), only or ())
    page = gates.gate_page(outcome)
    if json_file is not None:
        store.write_text([json.dumps(gates.as_json(outcome), indent=1), "\n"], json_file)
    if markdown_file is not None:
        store.write_text(markdown.lines(page), markdown_file)
    if sarif_file is not None:
        store.write_text([json.dumps(ci.sarif(outcome), indent=1), "\n"], sarif_file)
    if oss_benchmark_file is not None:
        store.write_text(oss_benchmark.lines(report), oss_benchmark_file)
    if summary and not ci.append_summary(page):
        print("verify: GITHUB_STEP_SUMMARY is not set; no step summary was written", file=sys.stderr)
    stream = sys.stderr if "-" in files else sys.stdout
    with ci.commands_stopped(stream, always=annotations):
        _print(page, stream)
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

    Reports with oracle violations, errors, or errors beyond a bound that is not allowed are refused as a whole.
    """
    from verify.reports import accept as accepting

    try:
        done = accepting.accept(report, baseline, allow or (), reason, prune)
    except accepting.Refused as refused:
        _print(accepting.refused_page(refused), sys.stderr)
        raise typer.Exit(refused.code) from None
    _print(accepting.accept_page(done), sys.stdout)


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
    _known("dtype", dtype or (), DTYPES + NARROW)
    from verify.reports import compare as comparing
    from verify.reports import store
    from verify.reports.rows import compare_page, exchange_page

    if exchange is not None and exchange_from is not None:
        raise UsageError("--exchange writes this machine's outputs, --exchange-from reads another's: give one of them")
    _ensure_writable(markdown_file, json_file)
    if exchange is not None:
        store.ensure_writable(exchange)
    with store.no_collection():
        found = comparing.compare(comparing.load(files, only or (), dtype or (), lowering or ()))
        pages, further = [compare_page(found, every, limit or None)], {}
    if exchange is not None or exchange_from is not None:
        from verify import recompute
        from verify.reports.exchange import as_json

        with shown() as progress:
            act = recompute.resolve if exchange is None else recompute.write
            told = act(found, path := exchange or exchange_from or "", progress)
        pages.append(exchange_page(found, told, path))
        further["exchange"] = as_json(told)
    _tell(pages, comparing.json_lines(found, every, **further), markdown_file, json_file)


@app.command()
def history(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Reports (*.json), in its subfolders too.")],
    kernel: Only = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="TEXT", help="Part of the name of a backend, chip or capability; repeatable."),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option("--sql", metavar="SELECT", help="Run a query on the view `cells` (docs/history.md) instead."),
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
    from verify.reports.rows import history_page, query_page

    if sql is not None and (kernel or device):
        raise UsageError("--sql makes its own selection: write WHERE kernel = '...' instead of --kernel and --device")
    _ensure_writable(markdown_file, json_file)
    with store.no_collection():
        archive = past.read(folder)
    for why in archive.skipped:
        _complain(f"skipped: {why}", USAGE)
    if sql is not None:
        names, rows = past.query(archive, sql)
        _tell([query_page(names, rows)], _json(past.answer_json(names, rows)), markdown_file, json_file)
        return
    found = past.changes(archive, kernel or (), device or ())
    _tell([history_page(found, limit or None)], _json(past.as_json(archive, found)), markdown_file, json_file)
    if not found.series:
        raise NothingToCompare("nothing to compare: no cell ran in two reports of one device, profile and seed")


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
    _ensure_writable(html_file, markdown_file)
    from verify.reports import html, markdown, store

    if html_file is not None:
        print(printable(html.write(files, html_file, baseline)), file=sys.stderr)
    if markdown_file is not None:
        pages = [run_page(_summarized(file)) for file in files]
        store.write_text((line for page in pages for line in markdown.lines(page)), markdown_file)


def _summarized(file: str) -> Report:
    """The report with what `run_page` needs of it: 100,000 cells as they are would take 3 GB."""
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


def exit_code(report: Report) -> int:
    """The code of a finished run: that of its cells by `verify.judge.status`, 3 where none ran. A user's own lowering
    that misbehaves (status error) is bad input."""
    parts = report.shard.parts if report.shard else []
    nothing = not parts and all(cell.status == "not-run" for cell in report.cells)
    of_parts = (status_code(part.status, user=is_file(part.lowering)) for part in parts)
    return combined([*(NOTHING for _ in range(nothing)), *map(code_of, report.cells), *of_parts])


def _tell_parts(report: Report) -> None:
    """How far sweeps are that shards divide, and what was found of them so far."""
    for part in report.shard.parts if report.shard else ():
        scalars = "".join(f" {name}={value!r}" for name, value in part.scalars.items())
        name = f"{part.kernel}{scalars} {part.backend} {part.dtype} {part.lowering} {part.spelling}"
        first = int(part.found["start"])  # type: ignore[arg-type]
        told = f"{100 * part.inputs / part.size:.4g}% of its {part.size} inputs are judged, from element {first}"
        print(f"verify: {printable(f'{name}: {told}; {part.status} so far')}", file=sys.stderr)
        if part.reason:
            print(f"verify: {printable(part.reason)}", file=sys.stderr)


def _walk(verb: str, selection: Selection, out: str | None, pages: Callable[[Report], list[Page]], how: _How) -> int:
    """Run the selection, write the report, print its pages, and return the exit code."""
    from verify.reports import store

    if out is not None:
        store.ensure_writable(out)
    if how.journal is None:
        return _walk_with(None, verb, selection, out, pages, how)
    from verify.jobs import journal
    from verify.run import identity

    head = {**identity(selection), "shard": f"{how.shard[0]}/{how.shard[1]}"}
    with journal.opened(how.journal, head, resume=how.resume) as kept:
        return _walk_with(kept, verb, selection, out, pages, how)


def _walk_with(
    journal: Journal | None, verb: str, selection: Selection, out: str | None, pages: Callable[[Report], list[Page]],
    how: _How,
) -> int:  # fmt: skip
    from verify.jobs.cluster import Cluster
    from verify.reports import store
    from verify.reports.schema import Cell, Report
    from verify.run import Broken, run

    stop = _Stop()
    further = "" if journal is None else "; go on with --resume"
    on = (
        None
        if how.address is None
        else Cluster(how.address, lambda line: print(f"verify: {printable(line)}", file=sys.stderr))
    )

    def plan() -> list[Kinds]:
        return _plan(selection, how.shard, journal.known if journal else ())

    try:
        for line in _ahead(selection, how):
            print(f"verify: {line}", file=sys.stderr)
        with _terminable() as stop, shown(plan) as progress:
            # Validating cell by cell stops at the first that breaks the schema, not after the last.
            raw = run(
                selection, on_cell=Cell.model_validate, progress=progress, workers=how.jobs, shard=how.shard,
                journal=journal, on=on,
            )  # fmt: skip
    except KeyboardInterrupt:
        return _complain(f"{stop.word} before a cell was complete; nothing was written", stop.code)
    except Broken as broken:
        raw = broken.report
        if out is not None and raw["cells"]:
            store.write(Report.model_validate({**raw, "command": _command(verb, selection, raw["environment"])}), out)
            kept = "standard output" if out == "-" else out
            _complain(f"{broken}; {len(raw['cells'])} complete cells are kept in {kept}", FAILED)
        raise
    report = Report.model_validate({**raw, "command": _command(verb, selection, raw["environment"])})
    if report.interrupted and not report.cells:
        return _complain(f"{stop.word} before a cell was complete; nothing was written", stop.code)
    if out is not None:
        store.write(report, out)
        if journal is not None and how.temporary and not report.interrupted:
            journal.remove()
    code = exit_code(report)
    if code != NOTHING:
        for page in pages(report) if report.cells else ():
            _print(page, sys.stderr if out == "-" else sys.stdout)
        _tell_parts(report)
    if report.interrupted:
        kept = "standard output" if out == "-" else out or "the table only; --json FILE keeps them in a file"
        return _complain(f"{stop.word}; {len(report.cells)} complete cells are kept in {kept}{further}", stop.code)
    if out not in (None, "-"):
        print(f"report: {out}", file=sys.stderr)
    if code == NOTHING:
        reasons = dict.fromkeys(f"{cell.backend}: {cell.reason}" for cell in report.cells)
        return _complain(f"nothing was compared: {'; '.join(reasons) or 'no cell matches the options'}", NOTHING)
    if code == USAGE:
        errors = [cell for cell in report.cells if cell.status == "error" and is_file(cell.lowering)]
        for line in dict.fromkeys(f"{cell.lowering}: {cell.reason}" for cell in errors):
            _complain(line, USAGE)
    return code


class _How(NamedTuple):
    """How a run is done. address: of a Ray cluster; temporary: the journal goes when the report is complete."""

    jobs: int | None
    address: str | None
    shard: tuple[int, int]
    journal: str | None
    resume: bool
    temporary: bool


def _how(
    jobs: int | None, engine: str, address: str | None, shard: str | None, journal: str | None, resume: bool,
    out: str | None,
) -> _How:  # fmt: skip
    _known("engine", [engine], ENGINES)
    if address and engine != "ray":
        raise UsageError("--address is for --engine ray")
    index, slash, of = (shard or "1/1").partition("/")
    if not (slash and index.isdecimal() and of.isdecimal() and 1 <= int(index) <= int(of)):
        raise UsageError(f"--shard {shard!r}; expected I/N with I from 1 to N, such as 2/8")
    beside = f"{out}.journal" if out not in (None, "-", os.devnull) else None
    if resume and not (journal or beside):
        raise UsageError("--resume needs the journal of the run: give --json FILE or --journal FILE as it had")
    return _How(
        jobs,
        (address or "auto") if engine == "ray" else None,
        (int(index), int(of)),
        journal or beside,
        resume,
        journal is None,
    )


def _selection(
    kernels: tuple[str, ...],
    backends: list[str] | None,
    dtypes: list[str] | None,
    lowerings: list[str] | None,
    spellings: list[str] | None,
    scalars: list[str] | None,
    profile: str,
    seed: int,
    settings: list[str] | None = None,
    algorithm: str = "",
    here: bool = True,
) -> Selection:
    """The options as a `verify.run.Selection`; names that need no torch are checked before it is imported. here: this
    process may do the jobs."""
    for name in kernels:
        load(name)
    _known("dtype", dtypes or (), DTYPES + NARROW)
    _known("profile", [profile], PROFILES)
    given, setting = _scalars(scalars), _setting(settings or ())
    _begin(lowerings, here=here)
    from verify.run import Selection

    return Selection(
        kernels=kernels,
        backends=tuple(backends or ()),
        dtypes=tuple(dtypes or ()),
        lowerings=tuple(text for text in lowerings or () if not is_file(text)),
        spellings=tuple(spellings or ()),
        profile=profile,
        user_lowerings=tuple(text for text in lowerings or () if is_file(text)),
        scalars=given,
        seed=seed,
        setting=setting,
        algorithm=algorithm,
    )


def _begin(lowerings: Iterable[str] | None, *, here: bool = True) -> None:
    """Look at the users' files among the lowerings, and let their processes import torch while this one does (here:
    where this one runs them)."""
    from verify import standby
    from verify.lowerings import examine

    own = [text for text in lowerings or () if is_file(text)]
    for text in own:
        examine(text)
    if here and own:
        standby.prepare(len(own))


def _triples(given: bool, profile: str) -> bool:
    if given and profile != "exhaustive":
        raise UsageError(f"--triples is for --profile exhaustive; the profile is {profile}")
    return given


def _invariance(selection: Selection, lengths: tuple[int, ...], json_file: str | None) -> None:
    """`verify kernel NAME --invariance`."""
    from verify import invariance
    from verify.reports import store

    if json_file is not None:
        store.ensure_writable(json_file)
    with shown() as progress:
        found = invariance.walk(selection, lengths, progress)
    if json_file is not None:
        store.write_text([json.dumps(found, indent=1), "\n"], json_file)
    _print(invariance_page(found["rows"]), sys.stderr if json_file == "-" else sys.stdout)


def _command(verb: str, selection: Selection, environment: Mapping[str, Any]) -> str:
    """The command that repeats a run: variables, options in a fixed order, no output file."""
    words = ["verify", verb, *(selection.kernels if verb == "kernel" else ())]
    for option in ("backend", "dtype", "lowering", "spelling"):
        for value in getattr(selection, f"{option}s"):
            words += [f"--{option}", value]
    for value in selection.user_lowerings:
        words += ["--lowering", value]
    if selection.algorithm:
        words += ["--algorithm", selection.algorithm]
    words += ["--scalar", "none"] if selection.scalars == {} else []
    for name, number in (selection.scalars or {}).items():
        words += ["--scalar", f"{name}={number!r}"]
    for name, text in (selection.setting or {}).items():
        words += ["--set", f"{name}={text}"]
    defaults = type(selection)(())
    for option in ("timeout", "memory"):
        if (amount := getattr(selection, option)) != getattr(defaults, option):
            words += [f"--{option}", f"{amount:g}"]
    words += ["--profile", selection.profile, *["--triples"][: selection.triples], "--seed", str(selection.seed)]
    variables = "".join(dict.fromkeys(assignments(fingerprint) for fingerprint in environment.values()))
    return variables + shlex.join(words).encode(errors="backslashreplace").decode()


def _scalars(texts: list[str] | None) -> dict[str, float] | None:
    """'name=value' options as numbers; {} for 'none', None where there are none."""
    found: dict[str, float] = {}
    if texts == ["none"]:
        return found
    for text in texts or ():
        name, equals, literal = text.partition("=")
        try:
            value = float.fromhex(literal) if "0x" in literal.lower() else float(literal)
        except (ValueError, OverflowError):
            value = math.nan
        if not (name.isidentifier() and equals and math.isfinite(value)):
            raise UsageError(f"--scalar {text!r}; expected NAME=VALUE with a finite number, such as value=0.3")
        found[name] = value
    return found or None


def _setting(texts: Sequence[str]) -> dict[str, str] | None:
    """'name=text' options; None where there are none."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.isidentifier() and equals and value):
            raise UsageError(f"--set {text!r}; expected NAME=VALUE, such as dim=0 (`verify show NAME` lists the names)")
        found[name] = value
    return found or None


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None


def _keep_code(folder: str | None) -> None:
    """By a variable, which worker processes inherit."""
    from verify.virtual import keep

    if folder is not None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--keep-code {folder}: {error.strerror}; expected a folder to write to") from None
        os.environ[keep.VARIABLE] = str(Path(folder).resolve())


def _ensure_writable(*files: str | None) -> None:
    """Raise UsageError unless each file that is given can be written, and at most one is standard output."""
    from verify.reports import store

    if files.count("-") > 1:
        raise UsageError("'-' is standard output: only one file can be written there")
    for file in files:
        if file is not None:
            store.ensure_writable(file)


def _json(facts: dict[str, Any]) -> Iterator[str]:
    yield json.dumps(facts, indent=1, allow_nan=False) + "\n"


def _tell(pages: Sequence[Page], document: Iterable[str], markdown_file: str | None, json_file: str | None) -> None:
    """Write the document and the pages, and print the pages: on standard error where a file is standard output."""
    from verify.reports import markdown, store

    if json_file is not None:
        store.write_text(document, json_file)
    if markdown_file is not None:
        store.write_text((line for page in pages for line in (*markdown.lines(page), "\n")), markdown_file)
    for page in pages:
        _print(page, sys.stderr if "-" in (json_file, markdown_file) else sys.stdout)


def _known(what: str, given: Sequence[str], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise UsageError(suggest(what, name, known))


def _print(page: Page, file: TextIO) -> None:
    from verify.reports.terminal import print_page

    print_page(page, file)


def _complain(problem: object, code: int) -> int:
    """One line on standard error, whatever the message holds; returns `code`."""

    print(f"verify: {printable(' '.join(str(problem).split()))}", file=sys.stderr)
    return code


def _plan(selection: Selection, shard: tuple[int, int], known: Container[int]) -> list[Kinds]:
    """The jobs of a selection, as their times may be likened to one another's; nothing for those not to be done."""
    from verify import backends
    from verify.run import Task, jobs_of, planned

    present = [one for one in map(backends.load, selection.backends or backends.names()) if not one.unavailable()]

    def kinds(task: Task) -> Kinds:
        job = jobs[task.job]
        name, target = job.lowering.name, job.target
        family = "elementwise" if job.setting is None else "composite"
        if task.elements is not None:
            return f"{job.label} ranges", f"{target.kernel.name} ranges", "ranges"
        return () if job.reason else (f"{target.kernel.name} {target.dtype} {name}", f"{family} {name}", name)

    jobs = [job for backend in present for job in jobs_of(selection, backend)]
    tasks = planned(jobs, selection, *shard).tasks
    return [() if number in known else kinds(task) for number, task in enumerate(tasks)]


#: Triples that are judged a second: what one core of a Xeon does (16-bit lerp, November 2026), and what is asked of a
#: GPU.
TRIPLES_CPU, TRIPLES_GPU = 1e7, 1e11


def _ahead(selection: Selection, how: _How) -> Iterator[str]:
    """What is to be known before an exhaustive run begins: how long triples take, or that not all of them are taken."""
    if selection.profile != "exhaustive":
        return
    from verify import backends

    facts = [one for one in map(load, selection.kernels) if isinstance(one, Kernel)]
    narrow = {"float16", "bfloat16"} & set(selection.dtypes or DTYPES)
    three = [one.name for one in facts if any(len(one.tensors(scalars)) == 3 for scalars in one.cases)]
    if not selection.triples:
        if narrow and three:
            yield f"16-bit {', '.join(three)}: 2^24 of 2^48 triples are drawn; --triples takes all of them"
        return
    from verify.run import jobs_of, planned

    present = [one for one in map(backends.load, selection.backends or backends.names()) if not one.unavailable()]
    for backend in present:
        jobs = list(jobs_of(selection, backend))
        plan = planned(jobs, selection, *how.shard)
        spans = [(task.job, len(task.elements)) for task in plan.tasks if task.elements is not None]
        sizes = [plan.sweeps[job].size == 1 << 48 and size for job, size in spans]
        if not (count := sum(sizes)):
            continue
        cells = len({job for (job, _), size in zip(spans, sizes, strict=True) if size})
        cores = how.jobs or backends.cores()
        seconds, where = count / TRIPLES_GPU, f"on a GPU that does {TRIPLES_GPU:.0e} a second"
        if backend.name == "cpu":
            seconds, where = count / TRIPLES_CPU / cores, f"on {cores} cores, at {TRIPLES_CPU:.0e} a second each"
        told = f"{cells} cell{'s'[: cells > 1]} of three 16-bit inputs: {count // cells} of 2^48 triples"
        yield f"{backend.name}: {told}{' each'[: 5 * (cells > 1)]}, some {spoken(seconds)} {where}"


class _Stop:
    """How a run was stopped: the word for it and the exit code."""

    word, code = "interrupted", INTERRUPTED


@contextlib.contextmanager
def _terminable() -> Iterator[_Stop]:
    """Inside, SIGTERM stops a run as Ctrl-C does, so that complete cells are kept."""
    stop = _Stop()

    def terminate(number: int, frame: object) -> None:
        stop.word, stop.code = "terminated", TERMINATED
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread may say what signals do
        yield stop
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
