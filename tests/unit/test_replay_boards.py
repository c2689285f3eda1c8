"""Replays of games on a plane: where things stand in the picture, and what counts as reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from omg.cli.train import train
from omg.envs.predator_prey import PredatorPreyEnv
from omg.envs.spread import SpreadEnv
from omg.evaluation.agent_runs import read_agent_run
from omg.evaluation.replay_boards import board_of
from omg.evaluation.subgoal_replay import write_subgoal_replays
from omg.modules.opponent_models.subgoal_nets import PriorVAE
from omg.opponents.pool import OpponentPool
from omg.report import collect
from omg.report.formats import read_replay
from omg.report.replays import hits, replays_section


def test_a_point_of_the_plane_stands_where_it_is_seen() -> None:
    """x to the right, y upwards; the picture is 12 cells wide and reaches 1.12 to each side."""
    env = SpreadEnv(args={"n_agents": 2}, n_copies=1)
    env.reset(1)
    corners = [(-1.12, 1.12), (1.12, -1.12)]
    observed = env.set_layout(0, agent_pos=[(0, 0), (0.5, 0.25)], landmarks=corners)
    states = np.stack([observed.state[0]] * 2)
    board = board_of(env, states, np.array([[-1.0, -2.0]], np.float32))
    frame = board.frames[1]
    cell = 2.24 / 12
    assert frame["players"][0] == [5.5, 5.5, 1]  # the middle of 0 … 11
    assert frame["players"][1] == pytest.approx([5.5 - 0.25 / cell, 5.5 + 0.5 / cell, 1], abs=1e-3)
    assert frame["foods"] == [[-0.5, -0.5, 1], [11.5, 11.5, 1]]  # outer corners of the board
    assert frame["score"] == [-1.0, -2.0]
    assert board.plane is not None
    assert board.plane["players"] == pytest.approx([0.15 / cell] * 2, abs=1e-3)
    assert board.at(torch.tensor([0.5, 0.25])).tolist() == pytest.approx(
        frame["players"][1][:2], abs=1e-3
    )


def test_the_picture_reaches_as_far_as_anybody_went() -> None:
    env = PredatorPreyEnv(args={"n_predators": 1, "n_prey": 1, "n_obstacles": 1}, n_copies=1)
    env.reset(1)
    far = env.set_layout(0, agent_pos=[(0, 0), (3.0, 0)], obstacles=[(0, 0.5)]).state[0].copy()
    near = env.set_layout(0, agent_pos=[(0, 0), (0.5, 0)], obstacles=[(0, 0.5)]).state[0]
    board = board_of(env, np.stack([near, far]), np.zeros((1, 2), np.float32))
    for frame in board.frames:
        assert all(-0.5 <= v <= 11.5 for place in frame["players"] for v in place[:2])
    assert board.reach == pytest.approx(3.12)


def plane_replay(**changes: Any) -> dict[str, Any]:
    """The other goes right by half a cell a step; it is expected at three places."""
    frames = [
        {"players": [[5, 5, 1], [2, 2 + 0.5 * t, 1]], "foods": [[8, 8, 1]], "score": [0, t]}
        for t in range(4)
    ]
    plane = {"players": [0.4, 0.3], "thing": 0.5, "things": "Landmarks", "near": 0.25}
    return {
        "format": 1,
        "env": "spread",
        "field_size": [12, 12],
        "agent": "a",
        "method": "OMG",
        "opponent": "o",
        "seat": 0,
        "players": 2,
        "frames": frames,
        "actions": [[0, 0]] * 3,
        "subgoals": [[[2.2, 3.4]], [[2, 2.2]], [[2.3, 3.5]]],
        "plane": plane,
        **changes,
    }


def test_a_place_on_a_plane_is_reached_by_coming_near(tmp_path: Path) -> None:
    path = tmp_path / "replays" / "r.json"
    path.parent.mkdir()
    path.write_text(json.dumps(plane_replay()))
    # By hand: (2.2, 3.4) is 0.22 from (2, 3.5), three steps on; (2, 2.2) lies behind; (2.3, 3.5)
    # is 0.3 away at the end, and `near` is 0.25.
    assert hits(read_replay(path)) == [[3], [None], [None]]
    page = replays_section(collect([tmp_path]))
    assert '"plane":{"players":[0.4,0.3],"thing":0.5}' in page


def test_a_plane_with_other_players_than_the_replay_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    plane = {**plane_replay()["plane"], "players": [0.4]}
    path.write_text(json.dumps(plane_replay(plane=plane)))
    with pytest.raises(Exception, match="has sizes of 1 players among 2"):
        read_replay(path)


SHORT = [
    *("--t_max=50", "--batch_size=2", "--batch_size_run=2", "--test_nepisode=2", "--quiet"),
    *("--test_interval=100000", "--use_tensorboard=False", "--use_sacred=False"),
    *("--rnn_hidden_dim=16", "--subgoal_dim=8", "--am_hidden_dim=32", "--prior_min_accuracy=0"),
    *("--resume_interval=0", "--runner=batch", "--common_reward=False"),
]
SMALL_GAME = {
    "spread": ["env_args.n_agents=2", "env_args.max_cycles=6"],
    "predator_prey": ["env_args.n_predators=2", "env_args.max_cycles=6"],
}


@pytest.mark.long
@pytest.mark.parametrize("game", ["spread", "predator_prey"])
def test_an_omg_agents_subgoals_stand_in_replays_of_games_on_a_plane(
    game: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SHORT, f"--env-config={game}", f"--local_results_path={tmp_path}"]

    def run(name: str, *more: str) -> Path:
        with_words = ["with", *SMALL_GAME[game]]
        return Path(train([*words, *more, f"--run_name={name}", *with_words]).folder)

    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_run(run("others", "--config=iql"))
    agent = ["--config=iql_omg", f"--opponent_pool={tmp_path / 'pool'}"]
    prior = run("prior", "--learner=am_learner", *agent)
    mine = read_agent_run(run("omg", *agent, f"--init_param_path={prior}"))
    decode = PriorVAE.decode
    # Everybody is expected at the centre, whatever the state's scale is.
    monkeypatch.setattr(PriorVAE, "decode", lambda self, z: torch.zeros_like(decode(self, z)))
    paths = write_subgoal_replays("me", mine, pool, pool.members(), tmp_path / "r", count=2)
    assert len(paths) == 2
    for path in paths:
        replay = read_replay(path)
        assert replay.env == game
        assert len(replay.frames) == 7
        assert replay.subgoals == (((5.5, 5.5),) * (replay.players - 1),) * 6
        assert replay.plane is not None
        assert replay.roles == (("predator", "predator", "prey") if game[0] == "p" else ())


def test_beliefs_over_types_stand_in_a_replay_by_the_types_names(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    for script in ("nearest_food", "centre"):
        pool.add_script(script)
    agent = ["--config=d3qn_types", f"--opponent_pool={tmp_path / 'pool'}"]
    game = ["with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=6"]
    words = [*SHORT, *agent, "--env-config=foraging", f"--local_results_path={tmp_path}"]
    mine = read_agent_run(Path(train([*words, "--run_name=types", *game]).folder))
    paths = write_subgoal_replays("me", mine, pool, pool.members(), tmp_path / "r", count=2)
    for path in paths:
        replay = read_replay(path)
        assert replay.goals == tuple(member.id for member in pool.members())
        assert replay.beliefs is not None
        assert {len(belief) for row in replay.beliefs for belief in row} == {2}
        assert sum(replay.beliefs[0][0]) == pytest.approx(1.0, abs=0.01)
