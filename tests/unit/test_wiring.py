"""From a key of the configuration to what it does: cutting any of these ways fails a test here."""

from __future__ import annotations

import ast
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import omg
from omg.cli.train import train
from omg.compiled import use_kernels
from omg.components.action_selectors import Multinomial
from omg.components.episodes import EpisodeBatch
from omg.components.seeding import SeedTree
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.controllers.team import BasicMAC
from omg.envs.serial import episode_seed
from omg.envs.toys import TwoStepEnv
from omg.envs.worker_process import WorkerFailedError
from omg.envs.workers import WorkerVectorEnv
from omg.experiment.output import read_metrics
from omg.experiment.run import Run
from omg.functional import Packing
from omg.learners.base import Progress
from omg.learners.q_learner import QLearner
from omg.modules.device import choose_device, kernel_threads, set_up_torch
from omg.modules.kernels.gru import gru_kernel
from omg.modules.kernels.optimiser import FastAdam, FastRMSprop
from omg.policies.inputs import StepView
from omg.runners import Runner, runner_of
from omg.runners.rewards import team_reward
from omg.runners.rollout import Rollout, play_episodes
from omg.storage.files import RunFolder, load_tensors
from omg.types import OmgError

from . import mdps

CPU = torch.device("cpu")
COUNTER = "tests.unit.counter_game:CounterEnv"
TINY = [
    *("--rnn_hidden_dim=16", "--batch_size=4", "--batch_size_run=4", "--test_nepisode=6"),
    *("--t_max=200", "--test_interval=100000", "--use_sacred=False", "--use_tensorboard=False"),
    "--quiet",
]
FORAGING = [
    *("--env-config=foraging", *TINY, "with", "env_args.key=Foraging-5x5-2p-1f-v3"),
    "env_args.max_episode_steps=15",
]
# Enough for every episode of these runs, so that nothing is learned.
NO_LEARNING = ("--batch_size=5000", "--buffer_size=5000")


def settings(*words: str, alg: str = "qmix") -> Config:
    return load_command_line([f"--config={alg}", *FORAGING, *words]).config


def toy(env: str, *words: str, alg: str = "qmix") -> Config:
    return load_command_line([f"--config={alg}", f"--env={env}", *TINY, *words]).config


@contextmanager
def built(folder: Path, config: Config) -> Iterator[Run]:
    folder.mkdir(exist_ok=True)
    with Run(config, RunFolder(folder)) as run:
        yield run


def trained(folder: Path, *words: str, alg: str = "qmix") -> Any:
    return train([f"--config={alg}", *FORAGING, f"--local_results_path={folder}", *words])


def collect(rollout: Rollout, steps: int, *, env_steps: int = 0) -> list[EpisodeBatch]:
    found = (rollout.step(env_steps) for _ in range(steps))
    return [finished.episodes for finished in found if finished is not None]


def unrolled(mac: Any, batch: EpisodeBatch) -> torch.Tensor:
    """Values of whole episodes, [B, T, N, A]; zeros in the padding."""
    played = mac.trajectories(batch)
    return played.packing.unpack(mac.policy.unroll(mac.policy.inputs.packed(played), played))


def estimated_epsilon(mac: Any, batches: list[EpisodeBatch]) -> float:
    """ε from stored actions: a slot with n available actions is not greedy with probability
    ε·(1 - 1/n)."""
    strays, chances = 0.0, 0.0
    for batch in batches:
        avail = batch["avail_actions"]
        with torch.no_grad():
            best = unrolled(mac, batch).masked_fill(~avail, -torch.inf).argmax(-1)
        acted = torch.arange(batch.max_seq_length) < batch.lengths[:, None] - 1
        strays += float((best != batch["actions"])[acted].sum())
        chances += float((1 - 1 / avail[acted].sum(-1)).sum())
    return strays / chances


# --- exploration ----------------------------------------------------------------------------


def test_the_share_of_random_actions_falls_from_epsilon_start_to_epsilon_finish(
    tmp_path: Path,
) -> None:
    words = ("--epsilon_start=0.9", "--epsilon_finish=0.1", "--epsilon_anneal_time=1000")
    with built(tmp_path, settings(*words, "--batch_size_run=32")) as run:
        for env_steps, expected in ((0, 0.9), (500, 0.5), (1000, 0.1), (10_000, 0.1)):
            run.parts.rollout.begin(env_steps)
            played = collect(run.parts.rollout, 45, env_steps=env_steps)
            assert estimated_epsilon(run.parts.mac, played) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(("anneal_time", "expected"), [(8, 0.0), (10**9, 1.0)])
def test_a_training_run_explores_by_the_steps_it_has_made(
    anneal_time: int, expected: float, tmp_path: Path
) -> None:
    words = ("--epsilon_finish=0.0", f"--epsilon_anneal_time={anneal_time}", "--t_max=500")
    with built(tmp_path, settings(*words, *NO_LEARNING)) as run:
        run.go()
        buffer = run.parts.buffer
        everything = buffer.sample(buffer.episodes_in_buffer, np.random.default_rng(0))
        share = estimated_epsilon(run.parts.mac, [everything])
    assert share == pytest.approx(expected, abs=0.1)


def test_epsilon_decay_and_temperature_reach_the_selector() -> None:
    words = ("--epsilon_finish=0.1", "--epsilon_anneal_time=100", "--epsilon_decay=exp")
    mac = BasicMAC(config=settings(*words), spec=mdps.SPEC, device=CPU)
    linear = BasicMAC(config=settings(*words[:2]), spec=mdps.SPEC, device=CPU)
    assert linear.metrics(50)["epsilon"] == pytest.approx(0.55)
    assert mac.metrics(50)["epsilon"] < 0.45
    soft = settings("--action_selector=multinomial", "--temperature=0.25")
    selector = BasicMAC(config=soft, spec=mdps.SPEC, device=CPU).policy.selector
    assert isinstance(selector, Multinomial)
    assert selector.temperature == 0.25


@pytest.mark.parametrize(
    ("greedy", "env_steps", "expected"),
    [(False, 0, 1.0), (False, 100, 0.3), (True, 0, 0.0), (True, 100, 0.0)],
)
def test_tests_explore_with_the_epsilon_of_the_step_unless_test_greedy(
    greedy: bool, env_steps: int, expected: float, tmp_path: Path
) -> None:
    words = ("--epsilon_finish=0.3", "--epsilon_anneal_time=100", f"--test_greedy={greedy}")
    many = ("--test_nepisode=96", "--test_batch_size_run=32")
    with built(tmp_path, settings(*words, *many)) as run:
        played = play_episodes(run.parts.tester, 96, round_number=0, env_steps=env_steps)
        share = estimated_epsilon(run.parts.mac, [finished.episodes for finished in played])
    assert share == pytest.approx(expected, abs=0.07 if expected else 0.0)


def records_of_tests(folder: Path) -> list[dict[str, Any]]:
    found = [r for r in read_metrics(folder / "metrics.jsonl") if "test_return_mean" in r]
    return [{k: v for k, v in r.items() if k != "wall_s"} for r in found]


@pytest.mark.long
def test_tests_of_a_training_run_explore_by_the_steps_it_has_made(tmp_path: Path) -> None:
    words = ("--epsilon_finish=0.0", "--epsilon_anneal_time=80", "--test_interval=100")
    explored = records_of_tests(trained(tmp_path, *words, "--test_greedy=False").folder)
    greedy = records_of_tests(trained(tmp_path, *words, "--test_greedy=True").folder)
    assert [r["t_env"] for r in greedy] == [0, 100, 200]
    assert explored[0] != greedy[0]
    assert explored[1:] == greedy[1:]


@pytest.mark.long
def test_both_kinds_of_test_are_made_where_a_run_asks_for_them(tmp_path: Path) -> None:
    words = ("--epsilon_finish=0.5", "--epsilon_anneal_time=1000", "--test_interval=100")
    explored, greedy, both = (
        records_of_tests(trained(tmp_path, *words, *how).folder)
        for how in (
            ("--test_greedy=False",),
            ("--test_greedy=True",),
            ("--test_greedy=False", "--test_both=True"),
        )
    )
    assert explored != greedy
    for record, played, best in zip(both, explored, greedy, strict=True):
        named = {k.replace("test_", "test_greedy_"): v for k, v in best.items() if "test_" in k}
        assert record == {**played, **named}


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has stopped exploring when it was half over."""
    folder: Path = trained(
        tmp_path_factory.mktemp("explorer"),
        *("--epsilon_finish=0.0", "--epsilon_anneal_time=100", "--save_model_interval=60"),
    ).folder
    return folder


def evaluated(folder: Path, model: Path, *words: str) -> Any:
    return trained(
        folder,
        *("--evaluate", f"--checkpoint_path={model}", "--epsilon_finish=0.0"),
        *("--epsilon_anneal_time=100", *words),
    )


def pictures(run_folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in (run_folder / "replays").glob("*.svg")}


@pytest.mark.long
def test_an_evaluation_and_its_replays_explore_as_little_as_the_trained_step(
    explorer: Path, tmp_path: Path
) -> None:
    words = ("--save_replay", "--replay_episodes=1", "--test_nepisode=20")
    explored = evaluated(tmp_path, explorer, *words, "--test_greedy=False")
    greedy = evaluated(tmp_path, explorer, *words, "--test_greedy=True")
    assert explored.metrics == greedy.metrics
    assert pictures(explored.folder) == pictures(greedy.folder)


@pytest.mark.long
def test_an_evaluation_explores_with_the_epsilon_of_the_loaded_step(
    explorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    play = play_episodes

    def spy(rollout: Rollout, n: int, *, round_number: int, env_steps: int) -> Any:
        seen.append(env_steps)
        return play(rollout, n, round_number=round_number, env_steps=env_steps)

    monkeypatch.setattr("omg.runners.rollout.play_episodes", spy)
    monkeypatch.setattr("omg.runners.replay.play_episodes", spy)
    evaluated(tmp_path, explorer, "--load_step=60", "--save_replay", "--replay_episodes=1")
    assert seen == [60, 60]


@pytest.mark.long
def test_replays_of_a_training_run_explore_as_little_as_its_last_step(tmp_path: Path) -> None:
    words = ("--epsilon_finish=0.0", "--epsilon_anneal_time=100", "--save_replay")
    words += ("--replay_episodes=1",)
    explored = trained(tmp_path, *words, "--test_greedy=False").folder
    greedy = trained(tmp_path, *words, "--test_greedy=True").folder
    assert pictures(explored) == pictures(greedy) != {}


# --- learning -------------------------------------------------------------------------------


def made(*words: str, alg: str = "qmix", spec: Any = mdps.SPEC) -> tuple[BasicMAC, QLearner]:
    torch.manual_seed(0)
    config = settings(*words, alg=alg)
    mac = BasicMAC(config=config, spec=spec, device=CPU)
    return mac, QLearner(config=config, spec=spec, mac=mac, device=CPU)


def some_episodes(*, common: bool = True) -> EpisodeBatch:
    rng = np.random.default_rng(0)
    return mdps.episodes(rng, 4, ending="truncated", common=common, padded=True)


def gradient_norm(learner: QLearner) -> float:
    networks = learner.networks().values()
    grads = [p.grad for network in networks for p in network.parameters()]
    assert all(grad is not None for grad in grads)
    return float(torch.cat([grad.flatten() for grad in grads if grad is not None]).norm())


@pytest.mark.parametrize("alg", ["iql", "qmix"])
def test_the_gradient_is_clipped_to_grad_norm_clip_and_a_huge_one_leaves_it(alg: str) -> None:
    batch = some_episodes(common=alg != "iql")
    _, free = made("--grad_norm_clip=1e9", alg=alg)
    whole = float(free.train(batch, Progress(0, 0, 0))["grad_norm"])
    assert gradient_norm(free) == pytest.approx(whole, rel=1e-4)
    assert whole > 0.02
    _, clipped = made("--grad_norm_clip=0.01", alg=alg)
    reported = float(clipped.train(batch, Progress(0, 0, 0))["grad_norm"])
    assert reported == pytest.approx(whole, rel=1e-4)
    assert gradient_norm(clipped) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_the_optimiser_has_the_settings_of_the_configuration_for_every_weight(
    optimizer: str,
) -> None:
    words = ("--lr=0.0123", "--optim_eps=0.0045", "--optim_alpha=0.67")
    _, learner = made(f"--optimizer={optimizer}", *words)
    kind = {"rmsprop": FastRMSprop, "adam": FastAdam}[optimizer]
    assert type(learner._optimiser) is kind
    for group in learner._optimiser.param_groups:
        assert (group["lr"], group["eps"]) == (0.0123, 0.0045)
        assert group.get("alpha", 0.67) == 0.67
    learned = {id(p) for group in learner._optimiser.param_groups for p in group["params"]}
    networks = learner.networks()
    assert set(networks) == {"agent", "mixer"}
    assert learned == {id(p) for network in networks.values() for p in network.parameters()}


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_training_from_a_checkpoint_takes_new_settings_and_the_saved_moments(
    optimizer: str, tmp_path: Path
) -> None:
    chosen = f"--optimizer={optimizer}"
    first = trained(tmp_path, chosen, "--lr=0.001", "--optim_alpha=0.9").folder
    saved = load_tensors(first / "models" / "last" / "opt.th")["state"]
    words = ("--lr=0.02", "--optim_eps=0.003", "--optim_alpha=0.5", f"--checkpoint_path={first}")
    with built(tmp_path / "second", settings(chosen, *words)) as run:
        learner = run.parts.learner
        assert isinstance(learner, QLearner)
        state = learner._optimiser.state_dict()
    assert [(g["lr"], g["eps"], g.get("alpha", 0.5)) for g in state["param_groups"]] == [
        (0.02, 0.003, 0.5)
    ]
    assert state["state"].keys() == saved.keys() != set()
    for number, moments in saved.items():
        for name, value in moments.items():
            assert torch.equal(torch.as_tensor(state["state"][number][name]), value), name


@pytest.mark.parametrize(("scale_inputs", "scale"), [(True, 0.25), (False, 1.0)])
def test_the_mixers_see_the_state_times_its_scale(scale_inputs: bool, scale: float) -> None:
    spec = replace(mdps.SPEC, state_scale=0.25, obs_scale=0.5)
    _, learner = made(f"--scale_inputs={scale_inputs}", spec=spec)
    batch = some_episodes()
    seen: dict[str, torch.Tensor] = {}
    for name, mixer in (("now", learner.mixer), ("next", learner._target_mixer)):
        assert mixer is not None
        mixer.register_forward_hook(lambda _, args, out, name=name: seen.update({name: args[1]}))
    use_kernels(False)  # one call into C does not show what the mixer is given
    try:
        learner.train(batch, Progress(0, 0, 0))
    finally:
        use_kernels(True)
    packing = Packing.of(batch.filled, batch["terminated"])
    for name, slots in (("now", packing.now), ("next", packing.next)):
        by_hand = batch["state"][packing.episode[slots], packing.time[slots]] * scale
        assert by_hand.any()
        torch.testing.assert_close(seen[name], by_hand)


@pytest.mark.parametrize("scale_inputs", [True, False])
def test_the_kernel_mixes_by_the_same_states(scale_inputs: bool) -> None:
    spec, batch = replace(mdps.SPEC, state_scale=0.25, obs_scale=0.5), some_episodes()
    losses = []
    for on in (True, False):
        _, learner = made(f"--scale_inputs={scale_inputs}", spec=spec)
        use_kernels(on)
        try:
            losses.append(learner.train(batch, Progress(0, 0, 0))["loss"])
        finally:
            use_kernels(True)
    torch.testing.assert_close(*losses)
    assert losses[0] > 0


@pytest.mark.parametrize(
    ("words", "scale"),
    [
        (["--scale_inputs=True"], 0.5),
        (["--scale_inputs=False"], 1.0),
        (["--obs_is_state", "--scale_inputs=True"], 0.25),
        (["--obs_is_state", "--scale_inputs=False"], 1.0),
    ],
)
def test_the_policy_sees_the_observation_times_its_scale(words: list[str], scale: float) -> None:
    spec = replace(mdps.SPEC, state_scale=0.25, obs_scale=0.5)
    mac, _ = made(*words, spec=spec)
    obs, state = torch.tensor([[[3.0, 1.0], [-2.0, 4.0]]]), torch.tensor([[5.0, 7.0]])
    last = torch.tensor([[2, -1]])
    own = state[:, None].expand(1, 2, 2) if "--obs_is_state" in words else obs
    one_hot = torch.tensor([[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    by_hand = torch.cat([own * scale, one_hot, torch.eye(2)[None]], -1)
    avail = torch.ones(1, 2, 3, dtype=torch.bool)
    view = StepView(obs=obs, state=state, avail=avail, last_actions=last)
    with torch.no_grad():
        expected, _ = mac.policy.network.step(by_hand[0], torch.zeros(2, 16))
        outputs, _ = mac.policy.step(view, torch.zeros(1, 2, 16))
        torch.testing.assert_close(outputs[0], expected)
    batch = some_episodes()
    played = mac.trajectories(batch)
    packing, stored = played.packing, mac.policy.inputs.packed(played)[..., :2]
    raw = batch["obs"][packing.episode, packing.time]  # equals the state in this game
    torch.testing.assert_close(stored, raw * scale)


def test_foraging_declares_the_scale_that_runs_use(tmp_path: Path) -> None:
    for flag, scale in (("True", 1 / 5), ("False", 1.0)):
        with built(tmp_path / flag, settings(f"--scale_inputs={flag}")) as run:
            assert run.parts.mac.describe()["scale"] == pytest.approx(scale)


def test_the_sizes_of_networks_and_mixer_are_those_of_the_configuration() -> None:
    words = ("--mixing_embed_dim=5", "--hypernet_embed=7", "--hypernet_layers=2")
    _, learner = made(*words, "--rnn_hidden_dim=11")
    shapes = {n: {tuple(p.shape) for p in m.parameters()} for n, m in learner.networks().items()}
    assert (7, 2) in shapes["mixer"]  # state -> hidden layer of the hyper-network
    assert (2 * 5, 7) in shapes["mixer"]  # hidden layer -> weights of 2 agents x 5 units
    assert (33, 11) in shapes["agent"]  # three gates
    _, shallow = made(*words[:2], "--hypernet_layers=1")
    assert shallow.mixer is not None
    assert (10, 2) in {tuple(p.shape) for p in shallow.mixer.parameters()}
    mlp, _ = made("--policy_model=mlp", "--mlp_hidden_dims=[9, 13]")
    widths = {tuple(p.shape) for p in mlp.policy.network.parameters()}
    assert {(9, 7), (13, 9), (3, 13)} <= widths


def test_an_update_learns_from_batch_size_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    learn = QLearner.train

    def spy(self: QLearner, batch: EpisodeBatch, progress: Progress) -> Any:
        sizes.append(len(batch))
        return learn(self, batch, progress)

    monkeypatch.setattr(QLearner, "train", spy)
    trained(tmp_path, "--batch_size=7")
    assert set(sizes) == {7}


# --- rewards --------------------------------------------------------------------------------


def test_team_reward_by_hand() -> None:
    own = np.array([[1.0, 3.0], [0.0, -2.0]], np.float32)
    same = np.array([[5.0, 5.0], [-1.0, -1.0]], np.float32)
    assert team_reward(own, shared=False, how="sum").tolist() == [4.0, -2.0]
    assert team_reward(own, shared=False, how="mean").tolist() == [2.0, -1.0]
    for how in ("sum", "mean"):
        assert team_reward(same, shared=True, how=how).tolist() == [5.0, -1.0]


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_a_shared_reward_is_stored_and_counted_once(how: str, tmp_path: Path) -> None:
    config = toy("omg.envs.toys:TwoStepEnv", "--runner=batch", f"--reward_scalarisation={how}")
    with built(tmp_path, config) as run:
        rewards = set()
        for finished in [run.parts.rollout.step(0) for _ in range(40)]:
            if finished is None:
                continue
            actions = finished.episodes["actions"]
            room, (one, other) = actions[:, 0, 0], actions[:, 1].T
            expected = torch.from_numpy(TwoStepEnv.PAYOFFS)[room, one, other]
            assert finished.episodes["reward"].shape == (4, 3, 1)
            torch.testing.assert_close(finished.episodes["reward"][:, 1, 0], expected)
            np.testing.assert_allclose(finished.stats.team_returns, expected.numpy())
            rewards |= set(expected.tolist())
    assert rewards == {0.0, 1.0, 7.0, 8.0}


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_reward_scalarisation_and_common_reward_decide_what_foraging_stores(
    how: str, tmp_path: Path
) -> None:
    many = ("--batch_size_run=32", f"--reward_scalarisation={how}")
    played = {}
    for common in (True, False):
        config = settings(*many, f"--common_reward={common}", alg="iql")
        with built(tmp_path / str(common), config) as run:
            finished = [f for f in (run.parts.rollout.step(0) for _ in range(60)) if f]
            assert run.parts.buffer.scheme.item_shape("reward") == (1 if common else 2,)
        played[common] = finished
    earned = 0
    for team, own in zip(played[True], played[False], strict=True):
        assert team.episodes["reward"].shape[-1] == 1
        rewards = own.episodes["reward"]
        assert rewards.shape[-1] == 2
        reduced = rewards.sum(-1) if how == "sum" else rewards.mean(-1)
        torch.testing.assert_close(team.episodes["reward"][..., 0], reduced)
        np.testing.assert_allclose(
            team.stats.team_returns, reduced.sum(-1).numpy(), rtol=1e-5, atol=1e-6
        )
        earned += int((rewards > 0).sum())
    assert earned > 5


# --- workers --------------------------------------------------------------------------------


@contextmanager
def hosted(*words: str) -> Iterator[WorkerVectorEnv]:
    env = runner_of(toy(COUNTER, "--runner=parallel", *words)).copies(4)
    assert isinstance(env, WorkerVectorEnv)
    try:
        env.reset(0)
        yield env
    finally:
        env.close()


def stay(env: WorkerVectorEnv) -> Any:
    return env.step(np.ones((4, 2), np.int64))


@pytest.mark.long
def test_n_workers_is_how_many_processes_there_are() -> None:
    with hosted("--n_workers=3") as env:
        assert len(env.worker_pids) == 3


@pytest.mark.long
def test_on_worker_failure_stop_ends_with_the_first_lost_worker() -> None:
    with hosted("--n_workers=2", "--on_worker_failure=stop") as env:
        os.kill(env.worker_pids[1], signal.SIGKILL)
        with pytest.raises(WorkerFailedError, match="killed by SIGKILL"):
            stay(env)


@pytest.mark.long
def test_on_worker_failure_restart_goes_on_max_worker_restarts_times() -> None:
    with hosted("--n_workers=2", "--on_worker_failure=restart", "--max_worker_restarts=2") as env:
        for _ in range(2):
            os.kill(env.worker_pids[1], signal.SIGKILL)
            assert stay(env).dropped.tolist() == [2, 3]
        os.kill(env.worker_pids[1], signal.SIGKILL)
        with pytest.raises(WorkerFailedError, match="max_worker_restarts is 2"):
            stay(env)


@pytest.mark.long
def test_worker_timeout_is_how_long_a_silent_worker_is_waited_for() -> None:
    with hosted("--n_workers=1", "--worker_timeout=1.5") as env:
        os.kill(env.worker_pids[0], signal.SIGSTOP)
        begin = time.monotonic()
        with pytest.raises(WorkerFailedError, match=r"within 1\.5 seconds"):
            stay(env)
        assert time.monotonic() - begin < 15.0


def parallel_run(folder: Path, *words: str) -> Any:
    """Training on a toy whose copies crash (a text cannot be called) as `words` say."""
    return train(
        [
            *("--config=iql", f"--env={COUNTER}", *TINY, "--runner=parallel", "--n_workers=1"),
            *("--t_max=160", "--batch_size_run=2", "--test_nepisode=2", *NO_LEARNING),
            *(f"--local_results_path={folder}", "with", "env_args.fault=crash", *words),
        ]
    )


def once() -> str:
    """The second episode of copy 0 of a training run, and no other."""
    seed = episode_seed(SeedTree(1).integer("train.env", 0), 0, 1)
    return f"env_args.fault_seed={seed}"


@pytest.mark.long
def test_a_run_ends_or_goes_on_after_a_crash_as_on_worker_failure_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(WorkerFailedError, match="'str' object is not callable"):
        parallel_run(tmp_path, once())
    result = parallel_run(tmp_path, once(), "on_worker_failure=restart", "max_worker_restarts=3")
    assert read_metrics(result.folder / "metrics.jsonl")[-1]["t_env"] == 160
    assert caplog.text.count("It is replaced (1 of at most 3)") == 1
    assert "(2 of" not in caplog.text


@pytest.mark.long
def test_a_run_that_crashes_in_every_episode_ends_after_max_worker_restarts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(WorkerFailedError, match="max_worker_restarts is 1"):
        parallel_run(tmp_path, "on_worker_failure=restart", "max_worker_restarts=1")
    assert caplog.text.count("It is replaced") == 1


# --- copies, replay memory, device ----------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "training", "testing"),
    [
        (["--test_nepisode=20"], 4, 4),
        (["--test_nepisode=3"], 4, 3),
        (["--test_nepisode=20", "--test_batch_size_run=7"], 4, 7),
        (["--test_nepisode=20", "--test_batch_size_run=50"], 4, 20),
        (["--test_nepisode=20", "--runner=episode"], 1, 1),
    ],
)
def test_copies_are_batch_size_run_and_test_batch_size_run(
    words: list[str], training: int, testing: int, tmp_path: Path
) -> None:
    with built(tmp_path, settings(*words)) as run:
        assert run.parts.rollout.env.n_copies == training
        assert run.parts.tester.env.n_copies == testing


class TwoForOne(Runner):
    """A runner of a user's own."""

    @property
    def n_training(self) -> int:
        return 2 * self.config.batch_size_run


@pytest.mark.parametrize("alg", ["qmix", "ippo"])
def test_a_runner_of_ones_own_says_how_many_copies_there_are(alg: str, tmp_path: Path) -> None:
    config = settings(f"--runner={__name__}:TwoForOne", "--test_nepisode=20", alg=alg)
    with built(tmp_path, config) as run:
        assert run.parts.rollout.env.n_copies == run.parts.tester.env.n_copies == 8
        # on-policy, whole waves of all copies
        assert run.parts.numbers.batch_episodes == (8 if alg == "ippo" else 4)
        run.go()


def test_every_test_has_test_nepisode_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    play = play_episodes

    def spy(*args: Any, **options: Any) -> Any:
        played = play(*args, **options)
        counts.append(sum(len(finished.episodes) for finished in played))
        return played

    monkeypatch.setattr("omg.runners.rollout.play_episodes", spy)
    folder = trained(tmp_path, "--test_nepisode=5", "--test_interval=100").folder
    assert counts == [5, 5, 5]
    trained(tmp_path, "--test_nepisode=9", "--evaluate", f"--checkpoint_path={folder}")
    assert counts == [5, 5, 5, 9]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("auto", torch.int8), ("float16", torch.float16), ("float32", torch.float32)],
)
def test_buffer_dtype_is_how_observations_are_kept(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    with built(tmp_path, settings(f"--buffer_dtype={name}", "--t_max=120")) as run:
        run.go()
        sample = run.parts.buffer.sample(1, np.random.default_rng(0))
        assert sample.raw("obs").dtype is sample.raw("state").dtype is dtype
        assert sample.raw("obs").any()


def test_buffer_size_is_how_many_episodes_are_kept(tmp_path: Path) -> None:
    with built(tmp_path, settings("--buffer_size=9", "--t_max=400")) as run:
        run.go()
        assert run.parts.buffer.episodes_in_buffer == 9
    assert read_metrics(tmp_path / "metrics.jsonl")[-1]["t_env"] == 400


@pytest.mark.parametrize(("cpu_only", "expected"), [(True, "cpu"), (False, "meta")])
def test_buffer_cpu_only_decides_where_episodes_are_kept(
    cpu_only: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omg.experiment.run.choose_device", lambda config: torch.device("meta"))
    with built(tmp_path, settings(f"--buffer_cpu_only={cpu_only}")) as run:
        assert run.parts.buffer._store.raw("obs").device.type == expected


def test_torch_threads_are_set_and_0_leaves_them(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        for wanted, expected in ((3, 3), (0, 3), (2, 2)):
            with built(tmp_path, settings(f"--torch_threads={wanted}", "--policy_model=mlp")):
                assert torch.get_num_threads() == kernel_threads() == expected
        with built(tmp_path, settings("--torch_threads=2")):
            assert (torch.get_num_threads(), kernel_threads()) == (
                (1, 2) if gru_kernel()[0] else (2, 2)
            )
        for other in ("--torch_threads=0", "--use_kernels=False", "--rnn_hidden_dim=50"):
            words = () if "threads" in other else ("--torch_threads=2",)
            with built(tmp_path, settings(other, *words)):
                assert torch.get_num_threads() == kernel_threads() == 2
    finally:
        set_up_torch(settings("--torch_threads=1"))
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("device", "use_cuda", "present", "expected"),
    [
        ("auto", True, False, "cpu"),
        ("auto", True, True, "cuda"),
        ("auto", False, True, "cpu"),
        ("cpu", True, True, "cpu"),
        ("cuda", False, True, "cuda"),
    ],
)
def test_the_device_is_the_one_asked_for(
    device: str, use_cuda: bool, present: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(present))
    config = settings(f"--device={device}", f"--use_cuda={use_cuda}")
    assert choose_device(config).type == expected


@pytest.mark.parametrize(("device", "count"), [("cuda", 0), ("cuda:1", 1)])
def test_a_device_that_is_not_there_is_refused_before_anything_runs(
    device: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(OmgError, match=f"device={device} is not available here"):
        trained(tmp_path, f"--device={device}")
    assert not list(tmp_path.iterdir())


# --- what a run leaves behind ---------------------------------------------------------------


def test_intervals_decide_when_a_run_tests_logs_and_saves(tmp_path: Path) -> None:
    folder = trained(
        tmp_path,
        *("--t_max=240", "--test_interval=60", "--runner_log_interval=40"),
        *("--learner_log_interval=80", "--save_model_interval=100", "--resume_interval=1000"),
    ).folder
    records = read_metrics(folder / "metrics.jsonl")
    at = {
        name: [r["t_env"] for r in records if name in r]
        for name in ("test_return_mean", "return_mean", "loss")
    }
    assert at["test_return_mean"] == [0, 60, 120, 180, 240]
    assert at["loss"] == [80, 160, 240]
    gaps = np.diff([0, *at["return_mean"][:-1]])  # the last record is that of the end
    assert len(gaps) >= 4
    assert gaps.min() >= 40
    assert gaps.max() <= 40 + 15 * 4  # at most one episode of all copies later
    assert {p.name for p in (folder / "models").iterdir()} == {"100", "200", "240", "best", "last"}
    assert [p.name for p in (folder / "resume").iterdir()] == ["240"]


def test_keep_models_keeps_the_newest_steps(tmp_path: Path) -> None:
    words = ("--save_model_interval=40", "--keep_models=2")
    folder = trained(tmp_path, *words).folder
    assert {p.name for p in (folder / "models").iterdir()} == {"160", "200", "best", "last"}


def test_save_model_false_and_resume_interval_0_write_nothing(tmp_path: Path) -> None:
    words = ("--save_model=False", "--save_model_interval=40", "--resume_interval=0")
    folder = trained(tmp_path, *words).folder
    assert not (folder / "models").exists()
    assert not (folder / "resume").exists()


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 4])
def test_replay_episodes_is_how_many_replays_are_written(count: int, tmp_path: Path) -> None:
    words = ("--save_replay", f"--replay_episodes={count}", "--t_max=60")
    folder = trained(tmp_path, *words).folder
    expected = {f"episode_{k}.{kind}" for k in range(count) for kind in ("svg", "gif")}
    assert {p.name for p in (folder / "replays").iterdir()} == expected


# Keys that need no reader of their own outside omg/config, each with the reason.
READ_BY_THE_LOADER: dict[str, str] = {}


@pytest.mark.long
def test_every_key_of_the_configuration_is_read_somewhere() -> None:
    package = Path(next(iter(omg.__path__)))
    read: set[str] = set()
    for path in package.rglob("*.py"):
        if path.is_relative_to(package / "config"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                owner = node.value
                name = getattr(owner, "id", None) or getattr(owner, "attr", None)
                if name in ("config", "_config"):
                    read.add(node.attr)
    unread = set(Config.model_fields) - read
    assert unread == set(READ_BY_THE_LOADER), "a key that changes nothing, or a stale exception"
