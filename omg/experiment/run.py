"""Composition root: builds every part of a run from a configuration, and runs it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from omg.components.episodes import Scheme
from omg.components.seeding import SeedTree
from omg.components.trajectories import ReplayBuffer
from omg.config.schema import Config
from omg.controllers import Controller
from omg.envs import BatchedEnv, make_batched
from omg.envs.registry import environment_versions
from omg.experiment.checks import (
    check_common_reward,
    check_memory,
    check_reward_weights,
    sanity_check,
)
from omg.experiment.learning import EffectiveNumbers, Learning
from omg.experiment.output import MetricLogger, RunConsole, readable_metrics
from omg.experiment.provenance import identity, record_session
from omg.experiment.sinks import ScalarSink, Tracker, trackers_of
from omg.experiment.trained import load_optimiser, model_meta
from omg.experiment.training import Parts, TrainingLoop
from omg.learners import LEARNERS
from omg.modules.device import choose_device, set_up_torch, tune_allocator
from omg.opponents.sides import training_members
from omg.opponents.unseen import record_look, recorded
from omg.runners import runner_of
from omg.runners.assembly import build_learner, episode_scheme, make_controller, make_rollout
from omg.runners.overlap import Collector, CollectorProcess, Link
from omg.runners.replay import check_can_replay, save_replays
from omg.runners.rollout import Rollout, run_test
from omg.runners.waves import Waves
from omg.storage.files import RunFolder, write_text
from omg.storage.locks import refuse_link
from omg.storage.models import find_model_folder, load_checked, weights_hash
from omg.types import OmgError, human_bytes


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a finished run hands back."""

    folder: Path
    metrics: Mapping[str, float]
    best_return: float | None = None
    best_step: int | None = None


# So many copies are held by every machine.
SURELY = 1024


class Run:
    """One run: builds all parts and loads weights on entering, trains or evaluates with `go`, and
    always cleans up."""

    def __init__(self, config: Config, folder: RunFolder) -> None:
        sanity_check(config)
        self.config, self.folder = config, folder
        self._sinks: tuple[ScalarSink, ...] = ()
        self._notes: dict[str, str] = {}
        self._loaded: Path | None = None
        self._loaded_step = 0
        self._loop: TrainingLoop | None = None  # of a run that goes on
        self._resume_at: int | None = None
        self._remarks: dict[str, str] = {}
        self.console = RunConsole(
            total=config.t_max, log_interval=config.log_interval, quiet=config.quiet
        )
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Run:
        try:
            self._build()
            if self.config.checkpoint_path:
                self._loaded = self.load_checkpoint(for_training=not self.config.evaluate)
            elif not self.config.resume:
                self._remarks |= self.parts.learner.start(self.parts.meta)
            self._record_look()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *failure: Any) -> None:
        self._cleanup.__exit__(*failure)

    def _record_look(self) -> None:
        """Before anything is played, by whatever method: held-out members among the others."""
        config, loaded = self.config, self._loaded
        if not config.opponent_members:
            return
        pool, met = training_members(config, self.spec)
        if not config.evaluate:
            record_look(pool, met, kind="training", runs={str(self.folder.path): ""})
            return
        assert loaded is not None  # a run that only evaluates has weights
        run = loaded.parent.parent if loaded.parent.name == "models" else loaded
        how = {"seed": config.seed, "greedy": config.test_greedy}
        replays = config.replay_episodes if config.save_replay else 0
        record_look(
            pool,
            met,
            kind="evaluation",
            runs={str(run): weights_hash(loaded)},
            episodes=config.test_nepisode,
            options={**how, "replays": replays, "settings": identity(config)[:12]},
        )

    def _build(self) -> None:
        config = self.config
        tune_allocator()
        set_up_torch(config)
        self.device = device = choose_device(config)
        seeds = SeedTree(config.seed)
        runner = self.runner = runner_of(config)
        overlapped = config.collect_ahead > 0 and not config.evaluate
        if max(runner.n_training, runner.n_tests) > SURELY:
            probe = runner.copies(1)
            probe.close()
            check_memory(config, runner, probe.spec)
        played = self._start_collector() if overlapped else self._copies(runner.n_training)
        test_env = self._copies(runner.n_tests)
        self.spec = spec = test_env.spec
        check_memory(config, runner, spec)
        if config.save_replay:
            probe = make_batched(config.env, config.env_args, n_copies=1)
            self._cleanup.callback(probe.close)
            check_can_replay(probe)

        torch.manual_seed(seeds.integer("weights"))
        with recorded():  # by `_record_look`, when everything fits
            mac = make_controller(config, spec, device)
        if not config.evaluate:
            check_common_reward(config, spec, mac)
            check_reward_weights(config, spec)
        learner = build_learner(config, spec=spec, mac=mac, device=device)
        scheme = episode_scheme(config, spec, mac)
        numbers = EffectiveNumbers.of(
            config, learner, mac, n_agents=spec.n_agents, wave=runner.n_training
        )
        on_policy = learner.able.on_policy
        buffer = ReplayBuffer(
            scheme,
            capacity=numbers.batch_episodes if on_policy else config.buffer_size,
            max_seq_length=spec.episode_limit + 1,
            device="cpu" if config.buffer_cpu_only else device,
        )
        tester = make_rollout(
            config,
            env=test_env,
            mac=mac.testing(),
            stream="test",
            device=device,
            greedy=config.test_greedy,
        )
        self.parts = Parts(
            config=config,
            mac=mac,
            learning=Learning(
                learner=learner,
                buffer=buffer,
                numbers=numbers,
                sampler=seeds.numpy("replay"),
                device=device,
                lr_finish=config.lr_finish,
            ),
            rollout=self._rollout(played, mac, scheme, waves=on_policy),
            tester=tester,
            meta=model_meta(config, spec, mac),
        )
        self.console.total = numbers.t_max

    def _copies(self, n_copies: int) -> BatchedEnv:
        env = self.runner.copies(n_copies)
        self._cleanup.callback(env.close)
        return env

    def _start_collector(self) -> Link:
        """Before anything else is built: it takes a while to import everything."""
        process = CollectorProcess(self.config)
        self._cleanup.callback(process.end, grace=0.0)
        return process

    def _rollout(
        self, played: BatchedEnv | Link, mac: Controller, scheme: Scheme, *, waves: bool
    ) -> Rollout | Waves | Collector:
        """Who makes the training episodes: this process or, where that is given, another one."""
        config = self.config
        if isinstance(played, Link):
            collector = Collector(played, config=config, mac=mac, scheme=scheme)
            self._cleanup.callback(collector.close)
            return collector
        rollout = make_rollout(
            config, env=played, mac=mac, stream="train", device=self.device, learns=True
        )
        return Waves(rollout) if waves else rollout

    def _header(self, state: str) -> None:
        config, spec, parts = self.config, self.spec, self.parts
        weights = sum(p.numel() for n in parts.learner.networks().values() for p in n.parameters())
        copies, test_copies = self.runner.n_training, parts.tester.env.n_copies
        rows = {
            "run": str(self.folder.path),
            **self._notes,
            "weights": str(self._loaded or ""),
            **self._remarks,
            "environment": f"{spec.name}: {spec.n_agents} agents, {spec.n_actions} actions, "
            f"observation {spec.obs_dim}, state {spec.state_dim}, limit {spec.episode_limit}",
            "versions": ", ".join(f"{name} {value}" for name, value in self._versions().items()),
            "policy": f"{config.mac} with {config.policy_model}, {weights:,} parameters on "
            f"{self.device}, {config.learner}, "
            + (f"critic {config.critic}" if config.critic else f"mixer {config.mixer or 'none'}"),
            "learns": self._who_learns(),
            "tests": f"{config.test_nepisode} episodes on {test_copies} "
            f"{'copy' if test_copies == 1 else 'copies'}",
        }
        if not config.evaluate:
            rows |= {
                "rollouts": f"runner {config.runner}, {copies} "
                f"{'copy' if copies == 1 else 'copies'}, {self._steps()}, "
                f"seed {config.seed}",
                "overlap": self._overlap_row(),
                **self._learning_rows(),
            }
        rows = {name: value for name, value in rows.items() if value}
        self.console.header(f"{state} {config.name} on {config.env}", rows)

    def _who_learns(self) -> str:
        """Which seats, and who takes the others."""
        mac, agents = self.parts.mac, self.spec.n_agents
        seats = agents if mac.seats is None else len(mac.seats)
        learning = "one seat" if mac.learns_one_seat else f"{seats} seats"
        if LEARNERS[self.config.learner].gathers:
            learning = "the opponent model only"
        elif not mac.players():
            return "every seat, each with a model" if type(mac).models else ""
        players = len(mac.players())
        return f"{learning}; {players} frozen player{'s'[: players != 1]} for the others"

    def _steps(self) -> str:
        """How long the run is, and why that is not t_max where one seat learns."""
        steps, asked = self.parts.numbers.t_max, self.config.t_max
        why = f" (t_max={asked:,} for each of {steps // asked} seats)" if steps != asked else ""
        return f"{steps:,} steps{why}"

    def _overlap_row(self) -> str:
        ahead = self.config.collect_ahead
        if not ahead:
            return ""
        return (
            "episodes are played in a process of their own, with weights at most "
            f"{ahead} hand-over{'s'[: ahead != 1]} old (collect_ahead={ahead})"
        )

    def _learning_rows(self) -> dict[str, str]:
        parts = self.parts
        memory = (
            f"{parts.buffer.scheme.bytes_per_step()} bytes per step, up to "
            f"{human_bytes(parts.buffer.byte_estimate())}"
        )
        episodes = parts.numbers.batch_episodes
        if parts.learner.able.on_policy:
            return {"updates": f"one per {episodes} episodes of the present policy, {memory}"}
        return {
            "updates": f"{parts.numbers.updates_per_episode:g} per episode, {episodes} episodes "
            f"each, from the first {episodes} episodes on",
            "replay": f"{parts.buffer.capacity:,} episodes, {memory}",
        }

    def _versions(self) -> dict[str, str]:
        """Of the game that is played, where it is one of its own."""
        return environment_versions(self.config.env, self.config.env_args)

    def _check_unit(self, folder: Path) -> None:
        """Values that were learned in another unit of rewards would mean nothing here."""
        own, theirs = self.config.standardise_rewards, (folder / "rewards.th").is_file()
        if own != theirs:
            raise OmgError(
                f"{folder} was trained with standardise_rewards={theirs}, and its values are in "
                f"that unit. Set standardise_rewards={theirs}, or leave checkpoint_path out."
            )

    def load_checkpoint(self, *, for_training: bool) -> Path:
        """Load what checkpoint_path names; a mismatch is explained before anything changes."""
        config, learner = self.config, self.parts.learner
        folder = find_model_folder(config.checkpoint_path, config.load_step)
        groups = ("shapes", "policy", "critic") if for_training else ("shapes", "policy")
        networks = learner.weights() if for_training else self.parts.mac.networks()
        wanted, team = self.parts.meta, learner.team()
        if for_training and team is None:
            self._check_unit(folder)
        if team is not None:  # it plays, and something else is trained
            networks, groups, for_training = team[0], ("shapes", "policy"), False
            wanted = {**wanted, "policy": team[1]}
        found = load_checked(folder, networks, wanted, groups=groups)
        self._loaded_step = int(found.get("env_steps", config.epsilon_anneal_time))
        if not found and self.spec.obs_scale != 1.0 and config.scale_inputs:
            self._remarks["note"] = (
                "the weights do not say what they were fed. Observations are scaled by "
                f"{self.spec.obs_scale:g} here; for a model of PyMARL set scale_inputs=False"
            )
        if found.get("env_args", self.parts.meta["env_args"]) != self.parts.meta["env_args"]:
            trained_with = f"the weights were trained with env_args={found['env_args']}"
            self._remarks["note"] = trained_with
        if for_training:
            load_optimiser(folder, learner, config)
        learner.after_load()
        return folder

    def go(
        self,
        *,
        sinks: tuple[ScalarSink, ...] = (),
        notes: Mapping[str, str] | None = None,
    ) -> RunResult:
        """Do what the configuration asks for; `sinks` get every metric, `notes` are shown."""
        self._sinks, self._notes = sinks, dict(notes or {})
        if versions := self._versions():
            write_text(self.folder.path / "versions.json", json.dumps(versions, indent=2) + "\n")
        return self.evaluate() if self.config.evaluate else self.train()

    def train(self) -> RunResult:
        """Train to t_max, from the start, a checkpoint or a resume state."""
        config = self.config
        resumed = self._resume_at is not None
        loop = self._loop or self._new_loop()
        record_session(self.folder, config)
        loop.logger = MetricLogger(
            self.folder.metrics,
            sinks=self._sinks,
            resume_at=self._resume_at,
            seconds=loop.counters.seconds,
        )
        self._track(loop.logger, loop.counters.env_steps if resumed else None)
        self._header("Resuming" if resumed else "Training")
        if resumed:
            self.console.say(f"Continuing at step {loop.counters.env_steps:,}.")
        metrics = loop.run()
        if config.save_replay:
            self.replays(loop.counters.env_steps)
        return RunResult(
            self.folder.path, metrics, loop.counters.best_return, loop.counters.best_step
        )

    def _track(self, logger: MetricLogger, env_steps: int | None = None) -> None:
        """Let trackers hear what is logged, and close all in the end."""
        self._cleanup.callback(logger.close)
        records = [] if env_steps is None else readable_metrics(self.folder.metrics)
        found = trackers_of(self.config, self.folder, env_steps=env_steps, records=records)
        for name, tracker in found:
            self._cleanup.push(_closing(tracker))
            logger.add(tracker)
            if tracker.note:
                self._notes[name] = tracker.note

    def _new_loop(self) -> TrainingLoop:
        return TrainingLoop(self.parts, folder=self.folder, console=self.console)

    def continue_from(self, state: Mapping[str, Any]) -> None:
        """Go on from a resume state; one that does not fit is refused before anything of the run
        is touched, and before Sacred records it."""
        refuse_link(self.folder.metrics)
        loop = self._new_loop()
        try:
            loop.load_state_dict(state)
        except OmgError as error:
            raise OmgError(
                f"The resume state of {self.folder.path} cannot be continued from. {error} Start a "
                f"new run; checkpoint_path={self.folder.path} loads its weights."
            ) from error
        self._loop, self._resume_at = loop, int(state["metrics_position"])

    def evaluate(self) -> RunResult:
        """Test the model of checkpoint_path, and save replays if asked to."""
        record_session(self.folder, self.config)
        logger = MetricLogger(self.folder.metrics, sinks=self._sinks)
        self._track(logger)
        self._header("Evaluating")
        step = self._loaded_step
        result = run_test(
            self.parts.tester, self.config.test_nepisode, round_number=0, env_steps=step
        )
        metrics = result.metrics()
        logger.log(metrics, step)
        if self.config.save_replay:
            self.replays(step)
        return RunResult(self.folder.path, metrics)

    def replays(self, env_steps: int) -> list[Path]:
        """Write replays of the present policy, played on a copy of their own."""
        config = self.config
        env = make_batched(config.env, config.env_args, n_copies=1)
        player = make_rollout(
            config,
            env=env,
            mac=self.parts.mac,
            stream="replay",
            device=self.device,
            greedy=config.test_greedy,
            common_reward=False,
        )
        try:
            written = save_replays(
                player, self.folder.replays, config.replay_episodes, env_steps=env_steps
            )
        finally:
            env.close()
        for path in written:
            self.console.say(f"Replay: {path}")
        return written


def _closing(tracker: Tracker) -> Callable[..., None]:
    """Closes a tracker, which is told whether the run failed."""

    def close(kind: type[BaseException] | None, *_: object) -> None:
        tracker.close(failed=kind is not None)

    return close
