"""The Python API: `import omg`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import omg
from omg.config.loader import load_command_line
from omg.experiment.trained import load_players, read_run
from omg.opponents.building import pool_lineup
from omg.opponents.lineups import LineUp
from omg.runners.assembly import make_rollout
from omg.types import Observation, TimeStep

CPU = torch.device("cpu")
EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "env_args": {"key": "Foraging-5x5-3p-2f-v3", "max_episode_steps": 8},
    "t_max": 96,
    "batch_size": 2,
    "batch_size_run": 3,
    "test_nepisode": 3,
    "test_interval": 48,
    "learner_log_interval": 24,
    "rnn_hidden_dim": 16,
    "am_hidden_dim": 16,
    "quiet": True,
    "use_sacred": False,
    "use_tensorboard": False,
    "prior_min_accuracy": 0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def team(folder: Path) -> omg.Run:
    return omg.train("qmix", "foraging", run_name="team", local_results_path=str(folder), **SMALL)


@pytest.fixture(scope="module")
def pool(folder: Path, team: omg.Run) -> omg.Pool:
    made = omg.Pool.create(folder / "pool")
    made.add_run(team.folder)
    made.add_script("nearest_food", noise=0.2)
    made.add_script("random", split="heldout")
    return made


@pytest.fixture(scope="module")
def naive(folder: Path, pool: omg.Pool) -> omg.Run:
    return omg.train(
        "iql_am",
        "foraging",
        run_name="naive",
        local_results_path=str(folder),
        opponent_pool=str(pool.path),
        am_history=True,
        **SMALL,
    )


@pytest.mark.long
def test_importing_omg_imports_neither_torch_nor_numpy_and_shows_its_names() -> None:
    code = (
        "import sys, omg\n"
        "assert not {'torch', 'numpy', 'sacred'} & set(sys.modules)\n"
        "assert set(omg.__all__) <= set(dir(omg))\n"
        "assert all(getattr(omg, name) is not None for name in omg.__all__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        omg.trian  # noqa: B018


def test_the_example_trains_loads_and_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (EXAMPLES / "python_api.py").read_text()
    lines = text.partition("import omg\n")[2].strip().splitlines()
    assert len(lines) + 1 <= 10
    assert "t_max=20_000" in text
    monkeypatch.chdir(tmp_path)
    exec(text.replace("t_max=20_000", "t_max=200, test_nepisode=2, log_interval=100"), {})
    assert capsys.readouterr().out.splitlines()[-1].startswith("return ")


def test_a_wrong_setting_is_refused_as_on_the_command_line(tmp_path: Path) -> None:
    words = ["--config=qmix", "--env-config=foraging", "--gama=0.9"]
    with pytest.raises(omg.OmgError) as told:
        load_command_line(words)
    with pytest.raises(omg.OmgError, match=r"Unknown key 'gama'.*did you mean 'gamma'") as same:
        omg.train("qmix", "foraging", gama=0.9, local_results_path=str(tmp_path))
    assert str(same.value).partition("(")[0] == str(told.value).partition("(")[0]
    assert not list(tmp_path.iterdir())


class Coin:
    """One agent, two actions: the second earns 1 and ends the game."""

    def reset(self) -> None:
        self.steps = 0

    def step(self, actions: list[int]) -> tuple[float, bool, dict[str, bool]]:
        self.steps += 1
        done = bool(actions[0]) or self.steps == 4
        return float(actions[0]), done, {"episode_limit": done and not actions[0]}

    def get_obs(self) -> list[np.ndarray]:
        return [np.ones(2)]

    def get_state(self) -> np.ndarray:
        return np.ones(2)

    def get_avail_actions(self) -> list[list[int]]:
        return [[1, 1]]

    def get_env_info(self) -> dict[str, int]:
        return {
            "n_agents": 1,
            "n_actions": 2,
            "obs_shape": 2,
            "state_shape": 2,
            "episode_limit": 4,
        }

    def close(self) -> None:
        pass


@pytest.mark.long
def test_an_environment_may_be_given_as_a_class(tmp_path: Path) -> None:
    settings = {**SMALL, "env_args": {}, "local_results_path": str(tmp_path)}
    run = omg.train("iql", env=Coin, **settings)
    assert run.config.env.endswith("test_python_api:Coin")
    env = omg.make_env(Coin, n_copies=2)
    assert env.spec.n_actions == 2
    assert run.make_env().spec.n_agents == 1


def test_make_env_knows_shipped_names_foreign_games_and_their_arguments() -> None:
    env = omg.make_env("foraging", n_copies=4, key="Foraging-6x6-3p-2f-v3", sight=2)
    assert env.reset(0).obs.shape[:2] == (4, 3)
    assert "6x6" in env.spec.name
    assert omg.make_env("lbforaging:Foraging-5x5-2p-1f-v3").spec.n_agents == 2
    with pytest.raises(omg.OmgError, match="did you mean 'foraging'"):
        omg.make_env("forraging")


# --- metrics -------------------------------------------------------------------------------------


def test_metrics_are_read_as_arrays_and_as_a_frame(team: omg.Run) -> None:
    curve = team.curves["test_return_mean"]
    assert curve.steps[0] == 0
    assert len(curve.steps) == len(curve.values) >= 3
    assert team.metrics["test_return_mean"] == curve.values[-1]
    pytest.importorskip("pandas")
    frame = team.frame()
    assert frame.index.name == "t_env"
    found = frame["test_return_mean"].dropna()
    assert found.index.tolist() == curve.steps.tolist()
    assert found.tolist() == curve.values.tolist()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(omg.OmgError, match=r"is not a run \(no config.yaml in it\)"):
        omg.Run(tmp_path)
    with pytest.raises(omg.OmgError, match="is not a run"):
        omg.load(tmp_path)


# --- acting --------------------------------------------------------------------------------------


Seen = list[tuple[Observation | TimeStep, np.ndarray, np.ndarray]]


def played(run: omg.Run, steps: int, lineup: LineUp | None = None) -> Seen:
    """What the rollouts of a run see and do in 4 copies, and in which seat the agent sits."""
    env = run.make_env(4)
    mac = load_players(read_run(run.folder), env.spec, CPU, lineup=lineup)
    rollout = make_rollout(run.config, env=env, mac=mac, stream="x", device=CPU, greedy=True)
    done: list[np.ndarray] = []
    step = env.step
    env.step = lambda actions: (done.append(actions.copy()), step(actions))[1]  # type: ignore[method-assign]
    found = []
    for _ in range(steps):
        view, seats = rollout._view, rollout._carry.get("seat")
        kept = np.zeros(4, int) if seats is None else seats.numpy().copy()
        rollout.step(0)
        found.append((view, done[-1], kept))
    return found


def ends(view: Observation | TimeStep) -> np.ndarray:
    over = getattr(view, "terminated", np.zeros(4, bool)) | getattr(view, "truncated", False)
    return np.asarray(over)


def test_an_agent_acts_as_the_rollouts_of_its_run_also_after_games_have_ended(
    team: omg.Run,
) -> None:
    agent, seen = omg.load(team.folder), played(team, 30)
    for view, actions, _ in seen:
        np.testing.assert_array_equal(agent.act(view), actions)
    assert sum(ends(view).any() for view, *_ in seen) > 1


def test_one_game_is_a_batch_of_one_and_reset_forgets_it(team: omg.Run) -> None:
    batched, single = omg.load(team.folder), omg.load(team.folder)
    for _ in range(2):
        env = team.make_env()
        view: Observation | TimeStep = env.reset(3)
        for _ in range(5):
            actions = batched.act(view)
            one = single.act(view.obs[0], avail=view.avail[0])
            np.testing.assert_array_equal(one, actions[0])
            view = env.step(actions)
        single.reset()
        batched.reset()


def test_a_game_that_was_reset_is_forgotten(team: omg.Run, naive: omg.Run) -> None:
    for run in (team, naive):
        agent, played = omg.load(run.folder), []
        for _ in range(2):
            env = run.make_env(2)
            view: Observation | TimeStep = env.reset(3)
            actions = []
            for _ in range(5):
                actions.append(agent.act(view).tolist())
                view = env.step(np.array(actions[-1]))
            carry = {name: value.clone() for name, value in agent._carry.items()}
            played.append((actions, {name: value.tolist() for name, value in carry.items()}))
        assert played[0] == played[1]


@pytest.mark.long
def test_wrong_shapes_and_seats_are_refused_in_a_sentence(team: omg.Run, naive: omg.Run) -> None:
    agent = omg.load(team.folder)
    with pytest.raises(omg.OmgError, match=r"the observations: expected the shape \(3, \d+\)"):
        agent.act(np.zeros((2, 3)))
    good = np.zeros((3, agent.spec.obs_dim))
    with pytest.raises(omg.OmgError, match="avail: expected the shape"):
        agent.act(good, avail=np.ones((3, 2)))
    with pytest.raises(omg.OmgError, match="seat=7 is none this agent plays"):
        agent.act(good, seat=7)
    with pytest.raises(omg.OmgError, match="avail leaves an agent no action"):
        agent.act(good, avail=np.zeros((3, 6)))
    other = omg.make_env("foraging", key="Foraging-6x6-2p-1f-v3")
    with pytest.raises(omg.OmgError, match=r"This game has 2 agents.*Use its run's make_env"):
        agent.act(other.reset(0))
    with pytest.raises(omg.OmgError, match=r"last_actions: expected the shape \(3,\)"):
        agent.act(good, last_actions=[0, 1])
    with pytest.raises(omg.OmgError, match=r"an action that does not exist\. There are 6"):
        agent.act(good, last_actions=[0, 1, 6])
    with pytest.raises(omg.OmgError, match="state and avail are part of what an environment"):
        agent.act(team.make_env().reset(0), avail=np.ones((3, 6)))


def test_a_call_is_one_step_of_all_games_and_seats(team: omg.Run) -> None:
    agent = omg.load(team.folder)
    obs = np.zeros((3, agent.spec.obs_dim))
    agent.act(obs, seat=0)
    agent.act(obs, seat=0)
    with pytest.raises(
        omg.OmgError, match=r"asked for seat 0 in this game, now for seat 1\. Every"
    ):
        agent.act(obs, seat=1)
    with pytest.raises(omg.OmgError, match="was playing 1 games and is shown 4"):
        agent.act(np.zeros((4, 3, agent.spec.obs_dim)), seat=0)
    agent.reset()
    assert agent.act(obs, seat=1).shape == ()


def test_runs_and_pools_are_taken_wherever_a_folder_is(
    team: omg.Run, pool: omg.Pool, tmp_path: Path
) -> None:
    other = omg.Pool.create(tmp_path / "other")
    other.add_run(team)
    settings = {**SMALL, "t_max": 12, "local_results_path": tmp_path}
    made = omg.train("iql_am", "foraging", opponent_pool=other, **settings)
    assert made.config.opponent_pool == str(tmp_path / "other")
    omg.train(resume=made, t_max=18)
    step = max(int(p.name) for p in (team.folder / "models").iterdir() if p.name.isdecimal())
    assert omg.load(team, step).run.env_steps == step


def test_a_class_inside_a_function_is_refused() -> None:
    class Inner:
        pass

    with pytest.raises(omg.OmgError, match="Inner is defined inside a function"):
        omg.train("vdn", env=Inner)


def test_an_agent_with_an_opponent_model_must_be_told_what_the_others_did(naive: omg.Run) -> None:
    agent = omg.load(naive.folder)
    obs = np.zeros((3, agent.spec.obs_dim))
    assert agent.act(obs, seat=1).shape == ()
    with pytest.raises(omg.OmgError, match=r"must know what they did\. Give last_actions"):
        agent.act(obs, seat=1)
    agent.act(obs, seat=1, last_actions=[0, 1, 2])


def test_a_modelling_agent_acts_in_ones_own_loop_as_it_does_among_its_pool(
    naive: omg.Run, pool: omg.Pool
) -> None:
    agent = omg.load(naive.folder)
    members = (pool, pool.members("train"))
    lineup = pool_lineup(naive.config, agent.spec, CPU, members)
    seen = played(naive, 25, lineup)
    copies, last = np.arange(4), np.full((4, 3), -1)
    for view, actions, seats in seen:
        mine = agent.act(view, last_actions=last)
        np.testing.assert_array_equal(mine[copies, seats], actions[copies, seats])
        last = actions
    assert len({tuple(seats) for *_, seats in seen}) > 1


def test_sampling_can_be_repeated(team: omg.Run) -> None:
    agent, view = omg.load(team.folder), team.make_env(3).reset(0)
    runs = []
    for _ in range(2):
        agent.reset(seed=5)
        runs.append([agent.act(view.obs, greedy=False).tolist() for _ in range(5)])
    assert runs[0] == runs[1]
    assert len({str(actions) for actions in runs[0]}) > 1


# --- pools, evaluation ---------------------------------------------------------------------------


@pytest.mark.long
def test_agents_are_evaluated_and_compared_in_python(
    naive: omg.Run, pool: omg.Pool, tmp_path: Path
) -> None:
    table = omg.evaluate(naive, pool, episodes=4)
    assert {row["opponent"] for row in table.rows()} >= {"script-random-0"}
    assert table.files == ()
    written = omg.crossplay([naive.folder], pool.path, episodes=4, out=tmp_path / "out")
    assert (tmp_path / "out" / "crossplay.json") in written.files
    assert {row["split"] for row in written.rows()} == {"train", "heldout"}
    with pytest.raises(omg.OmgError, match="split=unmet is not known"):
        omg.evaluate(naive, pool, split="unmet")
