"""Seats with roles: who may sit where, who learns, and what the others are in whose eyes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from omg.cli.train import train
from omg.components.episodes import environment_scheme
from omg.components.seeding import SeedTree
from omg.components.trajectories import seats_part
from omg.config.loader import load_command_line
from omg.controllers.team import BasicMAC, MultiModuleMAC
from omg.envs import make_batched
from omg.evaluation.crossplay import CrossplayPlan, run_crossplay, tasks_of
from omg.experiment.checks import check_common_reward
from omg.learners import LEARNERS
from omg.learners.base import Progress
from omg.opponents.building import agent_lineup, pool_lineup
from omg.opponents.lineups import LineUp, OneLearns, RoleLearns
from omg.opponents.pool import OpponentPool
from omg.runners.assembly import make_controller
from omg.runners.rewards import team_reward
from omg.runners.rollout import Finished, Rollout
from omg.storage.files import load_tensors
from omg.types import OmgError, RunFailedError

from .test_mixed_teams import unrolled

CPU = torch.device("cpu")
GAME = [
    *("--env-config=predator_prey", "--quiet", "--use_sacred=False", "--use_tensorboard=False"),
    *("--runner=batch", "--batch_size_run=4", "--rnn_hidden_dim=16", "--test_nepisode=4"),
    *("--t_max=200", "--batch_size=4", "--test_interval=100000", "--resume_interval=0"),
    *("--env_args.max_cycles=8",),
]
ARGS = {"n_predators": 3, "n_prey": 2, "max_cycles": 8}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pools") / "scripts"
    made = OpponentPool.create(path)
    for name in ("chase", "ambush", "flee", "orbit"):
        made.add_script(name, env="predator_prey")
    made.add_script("random")
    made.add_script("corner", split="heldout")
    return path


def config_of(*words: str):
    return load_command_line([*GAME, *words]).config


@pytest.mark.parametrize(
    "words", [("--config=qmix", "--learning_role=predator"), ("--config=ippo",)]
)
def test_a_common_reward_within_a_role_or_rewards_of_their_own_are_fine(
    pool: Path, words: tuple[str, ...]
) -> None:
    given = [f"--opponent_pool={pool}"] if len(words) > 1 else []
    config = config_of(*words, *given)
    spec = make_batched("predator_prey", dict(config.env_args), n_copies=1).spec
    check_common_reward(config, spec, make_controller(config, spec, CPU))


def test_one_learner_among_opponents_counts_its_own_rewards(pool: Path) -> None:
    config = config_of("--config=iql_am", f"--opponent_pool={pool}", "--common_reward=True")
    spec = make_batched("predator_prey", dict(config.env_args), n_copies=1).spec
    mac = make_controller(config, spec, CPU)
    with pytest.raises(OmgError, match=r"predator and prey, who are.*common_reward=false"):
        check_common_reward(config, spec, mac)
    check_common_reward(config, replace(spec, opposed=False), mac)


def lineup_of(pool: Path, *words: str, prey: int = 1) -> OneLearns:
    config = config_of(f"--opponent_pool={pool}", f"--env_args.n_prey={prey}", *words)
    spec = make_batched("predator_prey", dict(config.env_args), n_copies=1).spec
    lineup = agent_lineup(config, spec, CPU)
    assert isinstance(lineup, OneLearns)
    return lineup


def names_of(lineup: LineUp) -> tuple[str, ...]:
    """The players by their number."""
    assert lineup.players is not None
    return lineup.players.names


def rollout_of(*words: str, greedy: bool = False) -> Rollout:
    config = config_of(*words)
    env = make_batched("predator_prey", dict(config.env_args), n_copies=4)
    torch.manual_seed(1)
    mac = make_controller(config, env.spec, CPU)
    scheme = environment_scheme(env.spec, common_reward=config.common_reward, buffer_dtype="auto")
    return Rollout(
        env=env,
        mac=mac,
        scheme=scheme.extend(mac.record_fields()),
        seeds=SeedTree(1),
        stream="test",
        device=CPU,
        common_reward=config.common_reward,
        reward_scalarisation="sum",
        greedy=greedy,
    )


def played(rollout: Rollout) -> Finished:
    while (finished := rollout.step(0)) is None:
        pass
    return finished


# --- line-ups ----------------------------------------------------------------------------------


def test_members_know_the_roles_they_play(pool: Path) -> None:
    roles = {m.script.name: m.roles for m in OpponentPool.open(pool).members() if m.script}
    assert roles["chase"] == roles["ambush"] == ("predator",)
    assert roles["flee"] == roles["corner"] == ("prey",)
    assert roles["random"] == ()


@pytest.mark.parametrize("mode", ["mixed", "homologue"])
@pytest.mark.parametrize("role", ["predator", "prey"])
def test_everybody_sits_where_they_can_play(pool: Path, mode: str, role: str) -> None:
    lineup = lineup_of(pool, f"--lineup_mode={mode}", f"--learning_role={role}", prey=2)
    shift = np.arange(300) % len(lineup.own_seats)
    seats, members = lineup.line_up(shift, np.random.default_rng(1))
    roles = ("predator",) * 3 + ("prey",) * 2
    assert set(seats) == {n for n, name in enumerate(roles) if name == role}
    assert (members[np.arange(300), seats] == -1).all()
    able = {"predator": {"chase", "ambush", "random"}, "prey": {"flee", "orbit", "random"}}
    for seat, name in enumerate(roles):
        sitting = members[seats != seat, seat]
        assert (sitting >= 0).all()
        found = {names_of(lineup)[m].split("-")[1] for m in sitting}
        assert found == able[name]  # all of them, and nobody else


def test_the_learning_seat_goes_round_in_its_role_only(pool: Path) -> None:
    rollout = rollout_of(
        "--config=iql_am", f"--opponent_pool={pool}", "--am_model=none_am", "--is_agent_shift=True"
    )
    seats = np.concatenate([played(rollout).episodes["agent_idx"].numpy() for _ in range(6)])
    assert np.bincount(seats, minlength=4).tolist() == [8, 8, 8, 0]


def test_the_prior_is_trained_on_members_that_play_the_agents_role(pool: Path) -> None:
    lineup = lineup_of(pool, "--learning_role=prey")
    seats, members = lineup.line_up(np.zeros(200, np.int64), np.random.default_rng(1))
    filled = lineup.fill(seats, members, np.random.default_rng(2))
    assert {names_of(lineup)[m].split("-")[1] for m in filled[:, 3]} == {"flee", "orbit", "random"}


def test_a_role_without_players_is_refused(tmp_path: Path) -> None:
    OpponentPool.create(tmp_path / "pool").add_script("chase")
    rollout = pytest.raises(OmgError, match="no member that plays the role 'prey'")
    with rollout:
        rollout_of("--config=iql", "--learning_role=predator", f"--opponent_pool={tmp_path}/pool")


def test_a_role_that_does_not_exist_is_refused(pool: Path) -> None:
    with pytest.raises(
        OmgError, match=r"learning_role=cook is no role .* Its roles: predator, prey"
    ):
        rollout_of("--config=iql", "--learning_role=cook", f"--opponent_pool={pool}")


def test_scripts_of_another_game_are_refused(tmp_path: Path) -> None:
    made = OpponentPool.create(tmp_path / "pool")
    made.add_script("nearest_food")
    with pytest.raises(OmgError, match="no scripted forager called 'flee'"):
        made.add_script("flee")
    with pytest.raises(OmgError, match="plays env=foraging, this run uses env=predator_prey"):
        lineup_of(tmp_path / "pool")


# --- a team of one role -------------------------------------------------------------------------


@pytest.mark.parametrize("common", [True, False])
def test_a_team_learns_from_its_own_seats_and_rewards(pool: Path, common: bool) -> None:
    words = [f"--opponent_pool={pool}", "--learning_role=predator", f"--common_reward={common}"]
    rollout = rollout_of("--config=iql", *words)
    mac = rollout.mac
    assert isinstance(mac, BasicMAC)
    assert isinstance(mac.lineup, RoleLearns)
    assert mac.seats == (0, 1, 2)
    finished = played(rollout)
    whole = finished.episodes
    learned = mac.trajectories(whole)
    part, seats = learned.own, learned.seats
    assert learned.team is whole
    assert seats is not None
    assert seats.tolist() == [[0, 1, 2]] * 4
    assert torch.equal(part.raw("obs"), whole.raw("obs")[:, :, :3])
    assert torch.equal(part.raw("actions"), whole.raw("actions")[:, :, :3])
    returns = finished.stats.returns
    np.testing.assert_allclose(finished.stats.team_returns, returns[:, :3].sum(1), rtol=1e-6)
    if common:
        summed = part["reward"].sum((1, 2)).numpy()
        np.testing.assert_allclose(summed, finished.stats.team_returns, rtol=1e-5)
    else:
        assert torch.equal(part["reward"], whole["reward"][:, :, :3])


def test_the_common_reward_of_some_seats_is_theirs_alone() -> None:
    reward = np.array([[1.0, 2.0, 40.0]], np.float32)
    assert team_reward(reward, shared=False, how="sum", seats=(0, 1)).tolist() == [3.0]
    assert team_reward(reward, shared=False, how="mean", seats=(0, 1)).tolist() == [1.5]
    assert team_reward(reward, shared=False, how="sum").tolist() == [43.0]


def test_a_team_acts_as_its_unrolled_values_say(pool: Path) -> None:
    rollout = rollout_of(
        "--config=iql", f"--opponent_pool={pool}", "--learning_role=predator", greedy=True
    )
    mac = rollout.mac
    assert isinstance(mac, BasicMAC)
    batch = played(rollout).episodes
    best = unrolled(mac, batch)[:, :-1].argmax(-1)
    assert torch.equal(best, batch["actions"][:, :-1, :3])


@pytest.mark.long
@pytest.mark.parametrize("alg", ["iql", "iql_idv", "vdn", "qmix", "qtran", "coma", "ippo", "mappo"])
def test_every_team_learner_trains_one_role_and_leaves_the_others_alone(
    pool: Path, alg: str, tmp_path: Path
) -> None:
    words = [f"--config={alg}", f"--opponent_pool={pool}", "--learning_role=predator"]
    folder = train([*GAME, *words, f"--local_results_path={tmp_path}"]).folder
    made = OpponentPool.create(tmp_path / "pool")
    (member,) = made.add_run(folder)
    assert member.roles == ("predator",)
    made.add_script("flee")
    words[1] = f"--opponent_pool={tmp_path / 'pool'}"
    words[2] = "--learning_role=prey"
    assert train([*GAME, *words, f"--local_results_path={tmp_path / 'prey'}"]).folder.is_dir()


def test_values_of_a_role_are_those_of_a_game_without_the_others(pool: Path) -> None:
    """The update does not depend on what the others did or earned."""
    words = [f"--opponent_pool={pool}", "--learning_role=predator", "--common_reward=True"]
    rollout = rollout_of("--config=qmix", *words)
    mac = rollout.mac
    batch = played(rollout).episodes
    changed = batch[np.arange(len(batch))]
    changed.raw("obs")[:, :, 3:] = 7.0
    changed.raw("actions")[:, :, 3:] = 0
    losses = []
    for episodes in (batch, changed):
        torch.manual_seed(2)
        learner = LEARNERS["q_learner"](
            config=config_of("--config=qmix", *words), spec=rollout.env.spec, mac=mac, device=CPU
        )
        losses.append(float(learner.train(episodes, Progress(0, 0, 0))["loss"]))
        assert learner.mixer.n_agents == 3
        mac.policy.network.load_state_dict(learner._target_network.state_dict())
    assert losses[0] == losses[1]


def test_seats_part_keeps_a_common_reward() -> None:
    rollout = rollout_of("--config=qmix")
    batch = played(rollout).episodes
    part, seats = seats_part(batch, (0, 2))
    assert seats.tolist() == [[0, 2]] * 4
    assert part["reward"].shape == batch["reward"].shape
    assert part.raw("avail_actions").shape[2] == 2


# --- one agent among others ---------------------------------------------------------------------


def test_a_model_is_told_the_others_by_role(pool: Path) -> None:
    """From every predator's seat the prey is the last of the others."""
    rollout = rollout_of(
        *("--config=iql_am", "--am_model=control_am", f"--opponent_pool={pool}"),
        "--is_agent_shift=True",
    )
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    view = rollout._view
    state = torch.from_numpy(view.state)
    seats = rollout._carry["seat"]
    assert len(set(seats.tolist())) > 1
    agents = state[:, :16].view(-1, 4, 4)
    ordered = mac.policy.rows.order.relative(agents, seats)
    assert torch.equal(ordered[:, -1], agents[:, 3])


@pytest.mark.long
@pytest.mark.parametrize(
    "alg", ["ppo_omg", "ppo_liam", "ppo_meliba", "ppo_types", "ppo_oracle", "iql_am"]
)
def test_one_agent_trains_beside_other_roles(pool: Path, alg: str, tmp_path: Path) -> None:
    words = [f"--config={alg}", f"--opponent_pool={pool}", f"--local_results_path={tmp_path}"]
    if alg == "ppo_omg":
        prior = ["--learner=am_learner", "--run_name=prior", "--prior_min_accuracy=0"]
        train([*GAME, *words, *prior])
        words += [f"--init_param_path={tmp_path / 'prior'}", "--prior_min_accuracy=0"]
    run = train([*GAME, *words, "--run_name=agent"]).folder
    assert (run / "models" / "last" / alg / "agent.th").is_file()
    table = run_crossplay([run], pool, CrossplayPlan(splits=("train", "heldout"), episodes=4))
    cells = {cell.opponent for cell in table.cells}
    assert {"script-chase-0", "script-flee-0", "script-corner-0"} <= cells


def cells_of(pool: Path, role: str, *, prey: int = 1) -> dict[str, list[str]]:
    spec = make_batched("predator_prey", {"n_prey": prey}, n_copies=1).spec
    tasks = tasks_of(
        OpponentPool.open(pool), CrossplayPlan(splits=("train", "heldout")), spec, role
    )
    return {t.opponent: [m.script.name for m in t.members if m.script] for t in tasks}


def test_a_members_cell_is_completed_by_the_roles_it_does_not_play(pool: Path) -> None:
    names = cells_of(pool, "predator")
    assert names["script-chase-0"] == ["chase", "flee", "orbit"]
    assert names["script-random-0"] == ["random"]
    assert names["script-corner-0"] == ["corner", "chase", "ambush"]  # nobody else is held out


def test_who_has_no_seat_beside_the_agent_has_no_cell(tmp_path: Path, pool: Path) -> None:
    more = OpponentPool.create(tmp_path / "pool")
    for name, split in (("chase", "train"), ("flee", "train"), ("guard", "heldout")):
        more.add_script(name, split=split)
    cells = cells_of(tmp_path / "pool", "prey")
    assert "script-flee-0" not in cells
    assert cells["script-chase-0"][0] == "chase"
    assert "script-flee-0" in cells_of(tmp_path / "pool", "prey", prey=2)
    with pytest.raises(OmgError, match="no heldout members that may sit beside a prey"):
        cells_of(pool, "prey")


def test_scripted_targets_are_features_of_an_agent(pool: Path) -> None:
    rollout = rollout_of(
        *("--config=ppo_oracle", "--oracle_kind=target", f"--opponent_pool={pool}"),
    )
    foreseen = played(rollout).episodes["foresight"]
    assert foreseen.shape[2:] == (3, 4)
    assert torch.isfinite(foreseen).all()


def test_features_behind_a_seats_own_width_are_never_seen(pool: Path) -> None:
    rollout = rollout_of("--config=iql")
    assert rollout.env.spec.obs_dims == (16, 16, 16, 14)
    spoiled = replace(rollout._view, obs=np.full_like(rollout._view.obs, 7.0))
    read = rollout._read(spoiled)
    assert (read.obs[:, 3, 14:] == 0).all()
    assert (read.obs[:, :3] == 7).all()
    assert (read.obs[:, 3, :14] == 7).all()


def test_nothing_is_learned_from_what_is_no_number() -> None:
    rollout = rollout_of("--config=iql")
    step = rollout.env.step
    reward = np.zeros((4, 4), np.float32)
    reward[2, 1] = np.nan

    def broken(actions: np.ndarray) -> object:
        return replace(step(actions), reward=reward)

    rollout.env.step = broken  # type: ignore[method-assign]
    with pytest.raises(RunFailedError, match=r"The reward of PredatorPrey.* \(copy 2, agent 1\)"):
        rollout.step(0)


@pytest.mark.parametrize("alg", ["iql", "iql_am"])
def test_a_role_needs_a_pool(alg: str) -> None:
    with pytest.raises(OmgError, match="Give opponent_pool=<folder>"):
        rollout_of(f"--config={alg}", "--learning_role=predator")


@pytest.mark.long
def test_every_seat_of_every_role_learns_where_nobody_else_plays(tmp_path: Path) -> None:
    rollout = rollout_of("--config=iql_am")
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    assert mac.seats == (0, 1, 2, 3)
    assert mac.describe()["roles"] == ["predator", "prey"]
    learned = mac.trajectories(played(rollout).episodes)
    assert learned.n_seats == 4
    rows = mac.policy.rows.stored(learned)
    state = learned.for_rows(learned.pack("state"))[:, :16].view(-1, 4, 4)
    others = mac.policy.rows.order.relative(state, rows.seats)
    of_predators = rows.seats < 3
    assert torch.equal(others[of_predators][:, -1], state[of_predators][:, 3])
    assert torch.equal(others[~of_predators], state[~of_predators][:, :3])
    run = train([*GAME, "--config=iql_am", f"--local_results_path={tmp_path}"]).folder
    (member,) = OpponentPool.create(tmp_path / "pool").add_run(run)
    assert member.roles == ("predator", "prey")
    beside = [f"--opponent_pool={tmp_path / 'pool'}", "--learning_role=prey"]
    assert (
        played(rollout_of("--config=iql_am", *beside)).episodes["lineup"].tolist()
        == [[0, 0, 0, -1]] * 4
    )


@pytest.mark.long
def test_a_policy_of_one_role_is_not_loaded_into_another(pool: Path, tmp_path: Path) -> None:
    words = ["--config=iql", f"--opponent_pool={pool}", f"--local_results_path={tmp_path}"]
    run = train([*GAME, *words, "--learning_role=predator"]).folder
    with pytest.raises(OmgError, match="roles"):
        train([*GAME, *words, "--learning_role=prey", f"--checkpoint_path={run}"])
    everybody = ["--config=iql", f"--local_results_path={tmp_path}", f"--checkpoint_path={run}"]
    with pytest.raises(OmgError, match="roles"):
        train([*GAME, *everybody])
    assert load_tensors(run / "models" / "last" / "agent.th")


def test_a_team_string_keeps_roles_in_their_seats(pool: Path) -> None:
    config = config_of(f"--opponent_pool={pool}")
    spec = make_batched("predator_prey", dict(config.env_args), n_copies=1).spec
    opened = OpponentPool.open(pool)
    drawn = pool_lineup(config, spec, CPU, (opened, opened.members("train")))
    assert drawn.players is not None
    lineup = OneLearns(
        spec, "predator", players=drawn.players, others=np.array([-1, 0, 1, 2]), seat=0
    )
    seats, members = lineup.line_up(np.array([0, 1, 2, 3]), np.random.default_rng(0))
    assert seats.tolist() == [0, 1, 2, 0]
    assert members.tolist() == [[-1, 0, 1, 2], [1, -1, 0, 2], [0, 1, -1, 2], [-1, 0, 1, 2]]
