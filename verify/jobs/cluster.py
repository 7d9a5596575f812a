"""Processes of a Ray cluster that do numbered jobs, as `verify.jobs.pool` does with those of this machine.

A process gets work only where code and environment are those of this one. What is lost with a process or a node is
done again elsewhere; a job that has lost RETRIES processes is given up. No torch here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verify.facts.kernel import UsageError
from verify.jobs.journal import differences
from verify.jobs.pool import Ended, Hands, attempt

RETRIES = 3
CONNECT = 5.0  # seconds for an address to answer
JOIN = 30.0  # and for Ray to connect to what answers there, which it tries for minutes
START = 300.0  # seconds without any process that could work
#: How HTTP/2 begins, with empty settings, which a gRPC server answers with its own (RFC 9113, 3.4): where something
#: else answers, ray.init would wait for minutes.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
#: Beginnings of the names of variables that every process gets from this one.
PASSED = ("ATEN_", "OMP_", "PYTHONPATH", "TORCH", "TRITON_")


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster. tell: is given a line on each process that gets no work."""

    address: str
    tell: Callable[[str], None]


class Doer:
    """What Ray starts: the process of one `Member`."""

    def __init__(self) -> None:
        self.do: Callable[[int], Any] | None = None

    def begin(self, given: bytes) -> tuple[str, Mapping[str, Any]]:
        """The host's name, and what code and environment are there."""
        make, identify = pickle.loads(given)
        found = identify()
        self.do = make()
        return socket.gethostname(), found

    def attempt(self, number: int) -> tuple[str, Any]:
        assert self.do is not None
        return attempt(self.do, number)


@dataclass
class Member(Hands):
    """A process of the cluster. pending: what it was asked last; ready: whether it may be given a job."""

    start: Callable[[], Any]
    given: bytes
    ready: bool = False

    def __post_init__(self) -> None:
        self.actor = self.start()
        self.pending = self.actor.begin.remote(self.given)

    def send(self, number: int) -> None:
        self.pending = self.actor.attempt.remote(number)


def ended(
    make: Callable[[], Callable[[int], Any]], groups: Sequence[Sequence[int]], cluster: Cluster,
    needs: Mapping[str, float], count: int | None, identify: Callable[[], Mapping[str, Any]],
    wanted: Callable[[int], bool] = lambda number: True,
) -> Generator[Ended]:  # fmt: skip
    """Every job of the groups, in the order in which they end; see `verify.jobs.pool.ended`.

    needs     what a process takes of the cluster's resources, by Ray's names
    count     of processes; None: as many as the cluster has room for
    identify  picklable: what must be equal there and here, JSON

    Raises UsageError where Ray is not installed, the address does not answer, or no process can work.
    """
    import ray
    from ray.exceptions import RayActorError, RayError

    with _connected(cluster.address):
        there: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        room = [int(there.get(name, 0) / amount) for name, amount in needs.items()]
        if not (count or min(room)):
            told = " and ".join(f"{amount:g} {name}" for name, amount in needs.items())
            raise UsageError(f"no node of the Ray cluster {cluster.address!r} has {told}, which a process takes")
        expected, given = identify(), pickle.dumps((make, identify))
        own = {name: amount for name, amount in needs.items() if name not in ("CPU", "GPU")}
        options: dict[str, Any] = {"num_cpus": needs.get("CPU", 0), "num_gpus": needs.get("GPU", 0), "resources": own}
        passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
        options["runtime_env"] = {"env_vars": passed}

        def start() -> Any:
            return ray.remote(Doer).options(**options).remote()

        waiting = deque(deque(group) for group in groups)
        members = [Member(k, start, given) for k in range(min(count or min(room), sum(map(len, groups))))]
        lost: Counter[int] = Counter()  # processes, by the job that they were in
        worked = time.monotonic()  # when a process was last there that could
        refused, begun = "", False
        try:
            while waiting or any(m.number is not None or m.own for m in members):
                for member in members:
                    if member.ready and member.number is None:
                        member.begin(waiting, members, wanted)
                asked = [m.pending for m in members if m.number is not None or not m.ready]
                now = time.monotonic()
                if any(m.ready for m in members):
                    worked, begun = now, True
                if not members or now - worked > START:
                    what = "was left, and none could be started" if begun else "could be started"
                    why = refused or f"none {what} within {START:g} s"
                    raise UsageError(f"no process of the Ray cluster {cluster.address!r} can work: {why}")
                done, _ = ray.wait(asked, num_returns=1, timeout=1.0) if asked else ([], [])
                for member in [m for m in members if m.pending in done]:
                    try:
                        value = ray.get(member.pending)
                    except RayError as error:
                        if not member.ready and not isinstance(
                            error, RayActorError
                        ):  # what was raised there comes last
                            refused = str(error).strip().splitlines()[-1]
                            cluster.tell(f"a process gets no work: {refused}")
                            members.remove(member)
                            continue
                        if (one := _fallen(member, waiting, lost, error)) is not None:
                            yield one
                        members[members.index(member)] = Member(member.which, start, given)
                        continue
                    if not member.ready:
                        host, found = value
                        if told := differences(expected, found):
                            refused = f"node {host} differs: {told}"
                            cluster.tell(f"{refused}; it gets no work")
                            ray.kill(member.actor)
                            members.remove(member)
                        member.ready = not told
                        continue
                    state, value = value
                    if (one := member.finish(value)) is not None:
                        yield one
                    if state == "leaving":
                        ray.kill(member.actor)
                        waiting.extendleft([member.own] if member.own else [])
                        members[members.index(member)] = Member(member.which, start, given)
        finally:
            for member in members:
                with contextlib.suppress(Exception):
                    ray.kill(member.actor)


def _fallen(member: Member, waiting: deque[deque[int]], lost: Counter[int], error: Exception) -> Ended | None:
    """Put back what a lost process had to do; its job is given up where it has lost RETRIES."""
    import ray

    with contextlib.suppress(Exception):
        ray.kill(member.actor)
    number = member.number
    if member.own:
        waiting.appendleft(member.own)
    if number is None:
        return None
    lost[number] += 1
    if lost[number] < RETRIES:
        waiting.appendleft(deque([number]))
        return None
    why = str(error).strip().splitlines()[0].rstrip(".:")
    return Ended(number, died=f"each of {RETRIES} processes that ran it was lost, the last: {why}")


@contextlib.contextmanager
def _connected(address: str) -> Iterator[None]:
    """Inside, Ray is connected to the cluster. Raises UsageError."""
    try:
        import ray
    except ModuleNotFoundError:
        raise UsageError("--engine ray needs Ray: python3 -m pip install 'ulproof[ray]'") from None
    if address != "auto":
        host, _, port = address.rpartition("://")[2].partition(":")
        try:
            with socket.create_connection((host, int(port)), CONNECT) as there:
                there.settimeout(CONNECT)
                there.sendall(PREFACE)
                settings = there.recv(9)
        except (OSError, ValueError) as error:
            raise UsageError(f"no Ray cluster answers at {address!r} ({error}); expected HOST:PORT or auto") from None
        if settings[3:4] != b"\x04" and "RAY_USE_TLS" not in os.environ:
            raise UsageError(f"what answers at {address!r} is no Ray cluster; expected HOST:PORT or auto")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # they are reported here
    before = signal.getsignal(signal.SIGTERM)
    failed: list[Exception] = []

    def join() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        except Exception as error:
            failed.append(error)

    joining = threading.Thread(target=join, daemon=True)  # no signal is heard within it
    joining.start()
    try:
        joining.join(JOIN)
        if joining.is_alive():
            raise UsageError(f"what answers at {address!r} did not let Ray connect within {JOIN:g} s: is it its GCS?")
        for why in failed:
            if not isinstance(why, ConnectionError | RuntimeError | ValueError):
                raise why
            told = str(why).strip().splitlines()[0]
            raise UsageError(f"no Ray cluster answers at {address!r}: {told}") from None
    finally:
        with contextlib.suppress(ValueError):  # not the main thread, which alone has handlers
            signal.signal(signal.SIGTERM, before)
    with contextlib.suppress(Exception):  # what nodes say of themselves would go to standard output
        from ray._private.ray_logging import global_worker_stdstream_dispatcher as told_by_nodes

        told_by_nodes.remove_handler("ray_print_logs")
    try:
        yield
    finally:
        ray.shutdown()
