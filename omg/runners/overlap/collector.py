"""The collector's process as the learner sees it: start, ask, notice that it failed, end."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections import deque
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

from omg.components.episodes import Scheme
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.envs.spawned import CLOSE_SECONDS, SHOWN_LINES, SpawnedProcess
from omg.runners import runner_of
from omg.runners.overlap.child import (
    HandOver,
    SharedWeights,
    acting_networks,
    from_bytes,
    layout_of,
    run_collector,
    to_bytes,
)
from omg.runners.rollout import Finished
from omg.types import OmgError, RunFailedError

ADVICE = (
    "Correct the cause and continue the run with --resume; with collect_ahead=0 everything happens "
    "in one process."
)


class CollectorFailedError(RunFailedError):
    """The collector raised, died or hung. `traceback` is all that is known of where."""

    def __init__(self, what: str, traceback: str = "") -> None:
        last_lines = traceback.strip().splitlines()[-SHOWN_LINES:]
        super().__init__("\n".join([f"The collector {what}. {ADVICE}", *last_lines]))
        self.traceback = traceback


class Link:
    """Commands to a collector, and its answers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, command: str, argument: Any) -> None:
        """Ask for something; if the collector is gone, `receive` will tell."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(pickle.dumps((command, argument)))

    def ready(self, seconds: float) -> bool:
        """Whether `receive` has something to tell within so many seconds."""
        return self._connection.poll(seconds)

    def receive(self) -> Any:
        """The next answer; one that reports a failure is raised."""
        try:
            # What our own child process sends; never read from a file.
            answer = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise self.died() from None
        if answer[0] == "done":
            return answer[1]
        self.end(grace=CLOSE_SECONDS)
        if answer[0] == "failed":
            raise CollectorFailedError(f"raised {answer[1]}", answer[2])
        raise OmgError(answer[1]) if answer[0] == "refused" else RunFailedError(answer[1])

    def died(self) -> CollectorFailedError:
        """What to say of a collector that has gone."""
        self.end(grace=1.0)
        return CollectorFailedError("ended")

    def hung(self, seconds: float) -> CollectorFailedError:
        """What to say of a collector that makes no step; it is ended."""
        self.end(grace=0.0)
        return CollectorFailedError(f"made no step for {seconds:g} seconds")

    def end(self, *, grace: float) -> None:
        """Close the pipe, which tells the collector to end."""
        self._connection.close()


class CollectorProcess(Link):
    """A spawned process. It may have worker processes of its own, so it is no daemon."""

    def __init__(self, config: Config) -> None:
        values = config.as_dict()
        self._process = SpawnedProcess(
            run_collector,
            values,
            name="omg-collector",
            daemon=False,
            needs_main="__main__" in repr(values),
        )
        super().__init__(self._process.connection)
        self._ended = False
        self._at_exit = Finalize(None, self.end, kwargs={"grace": 0.0}, exitpriority=10)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ready(self, seconds: float) -> bool:
        return self._process.ready(seconds)

    def receive(self) -> Any:
        if self._process.is_silent():
            raise self.died()
        return super().receive()

    def died(self) -> CollectorFailedError:
        self.end(grace=1.0)
        return CollectorFailedError(self._process.how_it_died(), self._process.faults())

    def hung(self, seconds: float) -> CollectorFailedError:
        stack = self._process.stack()
        self.end(grace=0.0)
        return CollectorFailedError(f"made no step for {seconds:g} seconds", stack)

    def end(self, *, grace: float) -> None:
        """Give the collector `grace` seconds to close its environment, then kill it."""
        if self._ended:
            return
        self._ended = True
        self._at_exit.cancel()
        self._process.end(grace=grace)


# How long the collector may take to import everything and make its environments.
START_SECONDS = 300.0
# How often a waiting learner looks whether the collector still steps.
LOOK_SECONDS = 1.0


class Collector:
    """Hands out the collector's steps one by one, as `Rollout.step` would have made them, so that
    tests, logs and saving fall on the same steps as without it.

    Of `ahead + 1` hand-overs that are asked for at any time, one is being learned from and the
    others are being played or wait. Learning from one publishes weights and asks for the next.
    """

    def __init__(self, link: Link, *, config: Config, mac: Controller, scheme: Scheme) -> None:
        self._link, self._scheme = link, scheme
        self._networks = acting_networks(mac)
        self._ahead = config.collect_ahead
        # The collector waits as long for workers of its own, and may then have to start new ones.
        own_workers = not runner_of(config).in_process
        self._timeout = config.worker_timeout * (2 if own_workers else 1)
        self._timeout += START_SECONDS if own_workers else 0.0
        self._begun = False
        self._version = 0  # of the weights published last
        self._unpublished = False  # learned from the present hand-over since
        self._asked = 0  # hand-overs asked for that have not come
        self._waiting: deque[HandOver] = deque()  # come; the first is being handed out
        self._position = 0  # steps of it that have been handed out
        self.stepped_last = 0
        self.version_last = 0  # of the weights that made the last step
        # A slot is written again when `ahead + 1` further hand-overs have been learned from: the
        # one that was played with its old content has come by then.
        self._weights = SharedWeights(layout_of(self._networks), slots=self._ahead + 1)
        try:
            self._attach(mac.players())
        except BaseException:
            self.close()
            raise
        finally:
            self._weights.unlink()

    def _attach(self, players: list[str]) -> None:
        self._link.send("attach", self._weights.name)
        if self._answer(START_SECONDS) != (layout_of(self._networks), players):
            raise OmgError(
                "The opponents or networks changed while the run was starting. Start it again."
            )

    def step(self, env_steps: int) -> Finished | None:
        """The next step of every copy; the episodes that ended with it, if any."""
        self._publish()
        if not self._waiting:
            self._receive()
        hand_over = self._waiting[0]
        self.stepped_last = hand_over.steps[self._position]
        self.version_last = hand_over.version
        self._position += 1
        if self._position < len(hand_over.steps):
            return None
        self._waiting.popleft()
        self._position = 0
        self._unpublished = True
        return hand_over.finished(self._scheme)

    def _publish(self) -> None:
        """Ask for as much as may be played with what has been learned."""
        if not self._begun:
            self._begun = True
            self._weights.write(0, 0, self._networks)
            for _ in range(self._ahead + 1):
                self._ask(0)
        elif self._unpublished:
            self._version += 1
            slot = self._version % (self._ahead + 1)
            self._weights.write(slot, self._version, self._networks)
            self._ask(slot)
        self._unpublished = False

    def _ask(self, slot: int) -> None:
        self._link.send("play", slot)
        self._asked += 1

    def _receive(self) -> None:
        self._waiting.append(self._answer(self._timeout))
        self._asked -= 1

    def _answer(self, patience: float) -> Any:
        """The next answer, unless the collector makes no step for so many seconds."""
        beats, since = self._weights.beats, time.monotonic()
        while not self._link.ready(LOOK_SECONDS):
            if self._weights.beats != beats:
                beats, since = self._weights.beats, time.monotonic()
            elif time.monotonic() - since > patience:
                raise self._link.hung(patience)
        return self._link.receive()

    def state_dict(self) -> dict[str, Any]:
        """Everything on both sides. The collector first plays all it may play with what has been
        learned, so that its state does not depend on how fast it is, and needs no old weights."""
        self._publish()
        self._link.send("state", None)
        while self._asked:
            self._receive()
        saved = self._answer(self._timeout)
        return {
            "collector": from_bytes(saved),
            "version": self._version,
            "waiting": [hand_over.state_dict() for hand_over in self._waiting],
            "position": self._position,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._link.send("load", to_bytes(state["collector"]))
        self._answer(START_SECONDS)
        self._begun = True
        self._version = int(state["version"])
        self._waiting = deque(HandOver.from_state(saved) for saved in state["waiting"])
        self._position = int(state["position"])

    def close(self) -> None:
        """End the collector."""
        self._link.end(grace=5.0)
        self._weights.close()
