"""The CPUs that the environments of a runner share: seats on the machines of a cluster."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from typing import Any

from omg.integrations.ray.cluster import SIGNALS, Connection, connected, hush
from omg.integrations.ray.nodes import check_nodes
from omg.types import OmgError, RunFailedError


class Bench:
    """Reserves one seat of `cpus` CPUs per worker. A run's training and test environments take
    turns, so they share the seats: worker k of each sits on seat k."""

    def __init__(self, *, address: str, cpus: float, patience: float) -> None:
        """`patience`: seconds until the cluster must have room."""
        self._address, self._cpus, self._patience = address, cpus, patience
        self._users = 0
        self._seats = 0
        self._group: Any = None
        self._connection: Connection

    @property
    def ray(self) -> Any:
        """Ray, while somebody is on the bench."""
        return self._connection.ray

    def enter(self) -> None:
        """Somebody comes; the first one connects."""
        if self._users == 0:
            self._connection = SHARED.take(self._address)
        self._users += 1

    def leave(self) -> None:
        """Somebody goes; the last one gives the seats back, and whoever sits there is ended."""
        self._users -= 1
        if self._users > 0:
            return
        try:
            if self._group is not None and self.ray.is_initialized():
                self.ray.util.remove_placement_group(self._group)
        finally:
            self._group = None
            SHARED.give_back()

    def room(self) -> int:
        """How many seats the whole cluster can have."""
        return max(1, math.floor(self._connection.cpus() / self._cpus))

    def reserve(self, seats: int) -> None:
        """Have so many seats, unless there are seats already."""
        if self._group is not None:
            return
        there, wanted = self._connection.cpus(), seats * self._cpus
        what = f"runner=ray asks for {seats} workers of {self._cpus:g} CPUs"
        if wanted > there:
            raise OmgError(
                f"{what}, and the cluster has {there:g} CPUs. Lower n_workers or "
                "ray_cpus_per_worker, raise copies_per_worker, or add machines."
            )
        group = self.ray.util.placement_group([{"CPU": self._cpus}] * seats, strategy="SPREAD")
        self._group, self._seats = group, seats
        if not group.wait(self._patience):
            free = self.ray.available_resources().get("CPU", 0.0)
            raise RunFailedError(
                f"{what}, and after {self._patience:g} s only {free:g} CPUs are free. Wait for "
                "other work on the cluster, or ask for less."
            )

    def seat(self, number: int) -> Any:
        """Where worker `number` is to be placed."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=number % self._seats
        )


class SharedConnection:
    """One connection for all benches of this process, as Ray has one; it ends with the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._open = contextlib.ExitStack()
        self._checked: set[str] = set()  # addresses of clusters
        self._connection: Connection

    def take(self, address: str) -> Connection:
        """The connection; made and checked for the first user."""
        with self._lock:
            if self._users == 0:
                try:
                    with _handlers_kept():
                        self._connection = self._open.enter_context(connected(address=address))
                    hush()
                    if self._connection.address not in self._checked:
                        check_nodes(self._connection)
                        self._checked.add(self._connection.address)
                except BaseException:
                    self._open.close()
                    raise
            self._users += 1
            return self._connection

    def give_back(self) -> None:
        """One user less."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._open.close()


SHARED = SharedConnection()


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Whoever handles signals already goes on to do so; where nobody does, SIGTERM ends the
    process as Ctrl-C does while it is connected."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in old.items():
        if handler is not signal.SIG_DFL:
            signal.signal(number, handler)
