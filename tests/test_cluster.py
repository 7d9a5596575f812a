"""Jobs in a Ray cluster: three nodes of this machine, which lose a process and a node; and clusters that are none."""

from __future__ import annotations

import functools
import http.server
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numbered import doubling
from test_jobs import SMALL, bare, serial
from verify import backends
from verify.cli import commands
from verify.cli.output import USAGE
from verify.facts.kernel import UsageError
from verify.jobs import cluster
from verify.jobs.cluster import Cluster, ended
from verify.jobs.pool import Ended, Spent
from verify.walk import run
from verify.walk.plan import Selection

ray = pytest.importorskip("ray", reason="the optional extra `ray`")
HERE = str(Path(__file__).resolve().parent)


def known(name: str = "here") -> Mapping[str, Any]:
    return {"environment": name}


def process(seconds: float = 0.5) -> Callable[[int], Any]:
    def do(number: int) -> int:
        time.sleep(seconds)
        return os.getpid()

    return do


@pytest.fixture(scope="module")
def three() -> Iterator[Any]:
    """A cluster whose nodes can be lost; its address is `address`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")])))
        from ray.cluster_utils import Cluster as Nodes

        nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        nodes.others = [nodes.add_node(num_cpus=1) for _ in range(2)]
        yield nodes
        nodes.shutdown()


def test_a_run_gives_the_cells_of_one_process(three: Any) -> None:
    told: list[str] = []
    threads = backends.launch_threads
    assert bare(run.run(SMALL, workers=2, on=Cluster(three.address, told.append))["cells"]) == serial()
    assert not told
    assert backends.launch_threads == threads  # which later runs of this process go by


@pytest.mark.exhaustive  # half a minute
def test_ranges_of_a_sweep_give_the_part_of_one_process(three: Any) -> None:
    selection = Selection(
        ("addcmul",), ("cpu",), ("float16",), ("eager",), ("out-of-place",), "exhaustive", triples=True,
        scalars={"value": 1.0},
    )  # fmt: skip
    shard = 3 << 20, 1 << 23  # of 2^25 triples, in two ranges
    (own,) = run.run(selection, shard=shard)["shard"]["parts"]
    (theirs,) = run.run(selection, shard=shard, workers=2, on=Cluster(three.address, print))["shard"]["parts"]
    assert own["inputs"] == 1 << 25
    for part in (own, theirs):
        part["found"].pop("seconds")
    assert json.dumps(own) == json.dumps(theirs)


def test_another_environment_gets_no_work_and_is_named(three: Any) -> None:
    told: list[str] = []

    stream = ended(
        doubling, [[1], [2]], Cluster(three.address, told.append), {"CPU": 1.0}, None, Elsewhere(os.getpid())
    )
    with pytest.raises(UsageError, match='differs: environment was "here", is "there"'):
        list(stream)
    assert len(told) == 2


class Elsewhere:
    """What says another thing in another process."""

    def __init__(self, mine: int) -> None:
        self.mine = mine

    def __call__(self) -> Mapping[str, Any]:
        return known("here" if os.getpid() == self.mine else "there")


def test_a_lost_process_and_a_lost_node_cost_a_retry(three: Any) -> None:
    found: list[Ended] = []
    groups = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    for one in ended(process, groups, Cluster(three.address, print), {"CPU": 1.0}, None, known):
        found.append(one)
        if len(found) == 2:
            os.kill(one.value, signal.SIGKILL)
        if len(found) == 4:
            three.remove_node(three.others[-1], allow_graceful=False)
    assert sorted(one.number for one in found) == list(range(12))
    assert not any(one.died for one in found) and len({one.value for one in found}) >= 3


@pytest.mark.part(3)
def test_a_job_that_loses_its_processes_is_given_up(three: Any) -> None:
    make = functools.partial(doubling, (1,))
    found = {
        one.number: one for one in ended(make, [[0, 1, 7, 9]], Cluster(three.address, print), {"CPU": 1.0}, 1, known)
    }
    assert found[1].died.startswith("each of 3 processes that ran it was lost") and found[9].value[0] == 18
    assert isinstance(found[7].value, ValueError) and "in do" in found[7].value.__notes__[0]


def odd() -> Callable[[int], Any]:
    def do(number: int) -> int:
        if number == 3:
            raise GeneratorExit("what no job should raise")
        return number

    return do


@pytest.mark.part(3)
def test_a_job_is_never_dropped_whatever_its_process_raises(three: Any) -> None:
    found = {one.number: one for one in ended(odd, [[2, 3, 4]], Cluster(three.address, print), {"CPU": 1.0}, 1, known)}
    assert sorted(found) == [2, 3, 4] and (found[2].value, found[4].value) == (2, 4)
    assert found[3].died.startswith("each of 3 processes that ran it was lost")


def leaving() -> Callable[[int], Any]:
    def do(number: int) -> int:
        if number == 1:
            raise Spent(number)
        return number

    return do


@pytest.mark.part(3)
def test_a_process_that_leaves_late_is_replaced(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the run has lasted: only time without any process that could work counts."""
    stream = ended(leaving, [[0, 1, 2]], Cluster(three.address, print), {"CPU": 1.0}, 1, known)
    found = [next(stream)]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * cluster.START)
    found += stream
    assert [one.value for one in found] == [0, 1, 2]


def test_a_cluster_that_loses_all_that_could_work_is_not_waited_for(
    three: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    own = three.add_node(num_cpus=1, resources={"apart": 1})
    stream = ended(process, [[0, 1, 2]], Cluster(three.address, print), {"apart": 1.0}, 1, known)
    assert next(stream).number == 0
    three.remove_node(own, allow_graceful=False)
    monkeypatch.setattr(cluster, "START", 2.0)
    with pytest.raises(UsageError, match="can work: none was left, and none could be started within 2 s"):
        list(stream)


def test_a_cluster_without_what_is_needed_is_refused(three: Any) -> None:
    with pytest.raises(UsageError, match="has 1 mps, which a process takes"):
        list(ended(doubling, [[0]], Cluster(three.address, print), {"mps": 1.0}, None, known))


def test_an_address_that_does_not_answer_as_ray_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = free.getsockname()[1]
    other = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    words = ["kernel", "reciprocal", "--backend", "cpu", "--profile", "quick", "--engine", "ray", "--address"]
    for address, told in (
        (f"127.0.0.1:{nobody}", "no Ray cluster answers"),
        (f"127.0.0.1:{other.server_port}", "is no Ray cluster"),
        ("nowhere", "expected HOST:PORT or auto"),
    ):
        began = time.monotonic()
        assert commands.main([*words, address]) == USAGE
        assert time.monotonic() - began < 10
        line = capsys.readouterr().err.strip().splitlines()[-1]
        assert told in line and address in line
    other.shutdown()
    other.server_close()


def test_what_answers_and_never_lets_ray_connect_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """As another server of HTTP/2 does, of which Ray tells after minutes."""
    ended = threading.Event()
    monkeypatch.setattr(cluster, "JOIN", 0.5)
    monkeypatch.setattr("ray.init", lambda **given: ended.wait(60))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            there, _ = server.accept()
            there.sendall(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
            ended.wait(60)
            there.close()

        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        words = ["kernel", "reciprocal", "--backend", "cpu", "--profile", "quick", "--engine", "ray"]
        assert commands.main([*words, "--address", address]) == USAGE
        ended.set()
    assert f"what answers at '{address}' did not let Ray connect" in capsys.readouterr().err


def test_an_address_without_ray_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["kernel", "reciprocal", "--address", "127.0.0.1:1"]) == USAGE
    assert "--address is for --engine ray" in capsys.readouterr().err


@pytest.mark.part(3)
def test_the_selection_travels(three: Any, tmp_path: Path) -> None:
    """A lowering of the user's is judged there as here."""
    (tmp_path / "mine.py").write_text("def f(x):\n    return 1 / x\n")
    own = replace(SMALL, kernels=("reciprocal",), spellings=(), user_lowerings=(f"{tmp_path}/mine.py:f",))
    here, there = (run.run(own, workers=1, on=on)["cells"] for on in (None, Cluster(three.address, print)))
    assert bare(here) == bare(there)
