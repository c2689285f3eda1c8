"""The way to Ray: import it, start it here or join a cluster, check the nodes, leave nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from omg.types import OmgError, RunFailedError

MISSING = "Ray is not installed. Install it: pip install 'omg-marl[ray]'"
OBJECT_STORE = 128 << 20  # bytes; what we send is small
# The folder of Ray's sockets must have a short path: that of a socket has 107 bytes at most.
LONGEST_FOLDER = 40
PATIENCE = 20.0  # seconds for a cluster to answer at all
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ADDRESS = re.compile(r"auto|local|[\w.-]+:\d+|\[[0-9a-fA-F:]+\]:\d+")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of a cluster."""

    id: str
    name: str
    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Connection:
    """Ray as it was found or started. `local`: it lives and ends with this process."""

    ray: Any
    local: bool
    address: str

    def nodes(self) -> list[Node]:
        """The machines that are alive."""
        return [
            Node(
                found["NodeID"],
                f"{found['NodeManagerHostname']} ({found['NodeManagerAddress']})",
                found["Resources"].get("CPU", 0.0),
                found["Resources"].get("GPU", 0.0),
            )
            for found in self.ray.nodes()
            if found["Alive"]
        ]

    def cpus(self) -> float:
        """Cores of all machines together."""
        return sum(node.cpus for node in self.nodes())

    def on(self, node: Node) -> Any:
        """Where a task or actor is to run: on this machine, or not at all."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node.id, soft=False)


def load_ray() -> Any:
    """Ray, imported; without it, what to install."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise OmgError(MISSING) from error
    logging.getLogger("ray").setLevel(logging.ERROR)
    module: ModuleType = ray
    return module


def hush() -> None:
    """What Ray says of lost workers and nodes, page by page, we say in a line."""
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    with contextlib.suppress(ImportError):
        from ray._private import worker

        worker.print_to_stdstream = lambda *data, **options: None


@contextlib.contextmanager
def connected(*, address: str = "", cpus: float | None = None) -> Iterator[Connection]:
    """Ray for a while. Without an address it is started here with `cpus` cores (all of them by
    default) and ended after; a cluster is joined and left. Where this process is connected
    already, that connection is used and kept."""
    ray = load_ray()
    if ray.is_initialized():
        yield Connection(ray, local=False, address=ray.get_runtime_context().gcs_address)
        return
    check_address(address)
    folder = None if address and address != "local" else _temporary_folder()
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(_leave, ray, folder)
        with _signals_restored():
            found = _join(ray, address) if folder is None else _start(ray, cpus, folder)
            _stop_on_signals()
            yield Connection(ray, local=folder is not None, address=found)


def _leave(ray: Any, folder: Path | None) -> None:
    """End or leave Ray and remove its folder; short, and not to be interrupted."""
    with _signals_restored():
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
        ray.shutdown()
        if folder is not None:
            _remove(folder)


def check_address(address: str) -> None:
    """Refuse what is no address of a cluster that this process can become part of."""
    if address.startswith("ray://"):
        raise OmgError(
            f"--address={address} is Ray's client, which is not part of the cluster. Start the "
            "command on a machine of the cluster, with --address=auto."
        )
    if address and not ADDRESS.fullmatch(address):
        raise OmgError(
            f"--address={address} is not an address. Write auto on a machine of the cluster, or "
            "host:port; leave it out for this machine alone."
        )


def _start(ray: Any, cpus: float | None, folder: Path) -> str:
    try:
        context = ray.init(
            address="local",
            num_cpus=None if cpus is None else int(cpus),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            _temp_dir=str(folder),
            **_QUIET,
        )
    except Exception as error:
        raise RunFailedError(
            f"Ray cannot be started here: {_first_line(error)}. Check memory, /dev/shm and limits "
            "(ulimit -a)."
        ) from error
    return str(context.address_info["gcs_address"])


def _join(ray: Any, address: str) -> str:
    try:
        _knock(address)
        context = ray.init(address=address, **_QUIET)
    except Exception as error:
        raise RunFailedError(
            f"There is no Ray cluster at --address={address} that answers: {_first_line(error)}. "
            "Start one with 'ray start --head', or leave --address out."
        ) from error
    return str(context.address_info["gcs_address"])


def _knock(address: str) -> None:
    """Ray waits for minutes where nobody answers; this does not."""
    from ray._private.services import canonicalize_bootstrap_address

    found = canonicalize_bootstrap_address(address)
    if found is None:
        raise ConnectionError("none runs here")
    host, _, port = str(found).rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE):
        pass


_QUIET: dict[str, Any] = {
    "logging_level": logging.ERROR,
    "log_to_driver": False,
    "configure_logging": False,
}


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def _temporary_folder() -> Path:
    """A new folder for Ray's sockets and logs; those of processes that were killed go."""
    root = Path(tempfile.gettempdir())
    root = root if len(str(root)) <= LONGEST_FOLDER else Path("/tmp")
    for left in root.glob("omg-ray-*-*"):
        with contextlib.suppress(OSError, ValueError):
            mine = left.stat().st_uid == os.getuid()
            if mine and not _is_alive(int(left.name.split("-")[2])):
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"omg-ray-{os.getpid()}-", dir=root))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(folder: Path, *, timeout: float = 10.0) -> None:
    """Ray's last processes may still write while they end."""
    deadline = time.monotonic() + timeout
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.1)


@contextlib.contextmanager
def _signals_restored() -> Iterator[None]:
    """Whatever is made of Ctrl-C, SIGTERM and SIGHUP inside, here it is as before after it: Ray
    and Tune set handlers of their own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _stop_on_signals() -> None:
    """SIGTERM and a closed terminal end the process as Ctrl-C does, so that it cleans up."""
    if threading.current_thread() is not threading.main_thread():
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in SIGNALS[1:]:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, stop)
