"""Policies as enemies: learned and scripted ones in a pool, an agent trained against them and met
with enemies it has never seen, and self-play; all as it is typed."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from omg.cli.app import app
from omg.cli.train import main
from omg.envs.battle import BattleEnv
from omg.envs.battle.frames import with_ghosts
from omg.envs.battle.scene import GHOST
from omg.evaluation import subgoal_replay
from omg.evaluation.crossplay import CrossplayPlan, tasks_of
from omg.experiment.output import read_metrics
from omg.modules.opponent_models.subgoal_nets import PriorVAE
from omg.opponents.pool import OpponentPool

pytestmark = pytest.mark.long

SHORT = (
    *("--env-config=battle_both", "--t_max=200", "--batch_size=2", "--batch_size_run=4"),
    *("--test_nepisode=2", "--test_interval=100000", "--buffer_size=32", "--quiet"),
    *("--use_sacred=False", "--use_tensorboard=False", "--learner_log_interval=20"),
    *("--rnn_hidden_dim=16", "--subgoal_dim=8", "--am_hidden_dim=32", "--prior_min_accuracy=0"),
)


def omg(*words: str) -> str:
    answer = CliRunner().invoke(app, list(words))
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def train(*words: str) -> None:
    assert main([*SHORT, *words]) == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two enemy teams that learned against scripts, and a pool of enemies: one of them and a
    script to train with, the other and a script held out."""
    root = tmp_path_factory.mktemp("sides")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for script in ("attack_nearest", "focus_fire"):
            omg("pool", "add", "pools/soldiers", f"--script={script}", "--env=battle")
        against = ("--learning_role=enemy", "--opponent_pool=pools/soldiers")
        train("--config=vdn", *against, "--run_name=vdn")
        train("--config=iql", *against, "--run_name=iql")
        omg("pool", "add", "pools/both", "results/vdn")
        omg("pool", "add", "pools/both", "results/iql", "--split=heldout")
        omg("pool", "add", "pools/both", "--script=focus_fire", "--env=battle")
        held = ("--script=team_focus", "--env=battle", "--split=heldout")
        omg("pool", "add", "pools/both", *held)
        learns = ("--learning_role=ally", "--opponent_pool=pools/both")
        prior = ("--config=iql_omg", "--learner=am_learner", *learns, "--run_name=prior")
        train(*prior, "--t_max=800")
        train("--config=iql_omg", *learns, "--init_param_path=results/prior", "--run_name=omg")
        train("--config=iql_am", *learns, "--run_name=am")
    return root


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in read_metrics(run / "metrics.jsonl") if "loss" in record]


def test_an_enemy_side_learns_against_scripts_and_is_a_member_that_plays_enemies(
    place: Path,
) -> None:
    assert losses(place / "results" / "vdn")
    assert losses(place / "results" / "iql")
    roles = {m.id: tuple(m.roles) for m in OpponentPool.open(place / "pools" / "both").members()}
    learned = [found for name, found in roles.items() if not name.startswith("script")]
    assert learned == [("enemy",), ("enemy",)]
    assert [found for name, found in roles.items() if name.startswith("script")] == [(), ()]


def test_the_return_of_a_side_with_a_common_reward_is_that_of_all_its_agents(place: Path) -> None:
    records = read_metrics(place / "results" / "vdn" / "metrics.jsonl")
    last = [r for r in records if "test_agent_3_return_mean" in r][-1]
    assert last["test_agent_3_return_mean"] == last["test_agent_5_return_mean"] > 0
    assert last["test_return_mean"] == pytest.approx(3 * last["test_agent_3_return_mean"])


@pytest.mark.parametrize("name", ["omg", "am"])
def test_an_agent_learns_against_enemies_of_the_pool(place: Path, name: str) -> None:
    run = place / "results" / name
    assert losses(run)
    last = [r for r in read_metrics(run / "metrics.jsonl") if "test_own_return_mean" in r][-1]
    assert 0 <= last["test_battle_won_mean"] <= 1


def test_it_meets_enemies_it_has_never_seen(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    words = ("--pool=pools/both", "--split=heldout", "--episodes=4")
    omg("crossplay", "results/omg", "results/am", *words, "--out=cross")
    with (place / "cross" / "crossplay.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"iql_omg", "iql_am"}
    assert {row["split"] for row in rows} == {"heldout"}
    told = " ".join(row["opponent"] for row in rows)
    assert "team_focus" in told
    assert "iql-" in told
    assert "vdn-" not in told
    assert all(0 <= float(row["win_rate"]) <= 1 for row in rows)
    omg("evaluate", "results/omg", *words, "--permute")


def test_films_show_ghosts_where_the_agent_expects_the_others(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spots = {unit: (6.0 + 3 * unit, 10.0 + 2 * unit) for unit in range(6)}
    extent, width = torch.tensor([30.0, 16.0]), 4  # health, cooldown, x, y of a marine

    def decode(self: PriorVAE, subgoal: torch.Tensor) -> torch.Tensor:
        units = torch.zeros(6, width)
        units[:, 2:4] = (torch.tensor([*spots.values()]) - 16) / extent
        rest = torch.zeros(self.decoder[-1].out_features - units.numel())
        return torch.cat([units.flatten(), rest]).expand(len(subgoal), -1)

    told = []

    def spy(frames: Any, ghosts: Any) -> Any:
        told.append(ghosts)
        return with_ghosts(frames, ghosts)

    monkeypatch.chdir(place)
    monkeypatch.setattr(PriorVAE, "decode", decode)
    monkeypatch.setattr(subgoal_replay, "with_ghosts", spy)
    words = ("--pool=pools/both", "--split=heldout", "--episodes=2", "--replays=2")
    said = omg("evaluate", "results/omg", *words, f"--out={tmp_path / 'films'}")
    assert "Wrote 2 replays in" in said
    films = sorted((tmp_path / "films" / "replays").glob("*.svg"))
    assert len(films) == len(told) == 2
    seats = set()
    for ghosts in told:
        *steps, last = ghosts
        assert last == []
        (seat,) = spots.keys() - {unit for unit, _ in steps[0]}
        seats.add(seat)
        for expected in steps:
            assert dict(expected) == {
                unit: pytest.approx(at) for unit, at in spots.items() if unit != seat
            }
    assert seats <= {0, 1, 2}
    assert all(GHOST in film.read_text() for film in films)
    counted = omg("report", str(tmp_path / "films"), f"--out={tmp_path / 'page.html'}")
    assert "2 replays" in counted


def test_scripts_of_any_role_fill_the_seats_that_a_learned_enemy_does_not_play(
    place: Path,
) -> None:
    pool = OpponentPool.open(place / "pools" / "both")
    spec = BattleEnv(args={"map_name": "3m", "enemies": "seats"}, n_copies=1).spec
    cells = tasks_of(pool, CrossplayPlan(splits=("heldout",)), spec, "ally")
    (cell,) = [cell for cell in cells if cell.opponent.startswith("iql")]
    # The script sits beside the agent only: the enemies are all the learned ones.
    assert [member.roles for member in cell.members] == [("enemy",), ("ally",)]


def test_both_sides_learn_against_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train("--config=iql", "--run_name=selfplay", "--t_max=600")
    run = tmp_path / "results" / "selfplay"
    assert losses(run)
    last = [r for r in read_metrics(run / "metrics.jsonl") if "agent_5_return_mean" in r][-1]
    assert last["agent_0_return_mean"] == last["agent_2_return_mean"]  # one side, one reward
    # It joins a pool as a player of both sides.
    omg("pool", "add", "pools/self", "results/selfplay")
    (member,) = OpponentPool.open(tmp_path / "pools" / "self").members()
    assert set(member.roles) in (set(), {"ally", "enemy"})
    against = ("--learning_role=ally", "--opponent_pool=pools/self")
    train("--config=iql_am", *against, "--run_name=against")
    assert losses(tmp_path / "results" / "against")
