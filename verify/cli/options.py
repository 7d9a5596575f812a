"""The options of the commands, and what their texts mean."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verify.facts.kernel import DTYPES, NARROW, PROFILES, UsageError, is_file, load, names, suggest

if TYPE_CHECKING:
    from verify.walk.plan import Selection

ENGINES = ("local", "ray")
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
#: The largest seconds and GiB that are taken: poll(2) waits less than 2^31 ms, and setrlimit(2) takes less than 2^63 B.
MOST = {"timeout": 1e6, "memory": 1e9}


def ensure_amount(name: str, shown: str, amount: object) -> None:
    """Raise UsageError unless it is a number that `timeout` or `memory` may be."""
    if not (isinstance(amount, int | float) and 0 < amount <= MOST[name]):
        raise UsageError(f"{shown}; expected a number above 0, {MOST[name]:,.0f} at most")


Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", help="For a launch of your own lowering, not counting compilation. [60]"
    ),
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
        help="Processes that share the work; the report does not depend on it. [as many as pay: one a core, with GPUs "
        "at most 16 for each, and one for 8 GiB of its memory; 1 for little work]",
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
        help="Continue where the journal ends; refused if sources, environment or selection differ.",
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


def selection_of(
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
    jobs: int | None = 1,
) -> Selection:
    """The options as a `verify.walk.plan.Selection`; names that need no torch are checked before it is imported.
    here, jobs: as `begin` has them."""
    for name in kernels:
        load(name)
    ensure_known("dtype", dtypes or (), DTYPES + NARROW)
    ensure_known("profile", [profile], PROFILES)
    given, setting = scalars_of(scalars), setting_of(settings or ())
    _distinct([text for text in lowerings or () if is_file(text)])
    compiling = () if len(kernels) == 1 or lowerings else ("cpu",) if not backends else tuple(backends)
    begin(lowerings, here=here, jobs=jobs, compiling=compiling)
    from verify.processes import start

    with start.importing():
        from verify.walk.plan import Selection
    return Selection(
        kernels=kernels,
        backends=tuple(dict.fromkeys(backends or ())),
        dtypes=tuple(dict.fromkeys(dtypes or ())),
        lowerings=tuple(text for text in lowerings or () if not is_file(text)),
        spellings=tuple(spellings or ()),
        profile=profile,
        user_lowerings=tuple(dict.fromkeys(text for text in lowerings or () if is_file(text))),
        scalars=given,
        seed=seed,
        setting=setting,
        algorithm=algorithm,
    )


def begin(
    lowerings: Iterable[str] | None, *, here: bool = True, jobs: int | None = 1, compiling: Collection[str] = ()
) -> None:  # fmt: skip
    """Examine the users' files among the lowerings, and let the processes that the run will take import torch while
    this one does. here: whether they are of this machine; jobs: how many processes do the jobs, None: as many as
    pay; compiling: the backends for which they are to import Inductor too."""
    from verify import backends, native
    from verify.lower.user import examine
    from verify.processes import standby

    own = [text for text in lowerings or () if is_file(text)]
    for text in own:
        examine(text)
    if here and (own or (jobs != 1 and (jobs or backends.cores()) > 1)):
        modules = ["torch._inductor.compile_fx"] if compiling else []
        standby.prepare(*modules, *(["torch._inductor.codegen.cpp"] if "cpu" in compiling else []))
    if here:
        native.begin()


def sources_of(texts: Iterable[str]) -> list[Path]:
    """The files of the users' functions, which no output may replace."""
    from verify.lower.user import sources

    return [path for text in texts for path in sources(text).values()]


def triples_of(given: bool, profile: str) -> bool:
    if given and profile != "exhaustive":
        raise UsageError(f"--triples is for --profile exhaustive; the profile is {profile}")
    return given


def scalars_of(texts: list[str] | None) -> dict[str, float] | None:
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
        _once("--scalar", name, found)
        found[name] = value
    return found or None


def _once(option: str, name: str, found: Mapping[str, object]) -> None:
    if name in found:
        raise UsageError(f"{option} gives {name} twice; expected one value of each, one command for each case")


def _distinct(texts: Iterable[str]) -> None:
    """Raise UsageError where a report could not tell two functions apart: it knows files by name, without folders."""
    known: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        name = Path(text).name
        if (other := known.setdefault(name, text)) != text:
            raise UsageError(f"--lowering {other} and {text} are both {name} in a report; rename one of the files")


def setting_of(texts: Sequence[str]) -> dict[str, str] | None:
    """'name=text' options; None where there are none."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.isidentifier() and equals and value):
            raise UsageError(f"--set {text!r}; expected NAME=VALUE, such as dim=0 (`verify show NAME` lists the names)")
        _once("--set", name, found)
        found[name] = value
    return found or None


def keep_launches(folder: str | None) -> None:
    """Set the folder as an environment variable, which worker processes inherit."""
    from verify.virtual import keep

    if folder is not None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--keep-code {folder}: {error.strerror}; expected a folder to write to") from None
        os.environ[keep.VARIABLE] = str(Path(folder).resolve())


def ensure_known(what: str, given: Sequence[str], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise UsageError(suggest(what, name, known))
