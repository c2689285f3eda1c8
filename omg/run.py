"""Composition root: builds every part of a run from a configuration, and runs it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from omg.components.replay_buffer import ReplayBuffer
from omg.components.scheme import Scheme, environment_scheme
from omg.components.seeding import SeedTree
from omg.config.schema import Config
from omg.controllers import Controller, controller_class
from omg.envs import BatchedEnv, make_batched
from omg.envs.registry import environment_versions
from omg.evaluation.replay import check_can_replay, save_replays
from omg.evaluation.testing import run_test
from omg.learners import LEARNERS
from omg.learners.am_learner import ACCURACY, check_accuracy
from omg.modules.speed import set_up_torch
from omg.runners import RUNNERS
from omg.runners.assembly import episode_scheme, make_rollout
from omg.runners.builders import copies_in_tests, copies_in_training
from omg.runners.overlap import Collector, CollectorProcess, Link
from omg.runners.rollout import Rollout
from omg.runners.waves import Waves
from omg.storage.files import load_tensors, write_text
from omg.storage.models import check_meta, find_model_folder, load_networks
from omg.storage.run_folder import RunFolder
from omg.telemetry.console import RunConsole, human_bytes
from omg.telemetry.logger import MetricLogger, ScalarSink
from omg.training import EffectiveNumbers, Parts, TrainingLoop
from omg.types import EnvSpec, OmgError

# Settings that a prior does not depend on.
POLICY_ONLY = (
    *("input_dim", "policy_model", "rnn_hidden_dim", "mlp_hidden_dims", "dueling"),
    *("obs_last_action", "obs_agent_id", "agent_output_type", "subgoal_inference"),
    *("subgoal_feature", "am_present"),
)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a finished run hands back."""

    folder: Path
    metrics: Mapping[str, float]
    best_return: float | None = None
    best_step: int | None = None


def package_version() -> str:
    try:
        return version("omg-marl")
    except PackageNotFoundError:
        return "unknown"


def choose_device(config: Config) -> torch.device:
    """The device a run uses; asking for one that is not there is an error, `auto` is not."""
    if config.device == "auto":
        return torch.device("cuda" if config.use_cuda and torch.cuda.is_available() else "cpu")
    device = torch.device(config.device)
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }[device.type]
    if present and device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        present = False
    if not present:
        raise OmgError(f"device={config.device} is not available here. Use device=auto or cpu.")
    return device


def tune_allocator() -> None:
    """Keep freed memory for the next update instead of returning it to the system each time:
    glibc maps every large tensor anew otherwise, and the page faults cost more than the maths."""
    if platform.system() != "Linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        mmap_threshold, trim_threshold = -3, -1
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, 1 << 30)


def sanity_check(config: Config) -> None:
    """Combinations that are refused before anything is built."""
    if config.evaluate and not config.checkpoint_path:
        raise OmgError("evaluate needs a model. Give checkpoint_path=<run or models folder>.")
    if config.resume and (config.evaluate or config.checkpoint_path):
        raise OmgError("resume continues a run as it was. Leave out evaluate and checkpoint_path.")
    if config.collect_ahead and LEARNERS[config.learner].able.on_policy:
        raise OmgError(
            f"learner={config.learner} learns only from what its present policy played, and "
            f"collect_ahead={config.collect_ahead} plays with older weights. Set collect_ahead=0."
        )


def model_meta(config: Config, spec: EnvSpec, policy: Mapping[str, Any]) -> dict[str, Any]:
    """What is written beside weights and compared when they are loaded."""
    return {
        "format": 1,
        "version": package_version(),
        "algorithm": config.name,
        "learner": config.learner,
        "mac": config.mac,
        "mixer": config.mixer,
        "seed": config.seed,
        "common_reward": config.common_reward,
        "env": config.env,
        "env_args": dict(config.env_args),
        "shapes": {
            "n_agents": spec.n_agents,
            "n_actions": spec.n_actions,
            "obs_dim": spec.obs_dim,
            "state_dim": spec.state_dim,
        },
        **({"seat_roles": list(spec.roles)} if spec.roles else {}),
        "policy": dict(policy),
        **({"critic": _critic_meta(config)} if config.critic else {}),
    }


def _critic_meta(config: Config) -> dict[str, Any]:
    """What a critic's weights depend on; compared when training goes on with them."""
    return {
        "critic": config.critic,
        "critic_hidden_dims": list(config.critic_hidden_dims),
        "standardise_values": config.standardise_values,
    }


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
        self._remarks: dict[str, str] = {}
        self.console = RunConsole(
            total=config.t_max, log_interval=config.log_interval, quiet=config.quiet
        )
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Run:
        try:
            self._build()
            self._load_prior()
            if self.config.checkpoint_path:
                self._loaded = self.load_checkpoint(for_training=not self.config.evaluate)
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._cleanup.close()

    def _build(self) -> None:
        config = self.config
        tune_allocator()
        set_up_torch(config)
        self.device = device = choose_device(config)
        seeds = SeedTree(config.seed)
        overlapped = config.collect_ahead > 0 and not config.evaluate
        played = self._start_collector() if overlapped else self._copies(copies_in_training(config))
        test_env = self._copies(copies_in_tests(config))
        self.spec = spec = test_env.spec
        if config.save_replay:
            probe = make_batched(config.env, config.env_args, n_copies=1)
            self._cleanup.callback(probe.close)
            check_can_replay(probe)

        torch.manual_seed(seeds.integer("weights"))
        mac = controller_class(config)(config=config, spec=spec, device=device)
        learner = LEARNERS[config.learner](config=config, spec=spec, mac=mac, device=device)
        scheme = episode_scheme(config, spec, mac)
        numbers = EffectiveNumbers.of(config, learner, spec.n_agents)
        on_policy = learner.able.on_policy
        buffer = ReplayBuffer(
            scheme,
            capacity=numbers.batch_episodes if on_policy else config.buffer_size,
            max_seq_length=spec.episode_limit + 1,
            device="cpu" if config.buffer_cpu_only else device,
        )
        self.parts = Parts(
            config=config,
            mac=mac,
            learner=learner,
            buffer=buffer,
            rollout=self._rollout(played, mac, scheme, waves=on_policy),
            tester=make_rollout(
                config,
                env=test_env,
                mac=mac.recording(),
                stream="test",
                device=device,
                greedy=config.test_greedy,
            ),
            sampler=seeds.numpy("replay"),
            numbers=numbers,
            meta={**model_meta(config, spec, mac.describe()), "players": mac.players()},
            device=device,
        )
        self.console.total = self.parts.numbers.t_max

    def _copies(self, n_copies: int) -> BatchedEnv:
        env = RUNNERS[self.config.runner](self.config, n_copies)
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
        rollout = make_rollout(config, env=played, mac=mac, stream="train", device=self.device)
        return Waves(rollout) if waves else rollout

    def _header(self, state: str) -> None:
        config, spec, parts = self.config, self.spec, self.parts
        weights = sum(p.numel() for n in parts.learner.networks().values() for p in n.parameters())
        copies, test_copies = copies_in_training(config), parts.tester.env.n_copies
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
            "tests": f"{config.test_nepisode} episodes on {test_copies} "
            f"{'copy' if test_copies == 1 else 'copies'}",
        }
        if not config.evaluate:
            rows |= {
                "rollouts": f"runner {config.runner}, {copies} "
                f"{'copy' if copies == 1 else 'copies'}, {parts.numbers.t_max:,} steps, "
                f"seed {config.seed}",
                "overlap": self._overlap_row(),
                **self._learning_rows(),
            }
        rows = {name: value for name, value in rows.items() if value}
        self.console.header(f"{state} {config.name} on {config.env}", rows)

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

    def load_checkpoint(self, *, for_training: bool) -> Path:
        """Load what checkpoint_path names; a mismatch is explained before anything changes."""
        config, learner = self.config, self.parts.learner
        folder = find_model_folder(config.checkpoint_path, config.load_step)
        groups = ("shapes", "policy", "critic") if for_training else ("shapes", "policy")
        found = check_meta(folder, self.parts.meta, groups=groups)
        self._loaded_step = int(found.get("env_steps", config.epsilon_anneal_time))
        self._note_env_args(found, "weights were")
        load_networks(folder, learner.networks() if for_training else self.parts.mac.networks())
        if for_training and (folder / "opt.th").is_file():
            state = load_tensors(folder / "opt.th")
            try:
                learner.load_optimiser_state(state)
            except (ValueError, KeyError, TypeError) as error:
                writer = found.get("algorithm", "another program")
                raise OmgError(
                    f"{folder / 'opt.th'} was written by {writer} and does not fit "
                    f"optimizer={config.optimizer} of {config.name}: {error}. Use the algorithm "
                    "and optimiser it was saved with, or delete the file to start it anew."
                ) from error
        learner.after_load()
        return folder

    def _note_env_args(self, found: Mapping[str, Any], what: str) -> None:
        """Show that other env_args of equal sizes and observations stood behind what is loaded."""
        if found.get("env_args", self.parts.meta["env_args"]) != self.parts.meta["env_args"]:
            self._remarks["note"] = f"the {what} trained with env_args={found['env_args']}"

    def _load_prior(self) -> None:
        """A subgoal agent needs the prior of the pre-training stage."""
        config = self.config
        if not self.parts.learner.needs_prior or config.evaluate or config.checkpoint_path:
            return
        name = config.train_alg or config.name
        if not config.init_param_path:
            raise OmgError(
                f"{config.name} needs a pre-trained prior. Give init_param_path=<folder with "
                f"{name}/vae.th>, made by --learner=am_learner."
            )
        root = Path(config.init_param_path).expanduser()
        if (root / name / "vae.th").is_file():
            folder = root
        else:  # a run that was made by am_learner, or a folder of runs that holds one by that name
            named = str(root / name if (root / name).is_dir() else root)
            folder = find_model_folder(named, 0, key="init_param_path", holding=f"{name}/vae.th")
        made = sorted(folder.glob("*/vae.th"))
        weights = folder / name / "vae.th"
        if not weights.is_file() and len(made) == 1:  # of another algorithm: its policy is not used
            weights = made[0]
        if not weights.is_file():
            raise OmgError(
                f"init_param_path={config.init_param_path} holds no prior ({folder / name}/vae.th "
                f"does not exist). Pre-train one with --config={config.team or name} "
                "--learner=am_learner, or give another folder."
            )
        found = check_meta(folder, self.parts.meta, without=POLICY_ONLY)
        check_accuracy(float(found.get(ACCURACY, 1.0)), config, f"The prior in {folder}")
        self._note_env_args(found, "prior was")
        networks = self.parts.mac.networks()
        load_networks(folder, {f"{weights.parent.name}/vae": networks[f"{name}/vae"]})
        self._remarks["prior"] = str(weights)

    def go(
        self,
        resume_state: Mapping[str, Any] | None = None,
        *,
        sinks: tuple[ScalarSink, ...] = (),
        notes: Mapping[str, str] | None = None,
    ) -> RunResult:
        """Do what the configuration asks for; `sinks` get every metric, `notes` are shown."""
        self._sinks, self._notes = sinks, dict(notes or {})
        if versions := self._versions():
            write_text(self.folder.path / "versions.json", json.dumps(versions, indent=2) + "\n")
        return self.evaluate() if self.config.evaluate else self.train(resume_state)

    def train(self, resume_state: Mapping[str, Any] | None = None) -> RunResult:
        """Train to t_max, from the start, a checkpoint or a resume state."""
        config = self.config
        resumed_at = resume_state["metrics_position"] if resume_state else None
        logger = MetricLogger(
            self.folder.metrics,
            tensorboard=self.folder.path / "tb" if config.use_tensorboard else None,
            sinks=self._sinks,
            resume_at=resumed_at,
            env_steps=resume_state["counters"]["env_steps"] if resume_state else 0,
            seconds=resume_state["counters"]["seconds"] if resume_state else 0.0,
        )
        self._cleanup.callback(logger.close)
        loop = TrainingLoop(self.parts, folder=self.folder, logger=logger, console=self.console)
        if resume_state:
            loop.load_state_dict(resume_state)
        self._header("Resuming" if resume_state else "Training")
        if resume_state:
            self.console.say(f"Continuing at step {loop.counters.env_steps:,}.")
        metrics = loop.run()
        if config.save_replay:
            self.replays(loop.counters.env_steps)
        return RunResult(
            self.folder.path, metrics, loop.counters.best_return, loop.counters.best_step
        )

    def evaluate(self) -> RunResult:
        """Test the model of checkpoint_path, and save replays if asked to."""
        self._header("Evaluating")
        logger = MetricLogger(self.folder.metrics, sinks=self._sinks)
        self._cleanup.callback(logger.close)
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
        config, spec = self.config, self.spec
        env = make_batched(config.env, config.env_args, n_copies=1)
        scheme = environment_scheme(spec, common_reward=False)
        player = Rollout(
            env=env,
            mac=self.parts.mac,
            scheme=scheme.extend(self.parts.mac.record_fields()),
            seeds=SeedTree(config.seed),
            stream="replay",
            device=self.device,
            common_reward=False,
            reward_scalarisation=config.reward_scalarisation,
            gamma=config.gamma,
            greedy=config.test_greedy,
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
