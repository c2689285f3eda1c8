"""The training loop: collect, learn, test, log, save; can stop and continue exactly."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import ReplayBuffer
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.experiment.learning import Counters, EffectiveNumbers, Learning
from omg.experiment.output import MetricLogger, RunConsole
from omg.learners.base import Learner, Metrics
from omg.runners.overlap import Collector
from omg.runners.rollout import EpisodeStats, Finished, Rollout, concatenate, run_test
from omg.runners.waves import Waves
from omg.storage.files import RunFolder
from omg.storage.models import prune_models, save_models
from omg.types import OmgError, RunFailedError


class StopRequest:
    """Set by Ctrl-C, SIGTERM or a closed terminal; the loop stops at the next step. A second one
    stops at once."""

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(signum: int, frame: FrameType | None) -> None:
            if self.requested:
                raise KeyboardInterrupt
            self.requested = True

        names = ("SIGINT", "SIGTERM", "SIGHUP")
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        old = {
            number: signal.signal(number, handle)
            for number in numbers
            if signal.getsignal(number) is not signal.SIG_IGN  # as under nohup
        }
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


class RunInterrupted(KeyboardInterrupt):
    """Raised after an orderly stop; Sacred marks the run as interrupted."""


class MetricMeans:
    """Means of learner metrics since the last log, kept as tensors until they are read."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}  # some updates have nothing to say of some metrics

    def add(self, metrics: Metrics) -> None:
        for name, value in metrics.items():
            previous = self._sums.get(name)
            self._sums[name] = value.double() if previous is None else previous + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        return {"sums": {k: v.cpu() for k, v in self._sums.items()}, "count": dict(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sums, counts = dict(state["sums"]), state["count"]
        if isinstance(counts, int):  # of an older version: all alike
            counts = dict.fromkeys(self._sums, counts)
        self._counts = dict(counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything a training loop works with; built by `omg.experiment.run`."""

    config: Config
    mac: Controller
    learning: Learning
    rollout: Rollout | Waves | Collector
    tester: Rollout
    meta: Mapping[str, Any]

    @property
    def learner(self) -> Learner:
        return self.learning.learner

    @property
    def buffer(self) -> ReplayBuffer:
        return self.learning.buffer

    @property
    def numbers(self) -> EffectiveNumbers:
        return self.learning.numbers


# What a state to continue from holds.
STATE = (
    *("rollout", "learner", "buffer", "sampler", "counters", "means", "recent"),
    *("metrics_position", "players"),
)


class TrainingLoop:
    """Runs until t_max. `state_dict` holds everything, so a resumed run equals one that was
    never interrupted."""

    logger: MetricLogger  # set when the state to continue from has been found good

    def __init__(self, parts: Parts, *, folder: RunFolder, console: RunConsole) -> None:
        self.parts, self.folder, self.console = parts, folder, console
        self.counters = Counters()
        self.stop = StopRequest()
        self._means = MetricMeans()
        self._found: dict[str, float] = {}
        self._recent: list[EpisodeStats] = []
        self._clock = time.monotonic()

    def run(self) -> dict[str, float]:
        """Train to the end; the last test's metrics."""
        config, counters = self.parts.config, self.counters
        self._clock = time.monotonic()
        with self.stop.listening():
            self.console.start(counters.env_steps)
            try:
                if counters.tests == 0:
                    self._test()
                while counters.env_steps < self.parts.numbers.t_max:
                    self._step()
                    if self.stop.requested:
                        self._stop()
                if counters.last_test != counters.env_steps:
                    self._test()
                self._log_training(force=True)
                self.console.progress(counters.env_steps, self.logger.latest, force=True)
                self._found = self.parts.learner.examine(self._examined)
                if config.save_model:
                    self._save(str(counters.env_steps))
                self._save_resume()
                self.parts.learner.verdict(self._found)
            finally:
                self.console.stop()
        return {k: v for k, v in self.logger.latest.items() if k.startswith("test_")}

    def _step(self) -> None:
        config, counters = self.parts.config, self.counters
        finished = self.parts.rollout.step(counters.env_steps)
        counters.env_steps += self.parts.rollout.stepped_last
        if finished is not None:
            self._learn(finished)
        self._log_training()
        if counters.env_steps - counters.last_test >= config.test_interval:
            self._test()
        self.console.progress(counters.env_steps, self.logger.latest)
        if config.save_model and counters.env_steps - counters.last_save >= (
            config.save_model_interval
        ):
            self._save(str(counters.env_steps))
            counters.last_save = counters.env_steps
        if config.resume_interval and counters.env_steps - counters.last_resume >= (
            config.resume_interval
        ):
            self._save_resume()

    def _learn(self, finished: Finished) -> None:
        parts = self.parts
        parts.learning.take(finished.episodes, self.counters)
        self._recent.append(finished.stats)
        for metrics in parts.learning.learn(self.counters):
            if parts.config.debug:
                self._check_finite(metrics)
            self._means.add(metrics)

    def _check_finite(self, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            if not math.isfinite(float(value)):
                raise RunFailedError(
                    f"{name} became {float(value)} at step {self.counters.env_steps}, update "
                    f"{self.counters.updates}. Lower lr or grad_norm_clip, or check the rewards."
                )

    def _log_training(self, force: bool = False) -> None:
        config, counters = self.parts.config, self.counters
        at = counters.env_steps
        if self._recent and (force or at - counters.last_runner_log >= config.runner_log_interval):
            values = concatenate(self._recent).metrics(prefix="")
            values |= self.parts.mac.metrics(at)
            values |= {"episodes": counters.episodes, "updates": counters.updates}
            self.logger.log(values, at)
            self._recent = []
            counters.last_runner_log = at
        if force or at - counters.last_learner_log >= config.learner_log_interval:
            means = self._means.take()
            self._check_finite(means)
            self.logger.log(means, at)
            counters.last_learner_log = at

    def _test(self) -> None:
        parts, counters = self.parts, self.counters
        values = self._tested("test_")
        if parts.config.test_both and not parts.config.test_greedy:
            with parts.tester.acting_greedily():
                values = {**self._tested("test_greedy_"), **values}
        counters.tests += 1
        counters.last_test = counters.env_steps
        self.logger.log(values, counters.env_steps)
        score = values.get("test_own_return_mean", values["test_return_mean"])
        if score > counters.best_return:
            counters.best_return = score
            counters.best_step = counters.env_steps
            if parts.config.save_model:
                self._save("best")

    def _tested(self, prefix: str) -> dict[str, float]:
        counters = self.counters
        result = run_test(
            self.parts.tester,
            self.parts.config.test_nepisode,
            round_number=counters.tests,
            env_steps=counters.env_steps,
        )
        return result.metrics(prefix)

    def _examined(self) -> EpisodeBatch | None:
        """Episodes to examine the finished learner with; drawn beside the run's own stream."""
        parts, count = self.parts, self.parts.numbers.batch_episodes
        if not (self.counters.updates and parts.buffer.can_sample(count)):
            return None
        batch = parts.buffer.sample(count, np.random.default_rng(parts.config.seed))
        return batch.to(parts.learning.device)

    def _save(self, name: str) -> None:
        parts = self.parts
        meta = {**parts.meta, "env_steps": self.counters.env_steps, **self._found}
        meta["run"] = self.folder.id
        save_models(
            self.folder.models / name,
            networks=parts.learner.weights(),
            optimiser=parts.learner.optimiser_state(),
            meta=meta,
        )
        prune_models(self.folder.models, parts.config.keep_models)

    def _save_resume(self) -> None:
        """`models/last`, and everything a continuation needs."""
        if self.parts.config.save_model:
            self._save("last")
        if self.parts.config.resume_interval == 0:
            return
        self.counters.last_resume = self.counters.env_steps
        self.folder.save_resume(self.counters.env_steps, self.state_dict())

    def _stop(self) -> None:
        self._save_resume()
        self.console.stop()
        raise RunInterrupted

    def state_dict(self) -> dict[str, Any]:
        parts, counters = self.parts, self.counters
        counters.seconds += time.monotonic() - self._clock
        self._clock = time.monotonic()
        return {
            "rollout": parts.rollout.state_dict(),
            "learner": parts.learner.state_dict(),
            "buffer": parts.buffer.state_dict(),
            "sampler": parts.learning.sampler.bit_generator.state,
            "counters": {f.name: getattr(counters, f.name) for f in fields(counters)},
            "means": self._means.state_dict(),
            "recent": [_plain(stats) for stats in self._recent],
            "metrics_position": self.logger.position(),
            "players": parts.mac.players(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; one that is not this run's is refused."""
        parts = self.parts
        missing = [key for key in STATE if key not in state]
        if missing:
            raise OmgError(f"It has no {', '.join(missing)}.")
        if state["players"] != parts.mac.players():
            raise OmgError(
                "The players changed since the run was stopped (opponent_pool or init_param_path): "
                f"{state['players']} then, {parts.mac.players()} now. Restore them."
            )
        try:
            parts.learner.load_state_dict(state["learner"])
            parts.buffer.load_state_dict(state["buffer"])
            parts.rollout.load_state_dict(state["rollout"])
            parts.learning.sampler.bit_generator.state = state["sampler"]
            self.counters = Counters(**state["counters"])
            self._means.load_state_dict(state["means"])
            self._recent = [_stats(plain) for plain in state["recent"]]
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise OmgError(f"It does not fit: {str(error).splitlines()[0][:200]}.") from error


def _plain(stats: EpisodeStats) -> dict[str, Any]:
    named = {f.name: getattr(stats, f.name) for f in fields(stats) if f.name != "info"}
    tensors = {name: torch.from_numpy(np.asarray(value)) for name, value in named.items()}
    return {**tensors, "info": {k: torch.from_numpy(v) for k, v in stats.info.items()}}


def _stats(plain: Mapping[str, Any]) -> EpisodeStats:
    named = {name: value.numpy() for name, value in plain.items() if name != "info"}
    return EpisodeStats(**named, info={k: v.numpy() for k, v in plain["info"].items()})
