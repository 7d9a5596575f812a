"""The package and the rules its sources keep: what the wheel holds, who imports what, where devices are named."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import verify
from verify.__main__ import MACHINE, NEEDED

ROOT = Path(__file__).resolve().parent.parent
LINKED = ("kernels", "oracles", "reports")  # top-level folders, reached only through verify
SOURCES = ("verify", *LINKED)
DATA = {".cpp", ".css", ".csv", ".h", ".html", ".js", ".json", ".toml"}
DEVICE = re.compile(r"(cuda|hip|mps|rocm|xpu)(:\d+)?")


def python_files(*folders: str) -> list[Path]:
    """Every source file once, at its real place: the links in verify/ are not followed."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py") if not _through_link(path))


def _through_link(path: Path) -> bool:
    return any(parent.is_symlink() for parent in path.parents if ROOT in parent.parents)


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(module, line) of every absolute import; `from a import b` gives 'a'."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or "", node.lineno


def device_literals(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(literal, line) of strings that name a device, and of torch.cuda and the like.

    `backend="cuda"` names a file of verify/backends, as a bound must, and is no device.
    """
    backends = {
        id(k.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for k in node.keywords
        if k.arg == "backend"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if DEVICE.fullmatch(node.value) and id(node) not in backends:
                yield repr(node.value), node.lineno
        elif isinstance(node, ast.Attribute) and DEVICE.fullmatch(node.attr) and ast.unparse(node.value) == "torch":
            yield f"torch.{node.attr}", node.lineno


def places(findings: Iterator[tuple[str, int]], path: Path) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{line}: {what}" for what, line in findings]


# --- the wheel ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clean_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as a fresh clone would have it: no caches and no ignored files, links kept."""
    copy = tmp_path_factory.mktemp("clean") / "ulproof"
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("needs a git checkout to tell the repository's own files")
    for name in filter(None, listing.stdout.split("\0")):
        source, target = ROOT / name, copy / name
        if source.is_symlink() or source.exists():  # not where it is deleted and the deletion not yet committed
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return copy


@pytest.fixture(scope="module")
def archives(clean_copy: Path) -> Path:
    """Holds `direct/`, the wheel as pip and tox build it, and `sdist/`, an sdist and the wheel built from that."""
    for module in ("build", "hatchling"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module} to build the wheel: pip install -c constraints.txt '.[test]'")
    out = clean_copy.parent
    build = [sys.executable, "-m", "build", "--no-isolation"]
    for arguments in (["--wheel", "--outdir", out / "direct"], ["--outdir", out / "sdist"]):
        subprocess.run([*build, *arguments, clean_copy], check=True, stdout=subprocess.DEVNULL)
    return out


def wheel_names(archives: Path, kind: str = "direct") -> set[str]:
    [wheel] = (archives / kind).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_installs_nothing_but_verify(archives: Path) -> None:
    top = {name.partition("/")[0] for name in wheel_names(archives)}
    assert {name for name in top if not name.endswith(".dist-info")} == {"verify"}


def test_sdist_gives_the_same_wheel(archives: Path) -> None:
    assert wheel_names(archives, "sdist") == wheel_names(archives, "direct")


def test_wheel_holds_every_source_and_data_file(clean_copy: Path, archives: Path) -> None:
    expected = set()
    for folder in SOURCES:
        for path in (clean_copy / folder).rglob("*"):
            if path.suffix in DATA | {".py"} and not any(p.is_symlink() for p in path.relative_to(clean_copy).parents):
                name = path.relative_to(clean_copy).as_posix()
                expected.add(name if folder == "verify" else f"verify/{name}")
    assert {"verify/kernels/__init__.py", "verify/oracles/__init__.py", "verify/reports/__init__.py"} <= expected
    assert expected - wheel_names(archives) == set()


def test_wheel_installs_the_command(archives: Path) -> None:
    [wheel] = (archives / "direct").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith("entry_points.txt")]
        assert "verify = verify.__main__:process" in archive.read(name).decode()


def test_sdist_holds_the_linked_folders_once(archives: Path) -> None:
    [sdist] = (archives / "sdist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = {member.name.partition("/")[2] for member in members}
    for folder in LINKED:
        assert f"verify/{folder}/__init__.py" in names
        assert not any(name.startswith(f"{folder}/") for name in names)
    assert not any(member.issym() for member in members), "links would break where an archive is unpacked without them"


@pytest.mark.skipif("ULPROOF_INSTALLED" not in os.environ, reason="tests the working tree, not an installed wheel")
def test_the_installed_wheel_is_what_is_tested() -> None:
    assert ROOT / "verify" not in Path(verify.__file__).parents


# --- installing --------------------------------------------------------------------------------------------------


def requirements() -> dict[str, list[str]]:
    """Names of the distributions that are required, by extra; '' those that are always."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [re.split(r"[^\w.-]", text)[0] for text in texts] for extra, texts in named.items()}


def test_installing_leaves_the_machines_torch_alone() -> None:
    """Nothing that is always required needs torch, triton or a CUDA library, itself or by what it requires."""
    seen, ahead = set(), list(requirements()[""])
    while ahead:
        name = re.sub(r"[-_.]+", "-", ahead.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # for another Python or platform
            continue
        ahead += [re.split(r"[^\w.-]", line)[0] for line in lines if "extra ==" not in line]
    assert len(seen) > 12, "nothing was followed"
    assert not [name for name in seen if re.match("torch|triton|pytorch-triton|nvidia", name)]
    assert set(requirements()["torch"]) == set(MACHINE)


BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
sys.argv = ["verify", *{arguments!r}]
import runpy
runpy.run_module("verify", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("names", "arguments"),
    [
        (("typer",), "list"),
        (("rich",), "list"),
        (("rich",), "show lerp"),
        (("mpmath",), "explain exp --input 1"),
        (("mpmath",), "kernel exp --profile quick --dtype float16 --backend cpu"),
        (("torch",), "kernel exp --profile quick"),
        (("torch", "triton"), "run --profile quick --out -"),
        (("pydantic", "pydantic_core"), "compare reports/recorded/cpu.json.xz reports/recorded/h200.json.xz"),
        (("pydantic", "pydantic_core"), "gate reports/recorded/cpu.json.xz --baseline reports/baselines"),
        (("pydantic", "pydantic_core"), "accept reports/recorded/cpu.json.xz --baseline nowhere"),
        (("pydantic", "pydantic_core"), "history reports/recorded"),
        (("pydantic", "pydantic_core"), "report reports/recorded/cpu.json.xz --markdown -"),
        (("pydantic", "pydantic_core"), "kernel exp --profile quick --dtype float16 --backend cpu"),
    ],
)
def test_a_missing_package_is_one_line_that_says_what_to_install(names: tuple[str, ...], arguments: str) -> None:
    program = BLOCKED.format(names=set(names), arguments=arguments.split())
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2, done.stderr[-600:]
    [line] = done.stderr.splitlines()
    assert re.fullmatch(rf"verify: .*\b{names[0]}\b.* not installed.*: python3 -m pip install .*{names[0]}.*", line)
    assert done.stdout == ""


def test_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    """As on a machine with torch alone: one line, not one after the other."""
    (tmp_path / "verify").symlink_to(ROOT / "verify")
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    program = f"{path}; from verify.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.endswith(f"not installed: python3 -m pip install {' '.join(NEEDED)}")


def test_what_is_needed_is_what_is_installed() -> None:
    assert set(requirements()[""]) == set(NEEDED)


def test_an_advice_against_python_3_13_0_is_no_failure() -> None:
    """Dynamo gives it at the first compilation under that Python, where tests take warnings for errors."""
    text = "Guards may run slower on Python 3.13.0. Consider upgrading to Python 3.13.1+."
    warnings.warn(text, RuntimeWarning, stacklevel=1)
    with pytest.raises(RuntimeWarning, match="another"):
        warnings.warn("another", RuntimeWarning, stacklevel=1)


def test_every_requirement_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0] for line in lines if "==" in line}
    names = {name.replace("_", "-").lower() for each in requirements().values() for name in each}
    assert names - pinned == set()
    assert [line for line in lines if line and not re.fullmatch(r"#.*|[a-z0-9-]+==[\w.]+", line)] == []


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml", "tox.ini", ".ci/run"])
def test_installation_names_no_host(name: str) -> None:
    assert not re.search(r"://|index-url|find-links", (ROOT / name).read_text())


def test_ci_runs_the_readme_test_command() -> None:
    readme = (ROOT / "README.md").read_text()
    [command] = re.findall(r"^    (.*&& \.venv/bin/tox)$", readme, re.MULTILINE)
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()
    assert "constraints.txt" in command


# --- rules for sources -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", python_files(*SOURCES, "tests", "bench"), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_linked_folders_are_imported_through_verify(path: Path) -> None:
    found = [(m, line) for m, line in imports(ast.parse(path.read_text())) if m.partition(".")[0] in LINKED]
    assert places(iter(found), path) == []


@pytest.mark.parametrize("path", python_files("oracles"), ids=lambda path: path.name)
def test_an_oracle_imports_only_its_vocabulary(path: Path) -> None:
    allowed = {
        "__future__",
        "collections.abc",
        "dataclasses",
        "fractions",
        "functools",
        "typing",
        "verify.facts.oracle",
    }
    found = [
        (module, line)
        for module, line in imports(ast.parse(path.read_text()))
        if module not in allowed and not module.startswith("verify.oracles")
    ]
    assert places(iter(found), path) == []


@pytest.mark.parametrize(
    "path",
    [p for p in python_files(*SOURCES) if p.parent not in (ROOT / "verify" / "backends", ROOT / "verify" / "virtual")],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_devices_are_named_in_backends_only(path: Path) -> None:
    found = device_literals(ast.parse(path.read_text()))
    if path.parent == ROOT / "kernels":  # facts: a table of bounds names the backends that they hold on
        found = ((what, line) for what, line in found if what.startswith("torch."))
    assert places(found, path) == []


@pytest.mark.parametrize("text", ['x.to("cuda")', "torch.cuda.synchronize()", 'd = "mps:0"', 'if kind == "hip": pass'])
def test_device_literals_are_seen(text: str) -> None:
    assert list(device_literals(ast.parse(text)))


@pytest.mark.parametrize("text", ['Bound(1.0, "ulp", "IEEE 754", backend="cuda")', '"""on cuda and mps"""', "cuda = 1"])
def test_backend_names_and_prose_are_no_device_literals(text: str) -> None:
    assert not list(device_literals(ast.parse(text)))


@pytest.mark.parametrize("path", python_files(*SOURCES), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_says_what_lives_in_it(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not tree.body or ast.get_docstring(tree), "a module starts with two or three lines on what it holds"
    assert path.name not in {"utils.py", "helpers.py", "common.py", "misc.py"}, "name a module after what it holds"


def test_facts_load_without_torch() -> None:
    """`verify list` and `verify show` answer in 0.3 s; torch alone takes longer to import."""
    program = (
        "import importlib, pkgutil, sys\n"
        "import verify.facts.kernel, verify.facts.formats, verify.oracles, verify.reports\n"
        "for package in (verify.oracles, verify.reports):\n"
        "    for module in pkgutil.iter_modules(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "for name in verify.facts.kernel.names():\n"
        "    verify.facts.kernel.load(name)\n"
        "print(sorted({'torch', 'triton'} & set(sys.modules)))\n"
    )
    home = Path(verify.__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=home)
    assert (result.returncode, result.stdout.strip()) == (0, "[]"), result.stderr
