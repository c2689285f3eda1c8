"""The inside of the collector's process.

Every message of the learner is `(command, argument)`. They are carried out one after the other, and
each gets one answer, in the same order: `("done", value)`, `("refused", text)` for what the user
has to correct, `("broken", text)` for a failure that explains itself, or
`("failed", summary, traceback)`. Messages come from the process at the other end of the pipe only.
"""

from __future__ import annotations

import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch

from omg.config.schema import Config
from omg.envs.spawned import prepare_child
from omg.modules.device import set_up_torch
from omg.runners import runner_of
from omg.runners.assembly import make_controller, make_rollout
from omg.runners.overlap.exchange import (
    HandOver,
    Layout,
    SharedWeights,
    acting_networks,
    from_bytes,
    layout_of,
    to_bytes,
)
from omg.types import OmgError, RunFailedError

# How soon the thread that sends gets its turn; Python's own 5 ms is longer than many a hand-over.
SWITCH_SECONDS = 1e-4


class Host:
    """Owns the rollout; one method per command, named like it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        runner = runner_of(config)
        self._env = runner.copies(runner.n_training)
        device = torch.device("cpu")
        try:
            self._mac = make_controller(config, self._env.spec, device)
            self._rollout = make_rollout(
                config, env=self._env, mac=self._mac, stream="train", device=device
            )
        except BaseException:
            self._env.close()
            raise
        self._networks = acting_networks(self._mac)
        self._env_steps = 0
        self._weights: SharedWeights

    def attach(self, name: str) -> tuple[Layout, list[str]]:
        """Open the shared memory; what has to be equal on both sides."""
        layout = layout_of(self._networks)
        self._weights = SharedWeights(layout, slots=self._config.collect_ahead + 1, name=name)
        return layout, self._mac.players()

    def play(self, slot: int) -> HandOver:
        """Play with the weights of a slot until episodes end."""
        version = self._weights.read(slot, self._networks)
        steps: list[int] = []
        while True:
            finished = self._rollout.step(self._env_steps)
            steps.append(self._rollout.stepped_last)
            self._env_steps += self._rollout.stepped_last
            self._weights.beat()
            if finished is not None:
                return HandOver.of(finished, version=version, steps=steps)

    def state(self, _: None) -> bytes:
        """Everything the rollout holds."""
        return to_bytes({"rollout": self._rollout.state_dict(), "env_steps": self._env_steps})

    def load(self, saved: bytes) -> None:
        """The opposite of `state`."""
        state = from_bytes(saved)
        self._rollout.load_state_dict(state["rollout"])
        self._env_steps = int(state["env_steps"])

    def close(self) -> None:
        """Free the game, then the memory."""
        try:
            self._env.close()
        finally:
            if hasattr(self, "_weights"):
                self._weights.close()


class Sender:
    """Sends answers from a thread, so that large ones do not keep the collector from playing while
    the learner is busy."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def put(self, answer: tuple[Any, ...]) -> None:
        self._answers.put(pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))

    def _send(self) -> None:
        try:
            while (answer := self._answers.get()) is not None:
                self._connection.send_bytes(answer)
        except OSError:  # the learner has gone, which `recv` tells the main thread
            return

    def finish(self) -> None:
        """Wait until everything is sent."""
        self._answers.put(None)
        self._thread.join()


def serve(connection: Connection, make_host: Callable[[], Host]) -> None:
    """Carry out commands until the pipe closes or one fails."""
    sender, host = Sender(connection), None
    try:
        host = make_host()
        while (message := _next_message(connection)) is not None:
            command, argument = message
            sender.put(("done", getattr(host, command)(argument)))
    except (Exception, SystemExit) as error:
        sender.put(_report(error))
    finally:
        sender.finish()
        if host is not None:
            host.close()


def _next_message(connection: Connection) -> tuple[str, Any] | None:
    """None when the learner has closed the pipe or gone."""
    try:
        received = connection.recv_bytes()
    except (EOFError, OSError):
        return None
    command, argument = pickle.loads(received)  # from our own parent; never read from a file
    return command, argument


def _report(error: BaseException) -> tuple[str, ...]:
    if isinstance(error, OmgError):
        return ("broken" if isinstance(error, RunFailedError) else "refused"), str(error)
    summary = "".join(traceback.format_exception_only(error)).strip()
    return "failed", summary, traceback.format_exc()


def run_collector(connection: Connection, faults: Connection, values: Mapping[str, Any]) -> None:
    """The process: `values` are a configuration's."""
    prepare_child(faults)
    # A whole job is told to end: the learner does so in an orderly way, and then ends us. A handler
    # and not SIG_IGN, which programs started by an environment would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.setswitchinterval(SWITCH_SECONDS)

    def make_host() -> Host:
        config = Config.model_validate(dict(values))
        set_up_torch(config)
        return Host(config)

    serve(connection, make_host)
