"""How different members of a pool are: counted by hand, by a slow loop, and on the command line."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from omg.cli.app import app
from omg.components.seeding import SeedTree
from omg.config.arguments import parse_arguments
from omg.config.loader import load
from omg.config.schema import Config
from omg.envs.registry import make_batched
from omg.evaluation.disagreement import (
    Disagreement,
    compare_pool,
    write_disagreement,
)
from omg.opponents.pool import OpponentPool
from omg.opponents.scripted_foraging import MEMORY_DIM, act_together, board_of, make_script
from omg.opponents.scripts import scripted_game
from omg.types import OmgError

pytestmark = pytest.mark.long
EPISODES = 2


def config_of(*words: str) -> Config:
    return load(parse_arguments(["--env-config=foraging_coop", *words])).config


def pool_of(folder: Path, *scripts: tuple[str, str]) -> OpponentPool:
    pool = OpponentPool.open_or_new(folder / "pool")
    for name, split in scripts:
        pool.add_script(name, split=split, env="foraging")  # type: ignore[arg-type]
    return pool


def counted(config: Config, driver: str, other: str, beside: str = "") -> tuple[int, int]:
    """Decisions in games that `driver` plays and those `other` would take differently: a plain
    loop over steps and seats."""
    env = make_batched("foraging", config.env_args, n_copies=EPISODES)
    seen: Any = env.reset(SeedTree(0).integer("compare.games"))
    board, rng = board_of(config.env_args), np.random.default_rng(0)
    scripts = [make_script(name) for name in (driver, other, beside or driver)]
    memory = np.zeros((3, EPISODES, 2, MEMORY_DIM), np.int64)
    over, decisions, differing = np.zeros(EPISODES, np.bool_), 0, 0
    while not over.all():
        joint = np.zeros((EPISODES, 2), np.int64)
        for game in range(EPISODES):
            for seat in range(2):
                said = []
                for who, script in enumerate(scripts):
                    action, kept = act_together(
                        [script],
                        np.zeros(1, np.int64),
                        seen.state[[game]],
                        np.array([seat]),
                        seen.avail[[game], seat],
                        memory[who, game, [seat]],
                        rng,
                        board,
                    )
                    memory[who, game, seat] = kept[0]
                    said.append(int(action[0]))
                mine = not beside or seat == game % 2
                joint[game, seat] = said[0] if mine else said[2]
                if mine and not over[game]:
                    decisions += 1
                    differing += said[0] != said[1]
        seen = env.step(joint)
        over |= seen.terminated | seen.truncated
    return decisions, differing


@pytest.mark.parametrize("beside", ["", "centre"])
def test_counts_are_those_of_a_plain_loop(tmp_path: Path, beside: str) -> None:
    names = ["nearest_food", "waits", "centre"]
    pool = pool_of(tmp_path, *((name, "train") for name in names))
    found = compare_pool(
        pool,
        config_of(),
        episodes=EPISODES,
        beside=f"script-{beside}-0" if beside else "",
    )
    for i, driver in enumerate(names[:2]):
        for j, other in enumerate(names[:2]):
            expected = counted(config_of(), driver, other, beside)
            assert (found.decisions[i, j], found.differing[i, j]) == expected
    assert 0 < found.differing[0, 1] < found.decisions[0, 1]


def test_with_one_food_the_nearest_is_the_heaviest(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, ("nearest_food", "train"), ("highest_level", "heldout"))
    config = config_of("--env_args.key=Foraging-8x8-2p-1f-v3")
    found = compare_pool(pool, config, episodes=8)
    assert (found.decisions > 0).all()
    assert not found.differing.any()
    (near,) = found.nearest()  # the only training member has no other one to differ from
    assert (near.nearest, near.disagreement) == ("script-nearest_food-0", 0.0)


def test_chance_differs_from_itself_and_scripts_do_not(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, ("random", "train"), ("centre", "train"))
    shares = compare_pool(pool, config_of(), episodes=8).shares()
    assert 0.5 < shares[0, 0] < 0.85  # of up to six actions one is the same
    assert shares[1, 1] == 0
    np.testing.assert_array_equal(shares, shares.T)


def by_hand(folder: Path) -> Disagreement:
    pool = pool_of(
        folder,
        ("centre", "train"),
        ("waits", "train"),
        ("leads", "validation"),
        ("avoids", "heldout"),
    )
    decisions = np.full((4, 4), 10)
    decisions[3] = 30
    differing = np.array([[0, 2, 5, 8], [4, 0, 1, 0], [5, 3, 0, 9], [12, 18, 3, 0]])
    return Disagreement(members=pool.members(), decisions=decisions, differing=differing)


def test_a_share_is_over_the_games_of_both(tmp_path: Path) -> None:
    shares = by_hand(tmp_path).shares()
    assert shares[0, 1] == shares[1, 0] == 0.3  # 2 of 10 and 4 of 10
    assert shares[0, 3] == 0.5  # 8 of 10 and 12 of 30
    assert shares[1, 3] == 0.45


def test_the_nearest_training_member_is_the_one_with_the_smallest_share(tmp_path: Path) -> None:
    centre, waits, leads, avoids = by_hand(tmp_path).nearest()
    assert (centre.nearest, centre.disagreement, centre.split) == ("script-waits-0", 0.3, "train")
    assert (waits.nearest, waits.disagreement, waits.mean) == ("script-centre-0", 0.3, 0.3)
    assert (leads.nearest, leads.disagreement, leads.split) == ("script-waits-0", 0.2, "validation")
    assert leads.mean == pytest.approx(0.35)
    assert (avoids.nearest, avoids.disagreement) == ("script-waits-0", 0.45)


def test_the_files_hold_the_matrix_and_the_nearest(tmp_path: Path) -> None:
    matrix, nearest = (
        list(csv.DictReader(path.open()))
        for path in write_disagreement(by_hand(tmp_path), tmp_path)
    )
    assert [row["member"] for row in matrix] == list(matrix[0])[2:]
    assert (matrix[0]["script-avoids-0"], matrix[3]["script-centre-0"]) == ("0.5000", "0.5000")
    assert [row["side"] for row in nearest] == ["train", "train", "validation", "heldout"]
    assert [row["nearest"] for row in nearest[2:]] == ["script-waits-0"] * 2


def test_roles_are_compared_where_both_can_sit(tmp_path: Path) -> None:
    pool = OpponentPool.open_or_new(tmp_path / "pool")
    kinds = scripted_game("predator_prey").SCRIPTS
    for role in ("predator", "prey"):
        for name in [name for name, kind in kinds.items() if kind.role == role][:2]:
            pool.add_script(name, env="predator_prey")
    config = load(parse_arguments(["--env-config=predator_prey"])).config
    found = compare_pool(pool, config, episodes=2)
    shares = found.shares()
    assert np.isfinite(shares[:2, :2]).all()
    assert np.isnan(shares[:2, 2:]).all()
    assert np.isfinite(shares[2:, 2:]).all()


def test_checkpoints_are_compared_like_scripts_in_the_game_they_were_trained_in(
    tmp_path: Path,
) -> None:
    words = ["--config=iql", "--env-config=foraging", "--t_max=60", "--use_sacred=false"]
    words += ["--use_tensorboard=false", "--env_args.key=Foraging-6x6-2p-2f-v3", "--run_name=a"]
    words += [f"--local_results_path={tmp_path}", "--test_nepisode=1", "--batch_size_run=2"]
    assert CliRunner().invoke(app, ["train", *words]).exit_code == 0
    pool = pool_of(tmp_path, ("centre", "train"), ("random", "heldout"))
    (member,) = pool.add_runs([tmp_path / "a"])
    result = CliRunner().invoke(app, ["pool", "compare", str(pool.path), "--episodes=3"])
    assert result.exit_code == 0, result.output
    matrix = list(csv.DictReader((pool.path / "compare" / "disagreement.csv").open()))
    assert [row["member"] for row in matrix][2] == member.id
    assert float(matrix[2][member.id]) == 0.0  # it takes its best action
    assert 0 < float(matrix[2]["script-centre-0"]) <= 1
    assert matrix[2]["script-random-0"] == matrix[1][member.id]


def test_too_few_episodes_or_members_are_refused(tmp_path: Path) -> None:
    pool = pool_of(tmp_path, ("centre", "train"))
    with pytest.raises(OmgError, match="fewer than two members"):
        compare_pool(pool, config_of(), episodes=2)
    with pytest.raises(OmgError, match="at least one"):
        compare_pool(pool, config_of(), episodes=0)


def test_the_command_prints_whole_names_within_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["nearest_food", "farthest_food", "centre", "waits", "lowest_level", "top_left"]
    held = ["far_from_others", "deceives"]
    pool_of(tmp_path, *((n, "train") for n in names), *((n, "heldout") for n in held))
    monkeypatch.delenv("COLUMNS", raising=False)
    words = ["pool", "compare", str(tmp_path / "pool"), "--env-config=foraging_coop"]
    result = CliRunner().invoke(
        app, [*words, "--episodes=2", "with", "env_args.key=Foraging-6x6-2p-2f-v3"]
    )
    assert result.exit_code == 0, result.output
    tables = [line for line in result.output.splitlines() if str(tmp_path) not in line]
    assert max(map(len, tables)) <= 80
    assert sum("│ script-centre-0 (3) " in line for line in tables) == 2  # two parts of a matrix
    assert all(f"script-{name}-0" in result.output for name in names + held)
    assert "unseen:" in result.output
    assert (tmp_path / "pool" / "compare" / "disagreement.csv").is_file()
