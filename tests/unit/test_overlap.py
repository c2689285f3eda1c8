"""Collect while learning: what is played, with which weights, and that nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import omg.experiment.run
from omg.cli.train import train
from omg.components.episodes import Field
from omg.config.arguments import parse_arguments
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.controllers.base import Acted
from omg.controllers.team import BasicMAC, MultiModuleMAC
from omg.experiment.run import Run
from omg.experiment.session import prepare
from omg.experiment.training import RunInterrupted, TrainingLoop
from omg.policies.inputs import StepView
from omg.runners import runner_of
from omg.runners.assembly import episode_scheme, make_controller, make_rollout
from omg.runners.overlap import Collector, child
from omg.runners.overlap.child import SharedWeights, acting_networks, layout_of
from omg.runners.overlap.collector import CollectorFailedError
from omg.runners.rollout import Finished, Rollout
from omg.storage.files import create_run_folder
from omg.types import EnvSpec, OmgError, RunFailedError

from .small_runs import Runs, assert_same, assert_sound, records, saved
from .threaded_collector import COUNTER, SETTINGS, SMALL, TASK, ThreadLink, run, use_threads

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch)


def settings(*words: str) -> Config:
    return load_command_line([*SMALL, *words]).config


class Stamped(BasicMAC):
    """Stores with every step the number that its network's last bias holds."""

    def record_fields(self) -> dict[str, Field]:
        return {"stamp": Field()}

    def act(self, view: StepView, carry: Any, **rest: Any) -> Acted:
        acted = super().act(view, carry, **rest)
        stamp = list(self.policy.network.parameters())[-1].detach().flatten()[0].item()
        return Acted(acted.actions, acted.carry, {"stamp": np.full(len(view.obs), stamp)})


@contextmanager
def collecting(config: Config, kind: type[BasicMAC] = BasicMAC) -> Iterator[Collector]:
    torch.manual_seed(5)
    spec = runner_of(config).copies(1).spec
    mac = kind(config=config, spec=spec, device=CPU)
    collector = Collector(
        ThreadLink(config), config=config, mac=mac, scheme=episode_scheme(config, spec, mac)
    )
    try:
        yield collector
    finally:
        collector.close()


def assert_equal_hand_overs(one: Finished | None, other: Finished | None) -> None:
    assert (one is None) == (other is None)
    if one is None or other is None:
        return
    assert torch.equal(one.episodes.filled, other.episodes.filled)
    for name in one.episodes.scheme.fields:
        assert torch.equal(one.episodes.raw(name), other.episodes.raw(name)), name
    for name in ("copies", "returns", "team_returns", "lengths", "truncated"):
        np.testing.assert_array_equal(getattr(one.stats, name), getattr(other.stats, name))
    assert one.stats.info.keys() == other.stats.info.keys()
    for name, value in one.stats.info.items():
        np.testing.assert_array_equal(value, other.stats.info[name])


# --- what is played ------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ahead", [1, 3])
def test_with_weights_that_do_not_change_the_steps_are_those_of_a_rollout(ahead: int) -> None:
    config = settings(f"--collect_ahead={ahead}")
    torch.manual_seed(5)
    runner = runner_of(config)
    env = runner.copies(runner.n_training)
    mac = BasicMAC(config=config, spec=env.spec, device=CPU)
    rollout = make_rollout(config, env=env, mac=mac, stream="train", device=CPU)
    env_steps = ended = 0
    with collecting(config) as collector:
        for _ in range(80):
            mine, theirs = collector.step(env_steps), rollout.step(env_steps)
            assert collector.stepped_last == rollout.stepped_last == 3
            assert_equal_hand_overs(mine, theirs)
            env_steps += rollout.stepped_last  # ε falls with it
            ended += mine is not None
    assert ended > 10


@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize("slow", ["nobody", "learner", "collector"])
def test_hand_over_k_is_played_with_what_was_learned_ahead_hand_overs_before_the_newest(
    ahead: int, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stamped(config: Config, spec: EnvSpec, device: torch.device) -> Stamped:
        return Stamped(config=config, spec=spec, device=device)

    monkeypatch.setattr(child, "make_controller", stamped)
    play = child.Host.play

    def slowly(host: child.Host, slot: int) -> Any:
        time.sleep(0.004)
        return play(host, slot)

    if slow == "collector":
        monkeypatch.setattr(child.Host, "play", slowly)
    found = []
    # One copy: a hand-over is one whole episode.
    with collecting(settings(f"--collect_ahead={ahead}", "--runner=episode"), Stamped) as collector:
        bias = list(collector._networks["agent"].parameters())[-1]
        for learned in range(15):
            with torch.no_grad():
                bias.fill_(learned)
            if slow == "learner":
                time.sleep(0.004)
            while (finished := collector.step(0)) is None:
                pass
            stamps = finished.episodes["stamp"][finished.episodes.filled][:-1]
            assert (stamps == stamps[0]).all()
            assert collector.version_last == int(stamps[0])
            found.append(int(stamps[0]))
    assert found == [max(0, number - ahead) for number in range(15)]


def test_shared_weights_arrive_whole_whatever_their_types_and_sizes() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 5)
            self.empty = nn.Parameter(torch.zeros(0, 4))
            for name, value in {
                "count": torch.tensor(7),
                "flags": torch.tensor([True, False, True]),
                "wide": torch.randn(3, dtype=torch.float64),
            }.items():
                self.register_buffer(name, value)

    sent, received = {"a": Odd(), "b/c": Odd()}, {"a": Odd(), "b/c": Odd()}
    memory = SharedWeights(layout_of(sent), slots=3)
    other = SharedWeights(layout_of(received), slots=3, name=memory.name)
    try:
        for slot in range(3):
            for value in sent["b/c"].parameters():
                nn.init.constant_(value, slot + 1.0)
            memory.write(slot, 10 + slot, sent)
        for slot in (2, 0, 1):
            assert other.read(slot, received) == 10 + slot
            assert (received["b/c"].linear.bias == slot + 1.0).all()
            for name, value in sent["a"].state_dict().items():
                assert torch.equal(value, received["a"].state_dict()[name])
        assert memory.beats == 0
        other.beat()
        assert memory.beats == 1
    finally:
        memory.unlink()
        other.close()
        memory.close()


def test_an_opponent_model_that_saves_nothing_still_acts_with_what_was_learned(
    scripted_pool: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--config=iql_am", *TASK, f"--opponent_pool={scripted_pool('random')}"]
    config = load_command_line(words).config
    mac = make_controller(config, runner_of(config).copies(1).spec, CPU)
    assert isinstance(mac, MultiModuleMAC)
    assert mac.model is not None
    shared = {name for name, _, _ in layout_of(acting_networks(mac))}
    monkeypatch.setattr(type(mac.model), "files", lambda model: {})
    learned = {f"opponent model/{name}" for name, _ in mac.model.named_parameters()}
    assert learned <= {name for name, _, _ in layout_of(acting_networks(mac))}
    # No tensor is sent twice where the model does save it.
    assert len(shared) == len([*mac.policy.network.parameters(), *mac.model.parameters()])


# --- whole runs ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        use_threads(patch)
        return run(tmp_path_factory.mktemp("reference"), "--collect_ahead=2", "--run_name=run")


def test_without_collect_ahead_no_collector_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(config: Config) -> None:
        raise AssertionError("started")

    monkeypatch.setattr(omg.experiment.run, "CollectorProcess", refuse)
    assert settings().collect_ahead == 0
    config, _ = prepare(parse_arguments([*SMALL, f"--local_results_path={tmp_path}"]))
    with Run(config, create_run_folder(config)) as made:
        assert isinstance(made.parts.rollout, Rollout)
    with pytest.raises(AssertionError, match="started"):
        run(tmp_path, "--collect_ahead=1")


@pytest.mark.long
def test_a_policy_that_acts_at_random_gives_the_very_run_it_gives_without(tmp_path: Path) -> None:
    """What is played does not depend on weights then, so all numbers have to be the same: steps,
    episodes, updates, losses, and when tests are made and models are saved."""
    random = ("--epsilon_finish=1.0", "--updates_per_episode=2")
    plain = run(tmp_path, *random, "--run_name=plain")
    overlapped = run(tmp_path, *random, "--run_name=overlapped", "--collect_ahead=2")
    assert_same(plain, overlapped)
    names = [{path.name for path in (r / "models").iterdir()} for r in (plain, overlapped)]
    assert names[0] == names[1] >= {"best", "last"}
    last = [record for record in records(overlapped) if "updates" in record][-1]
    assert last["updates"] > 60
    assert last["t_env"] in range(700, 703)


@pytest.mark.long
def test_a_policy_that_learned_plays_differently_with_older_weights(
    reference: Path, tmp_path: Path
) -> None:
    assert records(run(tmp_path)) != records(reference)
    assert records(run(tmp_path, "--collect_ahead=1")) != records(reference)


@pytest.mark.long
def test_neither_side_s_speed_changes_the_result(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play, step = child.Host.play, TrainingLoop._step
    rng = np.random.default_rng(0)

    def slow_play(host: child.Host, slot: int) -> Any:
        time.sleep(rng.choice([0.0, 0.01]))
        return play(host, slot)

    def slow_step(loop: TrainingLoop) -> None:
        time.sleep(rng.choice([0.0, 0.01]))
        step(loop)

    with monkeypatch.context() as patch:
        patch.setattr(child.Host, "play", slow_play)
        assert_same(reference, run(tmp_path, "--collect_ahead=2"))
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", slow_step)
        assert_same(reference, run(tmp_path, "--collect_ahead=2"))


def stopped_and_resumed(folder: Path, at: int, *words: str) -> Path:
    step, words = TrainingLoop._step, (*words, "--run_name=stopped")

    def stop(loop: TrainingLoop) -> None:
        step(loop)
        loop.stop.requested = loop.counters.env_steps >= at

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", stop)
        with pytest.raises(RunInterrupted):
            run(folder, *words)
    return run(folder, *words, "--resume")


@pytest.mark.long
@pytest.mark.parametrize(
    "at", [3, 402, 405, 408]
)  # before the first and in the midst of hand-overs
def test_a_stopped_and_resumed_run_equals_one_that_never_stopped(
    at: int, reference: Path, tmp_path: Path
) -> None:
    assert_same(reference, stopped_and_resumed(tmp_path, at, "--collect_ahead=2"))


@pytest.mark.long
def test_a_game_that_cannot_be_copied_continues_equally_from_a_resume_state(
    tmp_path: Path,
) -> None:
    words, small = ("--collect_ahead=2", "--resume_interval=300"), ["--config=vdn", *COUNTER]
    small += SETTINGS
    whole = run(tmp_path, *words, "--run_name=whole", small=small)
    with pytest.MonkeyPatch.context() as patch:
        step = TrainingLoop._step

        def die(loop: TrainingLoop) -> None:
            step(loop)
            if loop.counters.env_steps >= 450:
                raise RuntimeError("power cut")

        patch.setattr(TrainingLoop, "_step", die)
        with pytest.raises(RuntimeError, match="power cut"):
            run(tmp_path, *words, "--run_name=cut", small=small)
    assert_same(whole, run(tmp_path, *words, "--run_name=cut", "--resume", small=small))


@pytest.mark.long
def test_a_finished_run_goes_on_with_a_larger_t_max(reference: Path, tmp_path: Path) -> None:
    words = ("--collect_ahead=2", "--run_name=half", "--save_model_interval=10000")
    run(tmp_path, *words, "--t_max=500")
    again = run(tmp_path, *words, "--t_max=700", "--resume")
    whole, longer = saved(reference), saved(again)
    assert all(torch.equal(whole[name], longer[name]) for name in whole)


@pytest.mark.long
def test_a_team_learns_a_game_of_one_step(tmp_path: Path) -> None:
    game = ["--env-config=matrix_game", "--env_args.payoff=[[0, 1, 2], [1, 2, 3], [2, 3, 8]]"]
    folder = run(
        tmp_path,
        *("--collect_ahead=2", "--t_max=600", "--epsilon_finish=0.2", "--lr=0.003"),
        *("--policy_model=mlp", "--mlp_hidden_dims=[16]", "--batch_size=16"),
        small=["--config=vdn", *game, *SETTINGS],
    )
    tests = [r["test_return_mean"] for r in records(folder) if "test_return_mean" in r]
    assert tests[0] < 8.0
    assert tests[-1] == 8.0


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["d3qn_omg", "iql_omg, prior", "d3qn_liam", "d3qn_meliba", "d3qn_types", "qtran", "iql_idv"],
)
def test_off_policy_algorithms_of_every_kind_run(name: str, tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    once = runs.run(name, "--collect_ahead=1", "--run_name=once")
    assert_sound(once)
    assert_same(once, runs.run(name, "--collect_ahead=1", "--run_name=twice"))


def test_the_start_says_how_old_weights_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "--collect_ahead=2", "--quiet=False", "--t_max=10")
    told = " ".join(capsys.readouterr().out.split())  # lines are broken between words
    assert "with weights at most 2 hand-overs old (collect_ahead=2)" in told
    run(tmp_path, "--quiet=False", "--t_max=10")
    assert "hand-over" not in capsys.readouterr().out


# --- what is refused, and what fails ---------------------------------------------------------


@pytest.mark.parametrize("config", ["ippo", "coma"])
def test_learners_of_the_present_policy_s_play_are_refused(config: str, tmp_path: Path) -> None:
    with pytest.raises(OmgError, match=r"present policy played.* Set collect_ahead=0"):
        run(tmp_path, "--collect_ahead=1", small=[f"--config={config}", *TASK])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["-1", "65", "True", "0.5"])
def test_impossible_values_are_refused(value: str) -> None:
    with pytest.raises(OmgError, match=r"collect_ahead=.* is not possible"):
        settings(f"--collect_ahead={value}")


def test_an_evaluation_needs_no_collector(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(omg.experiment.run, "CollectorProcess", None)
    run(tmp_path, "--collect_ahead=2", "--evaluate", f"--checkpoint_path={reference}")


def test_collect_ahead_cannot_change_in_a_continuation(reference: Path) -> None:
    with pytest.raises(OmgError, match="started with collect_ahead=2, not 1"):
        train([*SMALL, f"--resume={reference}", "--collect_ahead=1"])


def fail_at(number: int, error: Exception) -> Any:
    step, count = Rollout.step, [0]

    def failing(rollout: Rollout, env_steps: int) -> Any:
        if rollout._stream == "train":
            count[0] += 1
            if count[0] == number:
                raise error
        return step(rollout, env_steps)

    return failing


def test_a_collector_that_raises_ends_the_run_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rollout, "step", fail_at(30, EOFError("no more games")))
    with pytest.raises(CollectorFailedError, match="EOFError: no more games") as caught:
        run(tmp_path, "--collect_ahead=1")
    assert "in failing" in str(caught.value)  # the function it was raised in
    assert "--resume" in str(caught.value)
    assert caught.value.exit_code == 1


def test_a_failure_that_explains_itself_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rollout, "step", fail_at(30, RunFailedError("The reward is NaN. Mend it.")))
    with pytest.raises(RunFailedError) as caught:
        run(tmp_path, "--collect_ahead=1")
    assert str(caught.value) == "The reward is NaN. Mend it."


@pytest.mark.long
def test_a_collector_that_makes_no_step_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, hanging = Rollout.step, [False]

    def hang(rollout: Rollout, env_steps: int) -> Any:
        if rollout._stream == "train" and env_steps > 100 and not hanging[0]:
            hanging[0] = True
            time.sleep(2.5)
        return step(rollout, env_steps)

    monkeypatch.setattr(Rollout, "step", hang)
    monkeypatch.setattr("omg.runners.overlap.collector.LOOK_SECONDS", 0.1)
    with pytest.raises(CollectorFailedError, match=r"made no step for 0\.5 seconds"):
        run(tmp_path, "--collect_ahead=1", "--worker_timeout=0.5")


@pytest.mark.long
def test_a_long_hand_over_is_no_hanging_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Rollout.step

    def slow(rollout: Rollout, env_steps: int) -> Any:
        time.sleep(0.1 if rollout._stream == "train" else 0.0)
        return step(rollout, env_steps)

    monkeypatch.setattr(Rollout, "step", slow)
    monkeypatch.setattr("omg.runners.overlap.collector.LOOK_SECONDS", 0.05)
    # Fifteen steps of 0.1 seconds in a hand-over, and half a second of patience.
    run(tmp_path, "--collect_ahead=1", "--worker_timeout=0.5", "--t_max=15", "--runner=episode")
