"""Every map of the battles: SMAC's sizes, and C equal to NumPy bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from omg.compiled import use_kernels
from omg.config.loader import load_command_line
from omg.envs.battle import BattleEnv
from omg.envs.battle.args import BattleArgs
from omg.envs.battle.field import KEPT
from omg.envs.battle.kernel import BattleKernel, KernelBattles, _library
from omg.envs.battle.maps import BATTLES, SIDE, TERRAINS, routes_of
from omg.envs.battle.reference import ReferenceBattles
from omg.envs.battle.rules import Rules
from omg.envs.sc2.args import MAPS
from tests.standins.smac.widths import obs_width, state_width

from .test_sc2_config import SHAPES

COPIES = 16
# Options that add something to observations, states or rewards, all at once.
EVERYTHING = {
    **{f"obs_{name}": True for name in ("last_action", "pathing_grid", "terrain_height")},
    "obs_timestep_number": True,
    "state_timestep_number": True,
    "reward_only_positive": False,
    "reward_defeat": -7,
    "move_amount": 3.5,
    "step_mul": 5,
}


def kernel() -> BattleKernel:
    """As compiled, before its self-test: one that differs must fail here, not be left out."""
    library, reason = _library()
    if library is None:
        pytest.skip(reason)
    return BattleKernel(library)


@pytest.mark.parametrize("name", SHAPES)
def test_sizes_are_those_of_smac(name: str) -> None:
    agents, enemies, actions, obs, state, limit = SHAPES[name]
    env = BattleEnv(args={"map_name": name}, n_copies=2)
    spec = env.spec
    assert (spec.n_agents, spec.n_actions, spec.obs_dim) == (agents, actions, obs)
    assert (spec.state_dim, spec.episode_limit) == (state, limit)
    assert env.rules.n_enemies == enemies
    seen = env.reset(0)
    assert seen.obs.shape == (2, agents, obs)
    assert seen.state.shape == (2, state)
    assert seen.avail.shape == (2, agents, actions)
    assert len(BATTLES[name].allies) == agents
    assert len(BATTLES[name].enemies) == enemies


@pytest.mark.parametrize("name", ["8m", "2s3z", "MMM2", "corridor", "6h_vs_8z"])
@pytest.mark.parametrize(
    "options",
    [
        {"obs_all_health": False},
        {"obs_all_health": False, "obs_own_health": False},
        {"obs_last_action": True},
        {"obs_pathing_grid": True, "obs_terrain_height": True},
        {"obs_timestep_number": True},
    ],
)
def test_options_change_sizes_as_in_smac(name: str, options: dict[str, bool]) -> None:
    env = BattleEnv(args={"map_name": name, **options}, n_copies=1)
    assert env.spec.obs_dim == obs_width(MAPS[name], **options)
    for state in ({"state_last_action": False}, {"state_timestep_number": True}):
        env = BattleEnv(args={"map_name": name, **state}, n_copies=1)
        assert env.spec.state_dim == state_width(MAPS[name], **state)


def test_observations_side_by_side_can_take_the_place_of_the_state() -> None:
    env = BattleEnv(args={"map_name": "3m", "obs_instead_of_state": True}, n_copies=2)
    seen = env.reset(0)
    np.testing.assert_array_equal(seen.state, seen.obs.reshape(2, 90))
    assert env.spec.agent_features == ()


def both(name: str, **args: Any) -> tuple[KernelBattles, ReferenceBattles]:
    rules = Rules(BattleArgs(map_name=name, **args))
    pair = KernelBattles(kernel(), rules, COPIES), ReferenceBattles(rules, COPIES)
    for battles in pair:
        battles.keys[:] = np.arange(COPIES) * 7919 + 5
        battles.episodes[:] = -1
        battles.begin(np.arange(COPIES))
    return pair


def assert_equal_parts(one: Any, other: Any, *names: str) -> None:
    for name in names:
        left, right = getattr(one, name), getattr(other, name)
        assert np.array_equal(left, right), name
        assert left.dtype == right.dtype, name


def play_both(name: str, steps: int, **args: Any) -> int:
    """Random play, biased to attacks; the number of battles that ended."""
    fast, slow = both(name, **args)
    views = fast.view(), slow.view()
    rng, ends = np.random.default_rng(1), 0
    for _ in range(steps):
        assert_equal_parts(*views, "obs", "state", "avail")
        chance = rng.random(views[0].avail.shape)
        chance[..., 6:] *= 3
        actions = np.where(views[0].avail, chance, -1).argmax(-1)
        (one, first), (other, second) = fast.step(actions), slow.step(actions)
        views = first, second
        assert_equal_parts(one, other, "reward", "terminated", "truncated", "won", "dead")
        assert_equal_parts(fast.field, slow.field, *KEPT)
        assert (one.final is None) == (other.final is None)
        if one.final is not None:
            assert_equal_parts(one.final, other.final, "obs", "state", "avail")
            ends += len(one.final.obs)
    return ends


@pytest.mark.long
@pytest.mark.parametrize("name", BATTLES)
def test_c_and_numpy_agree_in_every_bit(name: str) -> None:
    play_both(name, 60)


@pytest.mark.long
@pytest.mark.parametrize("name", BATTLES)
def test_they_agree_with_all_options_and_with_agents_on_both_sides(name: str) -> None:
    play_both(name, 25, **EVERYTHING)
    play_both(name, 25, enemies="seats", obs_last_action=True)


@pytest.mark.parametrize(
    "name", ["3m", "2s3z", pytest.param("bane_vs_bane", marks=pytest.mark.long)]
)
def test_they_agree_over_the_ends_of_episodes(name: str) -> None:
    assert play_both(name, 70) > 0


def test_without_the_kernel_numpy_plays_the_same_battle() -> None:
    kernel()
    fast = BattleEnv(args={"map_name": "3m"}, n_copies=3)
    use_kernels(False)
    try:
        slow = BattleEnv(args={"map_name": "3m"}, n_copies=3)
    finally:
        use_kernels(True)
    assert isinstance(slow._battles, ReferenceBattles)
    np.testing.assert_array_equal(fast.reset(4).obs, slow.reset(4).obs)
    for _ in range(5):
        actions = np.ones((3, 3), np.int64)
        np.testing.assert_array_equal(fast.step(actions).state, slow.step(actions).state)


def test_threads_share_the_copies_and_change_nothing() -> None:
    envs = [BattleEnv(args={"map_name": "8m", "threads": n}, n_copies=7) for n in (1, 3)]
    views = [env.reset(2) for env in envs]
    rng = np.random.default_rng(0)
    for _ in range(30):
        chance = rng.random(views[0].avail.shape)
        actions = np.where(views[0].avail, chance, -1).argmax(-1)
        views = [env.step(actions) for env in envs]
        assert_equal_parts(*views, "obs", "state", "avail", "reward", "terminated")
    for env in envs:
        env.close()


@pytest.mark.parametrize("name", BATTLES)
def test_everybody_begins_on_the_ground_near_its_spawn(name: str) -> None:
    env = BattleEnv(args={"map_name": name}, n_copies=64)
    env.reset(1)
    rules, field = env.rules, env.field
    cells = rules.grid[field.x.astype(int), field.y.astype(int)]
    assert (cells & 1).all()
    for side, units in enumerate((slice(0, rules.n_allies), slice(rules.n_allies, None))):
        centre = field.x[:, units].mean(), field.y[:, units].mean()
        np.testing.assert_allclose(centre, rules.spawns[side], atol=0.8)


def test_equal_armies_stand_as_mirror_images() -> None:
    for name in ("8m", "2s3z", "MMM"):
        rules = Rules(BattleArgs(map_name=name))
        ours, theirs = np.split(rules.place, 2)
        np.testing.assert_allclose(ours[:, 0] - 9, 23 - theirs[:, 0], atol=1e-5)
        np.testing.assert_allclose(ours[:, 1], theirs[:, 1], atol=1e-5)


@pytest.mark.parametrize("terrain", ["corridor", "cliff"])
def test_every_way_leads_to_its_end_over_ground(terrain: str) -> None:
    ground, routes = TERRAINS[terrain]() & 1, routes_of(terrain)
    places = ground.ravel().nonzero()[0]
    rng = np.random.default_rng(0)
    for start, end in rng.choice(places, (200, 2)).tolist():
        at, steps = start, 0
        while routes[at, end] >= 0:
            at, steps = int(routes[at, end]), steps + 1
            assert ground.ravel()[at]
            assert steps < 4 * SIDE


def test_the_shipped_files_say_what_smacs_do() -> None:
    battle, game = (
        load_command_line(["--config=qmix", f"--env-config={name}"]).config.env_args
        for name in ("battle", "sc2")
    )
    shared = battle.keys() & game.keys()
    assert {key: battle[key] for key in shared} == {key: game[key] for key in shared}
    assert battle.keys() - game.keys() == {"enemies", "unavailable", "threads"}
    # The game's whole file plays here, too.
    assert BattleEnv(args=game, n_copies=1).spec.name == "3m"
