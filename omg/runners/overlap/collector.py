"""The learner's side: looks like a rollout, while another process plays."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from omg.components.episodes import Scheme
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.runners import runner_of
from omg.runners.overlap.hand_over import HandOver, from_bytes, to_bytes
from omg.runners.overlap.process import Link
from omg.runners.overlap.weights import SharedWeights, acting_networks, layout_of
from omg.runners.rollout import Finished
from omg.types import OmgError

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
        # A slot is written anew when `ahead + 1` further hand-overs have been learned from: the
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
