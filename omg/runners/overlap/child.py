"""The inside of the collector's process, and what goes between it and the learner: episodes as
plain arrays (as tensors in a resume state), weights through shared memory.

Every message of the learner is `(command, argument)`. They are carried out one after the other, and
each gets one answer, in the same order: `("done", value)`, `("refused", text)` for what the user
has to correct, `("broken", text)` for a failure that explains itself, or
`("failed", summary, traceback)`. Messages come from the process at the other end of the pipe only.
"""

from __future__ import annotations

import io
import math
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from omg.components.episodes import EpisodeBatch, Scheme
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.team import TeamMAC
from omg.envs.spawned import prepare_child, shared_memory
from omg.modules.device import set_up_torch
from omg.opponents.unseen import recorded
from omg.runners import runner_of
from omg.runners.assembly import make_controller, make_rollout
from omg.runners.rollout import EpisodeStats, Finished
from omg.types import OmgError, RunFailedError

FILLED, EPISODES, STATS, INFO = "filled", "episodes.", "stats.", "info."


@dataclass(frozen=True, slots=True)
class HandOver:
    """The steps up to one that ended episodes, and those episodes."""

    version: int  # of the weights that chose the actions
    steps: list[int]  # environment steps of every step of all copies
    arrays: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, finished: Finished, *, version: int, steps: list[int]) -> HandOver:
        episodes, stats = finished.episodes, finished.stats
        named = {f.name: getattr(stats, f.name) for f in fields(stats) if f.name != "info"}
        arrays: dict[str, NDArray[Any]] = {FILLED: episodes.filled.numpy()}
        names = episodes.scheme.fields
        arrays |= {f"{EPISODES}{name}": episodes.raw(name).numpy() for name in names}
        arrays |= {f"{STATS}{name}": value for name, value in named.items()}
        arrays |= {f"{INFO}{name}": value for name, value in stats.info.items()}
        return cls(version, steps, arrays)

    def finished(self, scheme: Scheme) -> Finished:
        """As a rollout would have given it."""
        part = self._part(EPISODES)
        data = {name: torch.from_numpy(value) for name, value in part.items()}
        filled = torch.from_numpy(self.arrays[FILLED])
        stats = EpisodeStats(**self._part(STATS), info=self._part(INFO))
        return Finished(EpisodeBatch.from_data(scheme, data, filled), stats)

    def _part(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {
            name.removeprefix(prefix): value
            for name, value in self.arrays.items()
            if name.startswith(prefix)
        }

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: torch.from_numpy(np.array(value)) for name, value in self.arrays.items()}
        return {"version": self.version, "steps": list(self.steps), "arrays": arrays}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> HandOver:
        arrays = {name: value.numpy() for name, value in state["arrays"].items()}
        return cls(int(state["version"]), [int(count) for count in state["steps"]], arrays)


def to_bytes(state: Mapping[str, Any]) -> bytes:
    """A state of tensors and plain values, as it would stand in a file."""
    file = io.BytesIO()
    torch.save(dict(state), file)
    return file.getvalue()


def from_bytes(saved: bytes) -> dict[str, Any]:
    """The opposite of `to_bytes`."""
    state: dict[str, Any] = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True)
    return state


# (name, shape, dtype) of every tensor of the networks that act.
Layout: TypeAlias = tuple[tuple[str, tuple[int, ...], str], ...]

ALIGNMENT = 64


def acting_networks(mac: Controller) -> dict[str, nn.Module]:
    """All that acts and learns: what is saved, and of an opponent model also what is not."""
    model = mac.model if isinstance(mac, TeamMAC) else None
    return {**mac.networks(), **({} if model is None else {"opponent model": model})}


def _tensors(networks: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Every tensor once, also where networks share some."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for file, network in networks.items():
        for key, value in network.state_dict().items():
            if value.data_ptr() not in seen or not value.numel():
                found[f"{file}/{key}"] = value
                seen.add(value.data_ptr())
    return found


def layout_of(networks: Mapping[str, nn.Module]) -> Layout:
    """What has to be equal on both sides."""
    return tuple(
        (name, tuple(value.shape), str(value.dtype).removeprefix("torch."))
        for name, value in _tensors(networks).items()
    )


class SharedWeights:
    """Slots, each with the weights of one version, and a counter that shows the collector is
    alive. Who writes and who reads a slot when is agreed upon elsewhere."""

    def __init__(self, layout: Layout, *, slots: int, name: str | None = None) -> None:
        """Without a name, new zeroed memory; with one, the memory of that name."""
        sizes = [math.prod(shape) * getattr(torch, kind).itemsize for _, shape, kind in layout]
        starts = [ALIGNMENT]
        for size in sizes:
            starts.append(starts[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        width = starts.pop()
        self._memory = shared_memory(
            name,
            (1 + slots) * width,
            what="the weights of the networks",
            remedy="Raise that, set collect_ahead=0, or use smaller networks.",
        )
        self.name = self._memory.name
        self._beats = self._view(0, (), torch.int64)
        self._versions = [self._view(width * (1 + s), (), torch.int64) for s in range(slots)]
        self._slots = [
            {
                key: self._view(width * (1 + slot) + start, shape, getattr(torch, kind))
                for (key, shape, kind), start in zip(layout, starts, strict=True)
            }
            for slot in range(slots)
        ]

    def _view(self, start: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = math.prod(shape)
        if not count:
            return torch.zeros(shape, dtype=dtype)
        flat = torch.frombuffer(self._memory.buf, dtype=dtype, count=count, offset=start)
        return flat.view(shape)

    @torch.no_grad()
    def write(self, slot: int, version: int, networks: Mapping[str, nn.Module]) -> None:
        """Put the present weights into a slot."""
        place = self._slots[slot]
        for name, value in _tensors(networks).items():
            place[name].copy_(value)
        self._versions[slot].fill_(version)

    @torch.no_grad()
    def read(self, slot: int, networks: Mapping[str, nn.Module]) -> int:
        """Take the weights of a slot; their version."""
        place = self._slots[slot]
        for name, value in _tensors(networks).items():
            value.copy_(place[name])
        return int(self._versions[slot])

    def beat(self) -> None:
        """The collector made a step."""
        self._beats += 1

    @property
    def beats(self) -> int:
        """How many steps it made."""
        return int(self._beats)

    def unlink(self) -> None:
        """Take the name away; the memory lives on until both sides have closed it."""
        self._memory.unlink()

    def close(self) -> None:
        """Let go of the memory."""
        self._slots, self._versions = [], []
        self._beats = torch.zeros(())
        self._memory.close()


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
            with recorded():  # by the run that started this process
                self._mac = make_controller(config, self._env.spec, device)
            self._rollout = make_rollout(
                config, env=self._env, mac=self._mac, stream="train", device=device, learns=True
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
