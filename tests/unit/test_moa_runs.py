"""Whole runs with MOA, beside scripted hunters: files, stopped and resumed, with others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from omg.cli.train import train
from omg.envs.registry import make_batched
from omg.evaluation.agent_runs import read_agent_run
from omg.evaluation.subgoal_replay import write_subgoal_replays
from omg.experiment.agent import load_agent
from omg.experiment.output import read_metrics
from omg.experiment.training import RunInterrupted, TrainingLoop
from omg.modules.opponent_models.moa import MoaModel
from omg.modules.opponent_models.moa_omg import MoaSubgoalModel
from omg.opponents.pool import OpponentPool
from omg.report.formats import read_replay
from omg.report.replays import other_seats
from omg.storage.files import load_tensors
from omg.types import Observation, OmgError, TimeStep

from .small_runs import assert_same

pytestmark = pytest.mark.long
SMALL = [
    *("--t_max=120", "--batch_size=2", "--batch_size_run=4", "--test_nepisode=4", "--quiet"),
    *("--test_interval=100000", "--use_tensorboard=False", "--use_sacred=False"),
    *("--rnn_hidden_dim=16", "--mlp_hidden_dims=[8,8]", "--am_hidden_dim=16", "--ppo_epochs=2"),
    *("--runner_log_interval=40", "--learner_log_interval=40", "--moa_min_size=8"),
    *("--subgoal_dim=4", "--subgoal_horizon=2", "--subgoal_fixed_k=2", "--prior_min_accuracy=0"),
]
GAME = ["with", "env_args.size=4", "env_args.players=3", "env_args.hares=2"]
GAME += ["env_args.max_episode_steps=8"]


class Hunters:
    """Runs on a small Stag Hunt beside two pools of scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool, self.strangers = folder / "pool", folder / "strangers"
        for path, names in ((self.pool, ("stag", "hare_1")), (self.strangers, ("fickle", "stag"))):
            pool = OpponentPool.create(path)
            for name in names:
                pool.add_script(name, env="stag_hunt")

    def run(self, alg: str, *words: str, pool: bool = True) -> Path:
        others = [f"--opponent_pool={self.pool}"] if pool else []
        given = [f"--config={alg}", "--env-config=stag_hunt", *SMALL, *others, *words]
        return Path(train([*given, f"--local_results_path={self.folder}", *GAME]).folder)


@pytest.fixture(scope="module")
def hunters(tmp_path_factory: pytest.TempPathFactory) -> Hunters:
    return Hunters(tmp_path_factory.mktemp("hunters"))


def logged(run: Path, key: str) -> list[float]:
    return [record[key] for record in read_metrics(run / "metrics.jsonl") if key in record]


@pytest.fixture(scope="module")
def hunted(hunters: Hunters) -> Path:
    return hunters.run("iql_moa", "--run_name=hunted")


def test_a_run_saves_a_file_per_pair_and_the_counts_of_its_players(
    hunters: Hunters, hunted: Path
) -> None:
    last = hunted / "models" / "last" / "iql_moa"
    pairs = {path.name for path in last.glob("*.pth")}
    numbers = (1, 2, 3)
    assert pairs == {f"player_{a}_to_{b}.pth" for a in numbers for b in numbers if a != b}
    counts = load_tensors(last / "moa_counts.th")
    assert json.loads(bytes(counts["names"].tolist())) == ["script-stag-0", "script-hare_1-0"]
    assert counts["players"].shape == (2, 3)
    assert counts["players"].sum() > 0
    assert counts["players"][1, 1] > 0.8 * counts["players"][1].sum()  # who hunts hare 1
    for key in ("moa_loss", "moa_accuracy"):
        assert logged(hunted, key)
    for key in ("test_belief_accuracy_mean", "test_prediction_accuracy_mean"):
        assert 0 < logged(hunted, key)[-1] <= 1


@pytest.mark.parametrize("alg", ["iql_moa", "ppo_moa", "d3qn_moa"])
def test_a_stopped_and_resumed_run_equals_one_that_never_stopped(
    hunters: Hunters, alg: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = hunters.run(alg, f"--run_name=whole {alg}")
    step, waiting = TrainingLoop._step, []

    def stop(loop: TrainingLoop) -> None:
        step(loop)
        part = loop.parts.learner._model.pairs  # type: ignore[attr-defined]
        waiting.append(len(part.buffer))
        loop.stop.requested = loop.counters.env_steps >= 150

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", stop)
        with pytest.raises(RunInterrupted):
            hunters.run(alg, f"--run_name=stopped {alg}")
    resumed = hunters.run(alg, f"--run_name=stopped {alg}", "--resume")
    if alg != "ppo_moa":  # its waves end with an update
        assert waiting[-1] > 0, "something was in the buffer when it was stopped"
    assert_same(whole, resumed)


def test_a_checkpoint_goes_on_with_the_same_models(hunters: Hunters, hunted: Path) -> None:
    longer = hunters.run("iql_moa", f"--checkpoint_path={hunted}", "--t_max=1", "--run_name=on")
    for path in (hunted / "models" / "last" / "iql_moa").glob("player_*.pth"):
        old, new = load_tensors(path), load_tensors(longer / "models/last/iql_moa" / path.name)
        assert all(torch.equal(old[key], new[key]) for key in old)


def test_an_agent_meets_strangers_and_keeps_what_it_knows_of_others(
    hunters: Hunters, hunted: Path
) -> None:
    words = ["--evaluate", f"--checkpoint_path={hunted}", "--run_name=met"]
    met = hunters.run("iql_moa", *words, f"--opponent_pool={hunters.strangers}", pool=False)
    assert logged(met, "test_belief_accuracy_mean")


def test_a_whole_team_models_each_other(hunters: Hunters) -> None:
    run = hunters.run("iql_moa", "--run_name=team", pool=False)
    assert logged(run, "moa_loss")


def test_a_trained_hunter_with_moa_is_an_opponent_and_an_agent(
    hunters: Hunters, hunted: Path
) -> None:
    pool = OpponentPool.create(hunters.folder / "modellers")
    pool.add_run(hunted)
    words = ["--mac=multi_module_mac", "--mixer=None", "--common_reward=False"]
    words += [f"--opponent_pool={pool.path}", "--run_name=beside"]
    run = hunters.run("iql", *words, pool=False)
    assert logged(run, "test_return_mean")
    agent = load_agent(hunted)
    assert isinstance(agent._mac.model, MoaModel)
    env = make_batched("stag_hunt", agent.run.config.env_args, n_copies=2)
    view: Observation | TimeStep = env.reset(0)
    for _ in range(4):
        actions = agent.act(view)
        assert np.take_along_axis(view.avail, actions[..., None], -1).all()
        view = env.step(actions)


def test_in_a_team_string_one_seat_models_the_others(hunters: Hunters) -> None:
    hunters.run("iql", "--run_name=iql", pool=False)
    words = ["--multi_algs", "--train_alg=iql_moa", f"--init_param_path={hunters.folder}"]
    run = hunters.run("2iql1iql_moa", *words, "--run_name=mixed", pool=False)
    counts = load_tensors(run / "models" / "last" / "iql_moa" / "moa_counts.th")
    assert json.loads(bytes(counts["names"].tolist())) == ["iql"]


@pytest.mark.parametrize("base", ["d3qn", "ppo"])
def test_moa_and_omg_share_a_prior_and_resume_exactly(
    hunters: Hunters, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--learner=am_learner", f"--run_name=prior of {base}"]
    prior = hunters.run(f"{base}_omg_tuned", *words)
    alg, given = f"{base}_moa_omg", f"--init_param_path={prior}"
    whole = hunters.run(alg, given, f"--run_name=both {base}")
    assert {"moa_loss", "am_loss"} <= {k for r in read_metrics(whole / "metrics.jsonl") for k in r}
    files = {path.name for path in (whole / "models" / "last" / alg).iterdir()}
    assert {"vae.th", "cvae.th", "player_1_to_2.pth"} <= files
    assert logged(whole, "test_hit_ratio_mean")
    assert logged(whole, "test_prediction_accuracy_mean")
    step = TrainingLoop._step

    def stop(loop: TrainingLoop) -> None:
        step(loop)
        assert isinstance(loop.parts.mac.model, MoaSubgoalModel)  # type: ignore[attr-defined]
        loop.stop.requested = loop.counters.env_steps >= 150

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", stop)
        with pytest.raises(RunInterrupted):
            hunters.run(alg, given, f"--run_name=halted {base}")
    assert_same(whole, hunters.run(alg, given, f"--run_name=halted {base}", "--resume"))


def test_subgoals_as_goals_need_a_prior(hunters: Hunters) -> None:
    with pytest.raises(OmgError, match="pre-trained prior"):
        hunters.run("d3qn_moa_omg", "--run_name=none")


def test_discrete_goals_are_refused_where_none_are_declared(tmp_path: Path) -> None:
    words = ["--config=d3qn_moa", "--env-config=foraging", *SMALL]
    with pytest.raises(OmgError, match="moa_goal=none"):
        train([*words, f"--local_results_path={tmp_path}"])


def test_options_of_moa_are_refused_for_other_models(hunters: Hunters) -> None:
    with pytest.raises(OmgError, match="moa_goal=discrete is an option of am_model=moa"):
        hunters.run("iql_am", "--moa_goal=discrete", "--run_name=no")


def test_collecting_ahead_hands_over_models_and_counts(hunters: Hunters) -> None:
    run = hunters.run("iql_moa", "--collect_ahead=1", "--run_name=ahead")
    assert logged(run, "moa_loss")


def test_beliefs_stand_in_replays_of_hunts_as_they_were_recorded(
    hunters: Hunters, hunted: Path, tmp_path: Path
) -> None:
    pool = OpponentPool.open(hunters.strangers)
    agent = read_agent_run(hunted)
    written = write_subgoal_replays("moa", agent, pool, pool.members(), tmp_path, count=3)
    assert len(written) == 3
    left = 0
    for path in written:
        replay = read_replay(path)
        assert replay.env == "stag_hunt"
        assert replay.goals == ("stag", "hare 1", "hare 2")
        assert replay.beliefs is not None
        assert replay.predictions is not None
        for frame, beliefs, expected in zip(
            replay.frames, replay.beliefs, replay.predictions, strict=False
        ):
            for place, seat in enumerate(other_seats(replay)):
                there = frame.players[seat][2] > 0
                left += not there
                assert sum(beliefs[place]) == pytest.approx(float(there), abs=0.01)
                assert sum(expected[place]) == pytest.approx(float(there), abs=0.01)
        assert [food[2] for food in replay.frames[0].foods] == [2, 1, 1]
    assert left


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"beliefs": []}, "rows of beliefs"),
        ({"goals": ["stag"]}, "other goals"),
    ],
)
def test_a_replay_whose_beliefs_do_not_fit_is_refused(
    hunters: Hunters, hunted: Path, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    pool = OpponentPool.open(hunters.pool)
    path = write_subgoal_replays(
        "moa", read_agent_run(hunted), pool, pool.members(), tmp_path, count=1
    )[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(OmgError, match=said):
        read_replay(path)
