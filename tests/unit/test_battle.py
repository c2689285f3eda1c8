"""Battles by hand-made situations: what agents see, what weapons do, what is paid and refused."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from omg.envs.battle import BattleEnv
from omg.envs.battle.maps import BATTLES
from omg.envs.battle.units import UNITS
from omg.envs.check import check_batched_env
from omg.envs.sc2.args import SmacArguments
from omg.types import OmgError, TimeStep

from .test_sc2_config import DOCUMENTED

NOOP, STOP, NORTH, SOUTH, EAST, WEST, ATTACK = range(7)


def make(name: str = "3m", copies: int = 1, seed: int = 0, **args: Any) -> BattleEnv:
    env = BattleEnv(args={"map_name": name, **args}, n_copies=copies)
    env.reset(seed)
    return env


def act(env: BattleEnv, *actions: int) -> TimeStep:
    return env.step(np.array([actions]))


def line(*xs: float, y: float = 16.0) -> list[tuple[float, float]]:
    """Units side by side, far enough apart in y not to touch."""
    return [(x, y + 1.5 * i) for i, x in enumerate(xs)]


# --- what agents see: a slow loop after the reference class --------------------------------------


def shares(env: BattleEnv, unit: int, side: int) -> list[float]:
    rules, field = env.rules, env.field
    found = [field.health[0, unit] / rules.full_health[unit]]
    if rules.map.info.races[side] == "P":
        found.append(field.shield[0, unit] / rules.full_shield[unit])
    return found


def type_bits(env: BattleEnv, unit: int, enemy: bool) -> list[float]:
    kind = env.rules.kinds[unit].name
    orders = {
        "2s3z": (["stalker", "zealot"], ["zealot", "stalker"]),
        "MMM": (["marauder", "marine", "medivac"],) * 2,
    }
    names = orders.get(env.args.map_name, ([], []))[enemy]
    return [float(name == kind) for name in names]


def slow_mask(env: BattleEnv, agent: int) -> list[int]:
    rules, field = env.rules, env.field
    if field.health[0, agent] <= 0:
        return [1] + [0] * (rules.n_actions - 1)
    x, y = float(field.x[0, agent]), float(field.y[0, agent])
    ahead = [(x, y + 1), (x, y - 1), (x + 1, y), (x - 1, y)]
    mask = [0, 1]
    mask += [int(max(a, b) < 32 and rules.grid[int(a), int(b)] & 1) for a, b in ahead]
    heals = rules.kinds[agent].name == "medivac"
    start = 0 if heals else rules.n_allies
    for k in range(rules.n_enemies):
        unit = start + k
        gap = math.dist((x, y), (field.x[0, unit], field.y[0, unit]))
        able = field.health[0, unit] > 0 and gap <= 6
        mask.append(int(able and not (heals and rules.kinds[unit].name == "medivac")))
    return mask


def slow_obs(env: BattleEnv, agent: int) -> list[float]:
    rules, field = env.rules, env.field
    if field.health[0, agent] <= 0:
        return [0.0] * rules.obs_dim
    mask = slow_mask(env, agent)
    x, y = float(field.x[0, agent]), float(field.y[0, agent])

    def seen(unit: int, first: float, enemy: bool) -> list[float]:
        dx, dy = float(field.x[0, unit]) - x, float(field.y[0, unit]) - y
        gap = math.hypot(dx, dy)
        found = [first, gap / 9, dx / 9, dy / 9, *shares(env, unit, int(enemy))]
        found += type_bits(env, unit, enemy)
        hidden = gap >= 9 or field.health[0, unit] <= 0
        return [0.0] * len(found) if hidden else found

    obs = [float(value) for value in mask[2:6]]
    for k in range(rules.n_enemies):
        obs += seen(rules.n_allies + k, mask[6 + k], True)
    for other in range(rules.n_allies):
        if other != agent:
            obs += seen(other, 1.0, False)
    return obs + shares(env, agent, 0) + type_bits(env, agent, False)


def slow_state(env: BattleEnv, last: list[int]) -> list[float]:
    rules, field = env.rules, env.field
    scale = {"marine": 15, "stalker": 35, "zealot": 22, "marauder": 25}
    state: list[float] = []
    for unit in range(rules.n_units):
        ours, kind = unit < rules.n_allies, rules.kinds[unit].name
        row = [shares(env, unit, 0)[0]]
        if ours and kind == "medivac":
            row.append(field.energy[0, unit] / 200)
        elif ours:
            row.append(field.cooldown[0, unit] / scale[kind])
        row += [(field.x[0, unit] - 16) / 30, (field.y[0, unit] - 16) / 16]
        row += shares(env, unit, int(not ours))[1:] + type_bits(env, unit, not ours)
        state += row if field.health[0, unit] > 0 else [0.0] * len(row)
    for action in last:
        state += [float(action == number) for number in range(rules.n_actions)]
    return state


@pytest.mark.parametrize("name", ["3m", "2s3z", "MMM"])
def test_agents_see_what_a_slow_loop_after_smac_finds(name: str) -> None:
    env = make(name, seed=3)
    view, rng = env.observe(), np.random.default_rng(2)
    agents, last, dead = env.spec.n_agents, [-1] * env.spec.n_agents, 0
    for _ in range(50):
        mask = np.array([slow_mask(env, agent) for agent in range(agents)])
        np.testing.assert_array_equal(view.avail[0], mask)
        obs = [slow_obs(env, agent) for agent in range(agents)]
        np.testing.assert_allclose(view.obs[0], obs, atol=2e-6)
        np.testing.assert_allclose(view.state[0], slow_state(env, last), atol=2e-6)
        dead = max(dead, int(mask[:, 0].sum()))
        chance = rng.random(mask.shape) * np.where(np.arange(mask.shape[1]) == EAST, 2, 1)
        actions = np.where(mask, chance, -1).argmax(-1)
        view, last = env.step(actions[None]), actions.tolist()
        if view.final is not None:
            break
    assert dead > 0


def test_ours_are_numbered_by_kind_and_place_and_keep_their_numbers() -> None:
    env = make("2s3z", copies=32)
    x = env.field.x
    assert (np.diff(x[:, :2]) >= 0).all()
    assert (np.diff(x[:, 2:5]) >= 0).all()
    assert [kind.name for kind in env.rules.kinds[:5]] == ["stalker"] * 2 + ["zealot"] * 3


def test_the_time_is_shown_where_it_is_asked_for() -> None:
    env = make(obs_timestep_number=True, state_timestep_number=True)
    env.set_layout(
        0, places=line(5, 5, 5, 25, 25, 25, y=10), health=[45, 0, 45, 45, 45, 45], step=14
    )
    step = act(env, STOP, NOOP, STOP)
    np.testing.assert_allclose(step.obs[0, :, -1], 15 / 60)
    np.testing.assert_allclose(step.state[0, -1], 15 / 60)
    assert not step.obs[0, 1, :-1].any()


# --- what units do -------------------------------------------------------------------------------

FAR_AWAY = {"places": line(5, 5, 5, 25, 25, 25, y=10)}


def test_a_move_goes_on_for_the_whole_step_and_ends_at_walls() -> None:
    env = make()
    env.set_layout(0, **FAR_AWAY)
    before = env.field.x[0, 0], env.field.y[0, 0]
    act(env, EAST, STOP, STOP)
    pace = UNITS["marine"].speed * 8 / 22.4
    np.testing.assert_allclose(env.field.x[0, 0] - before[0], pace, rtol=1e-5)
    assert env.field.y[0, 0] == before[1]
    env.set_layout(0, places=[(1.2, 10), (1.2, 12), (1.2, 14), (25, 10), (25, 12), (25, 14)])
    assert not env.observe().avail[0, 0, WEST]
    assert env.observe().avail[0, 0, EAST]


def test_a_stopped_unit_never_fires_by_itself() -> None:
    env = make("2m_vs_1z")
    env.set_layout(0, places=[(10, 16), (10, 18), (14, 17)])
    assert act(env, STOP, STOP).reward[0, 0] == 0
    assert (env.field.health[0, 2], env.field.shield[0, 2]) == (100, 50)


def test_a_shot_takes_its_damage_and_the_next_one_waits() -> None:
    env = make("3m", enemies="seats")
    env.set_layout(0, **DUEL)
    stop = [STOP] * 5
    act(env, ATTACK, *stop)
    # One shot in the first tick; the cooldown is 14 ticks and -1 to 2, of which 7 are over.
    assert env.field.health[0, 3] == 39
    assert 6 <= env.field.cooldown[0, 0] <= 9
    act(env, ATTACK, *stop)
    assert env.field.health[0, 3] in (39, 33)
    act(env, ATTACK, *stop)
    assert env.field.health[0, 3] == 33


def test_shields_come_first_and_armour_stops_some_of_every_hit() -> None:
    env = make("2s3z", enemies="seats")
    zealot = 2
    places = [(10, 12), (10, 20), (14, 16), (4, 10), (4, 22), *[(26, 10 + 3 * i) for i in range(5)]]
    places[5] = (14.9, 16)  # a stalker beside the zealot
    full = env.rules.full_shield.tolist()
    stop = [STOP] * 9

    def strike(shield: float) -> tuple[float, float]:
        shields = [*full]
        shields[5] = shield
        env.set_layout(0, places=places, shield=shields)
        act(env, *[STOP] * zealot, ATTACK, *stop[: 9 - zealot])
        return float(env.field.shield[0, 5]), float(env.field.health[0, 5])

    assert strike(80) == (64, 80)  # 2 x 8 on the shield
    assert strike(10) == (0, 80 - (8 - 2 - 1))  # the second is stopped in part, then by armour
    assert strike(0) == (0, 80 - 2 * (8 - 1))


@pytest.mark.parametrize("positive", [True, False])
def test_shields_recover_after_a_pause_and_pay_their_foes_nothing(positive: bool) -> None:
    """With negative rewards they pay their own side, and cost the other, as in the game."""
    env = make("3s_vs_3z", enemies="seats", reward_only_positive=positive, reward_scale=False)
    places = [(4, 10), (4, 14), (4, 18), (28, 10), (28, 14), (28, 18)]
    env.set_layout(0, places=places, shield=[80, 80, 80, 10, 10, 50])
    rewards, shields = [], []
    for _ in range(25):
        rewards.append(act(env, *[STOP] * 6).reward[0])
        shields.append(float(env.field.shield[0, 3]))
    assert shields[19] == 10  # 160 ticks
    assert shields[20] == 11  # 8 ticks of 0.125
    assert shields[24] == 15
    earned = np.array(rewards).reshape(25, 6)[:, [0, 3]]
    recovered = 0.0 if positive else 5 + 5  # two of the zealots; the third is whole
    assert earned[:20].tolist() == [[0, 0]] * 20
    assert earned.sum(0).tolist() == [-recovered, 0.5 * recovered]


def slow_reward(env: BattleEnv, before: Any, copy: int) -> float:
    """The reference class's sum, unscaled, for a battle that goes on; without its `abs`."""
    args, field, n = env.args, env.field, env.rules.n_allies
    dealt = suffered = 0.0
    for unit in range(env.rules.n_units):
        health, shield = before[0][copy, unit], before[1][copy, unit]
        if health == 0:
            continue
        lost = float(health + shield)
        if field.health[copy, unit] > 0:
            lost -= float(field.health[copy, unit] + field.shield[copy, unit])
        else:
            lost += args.reward_death_value
        if unit < n:
            suffered += args.reward_negative_scale * lost
        else:
            dealt += lost
    return max(dealt, 0.0) if args.reward_only_positive else dealt - suffered


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("name", ["2s3z", "MMM", "corridor"])
def test_rewards_equal_a_slow_sum_after_the_reference_class(name: str, positive: bool) -> None:
    options = {"reward_only_positive": positive, "reward_scale": False, "unavailable": "noop"}
    env = make(name, copies=8, **options)
    rng = np.random.default_rng(0)
    compared, negative = 0, 0
    for _ in range(60):
        before = env.field.health.copy(), env.field.shield.copy()
        step = env.step(rng.integers(0, env.spec.n_actions, (8, env.spec.n_agents)))
        for copy in np.flatnonzero(~(step.terminated | step.truncated)):
            wanted = slow_reward(env, before, copy)
            assert step.reward[copy, 0] == pytest.approx(wanted, abs=1e-3)
            compared += 1
            negative += wanted < 0
    assert compared > 100
    assert (negative > 0) is not positive


def test_a_colossus_burns_a_line_and_not_its_own() -> None:
    env = make("2c_vs_64zg", enemies="seats")
    places = np.full((66, 2), 0.0)
    places[:2] = (16, 20), (8, 24)
    places[2:] = [(4 + 0.8 * (i % 30), 5 + i // 30) for i in range(64)]
    # Beside the target across the view, 1.5 away; as far along it.
    places[2], places[3], places[4] = (16, 15.5), (17.5, 15.5), (16, 14.0)
    env.set_layout(0, places=places)
    act(env, ATTACK, STOP, *[STOP] * 64)
    damage = env.rules.full_health[2:] - env.field.health[0, 2:]
    assert damage[0] > 29  # 2 x 15, but for what grows back
    assert damage[1] > 29
    assert not damage[2:].any()
    assert env.field.health[0, 1] == 200


def test_a_baneling_bursts_once_and_also_when_it_is_killed() -> None:
    env = make("so_many_baneling", enemies="seats")
    places = np.array([(4 + 3 * i, 22) for i in range(7)] + [(2 + 0.8 * i, 9) for i in range(32)])
    places[0], places[7] = (10, 16), (10.8, 16)
    env.set_layout(0, places=places)
    act(env, *[STOP] * 7, ATTACK, *[STOP] * 31)
    assert env.field.health[0, 7] == 0
    assert env.field.shield[0, 0] == 50 - 35
    env.set_layout(0, places=places)
    act(env, ATTACK, *[STOP] * 6, *[STOP] * 32)
    act(env, ATTACK, *[STOP] * 6, *[STOP] * 32)
    act(env, ATTACK, *[STOP] * 6, *[STOP] * 32)
    assert env.field.health[0, 7] == 0
    assert env.field.shield[0, 0] == 50 - 35
    assert not env.field.burst.any()


def test_a_medivac_heals_for_energy_and_not_beyond_full_health() -> None:
    env = make("MMM", enemies="seats")
    places = [(6, 10 + 1.2 * i) for i in range(10)] + [(26, 10 + 1.2 * i) for i in range(10)]
    medivac, health = 9, env.rules.full_health.copy()
    health[8] = 20
    view = env.set_layout(0, places=places, health=health)
    assert view.avail[0, medivac, ATTACK : ATTACK + 10].tolist() == [i >= 4 for i in range(9)] + [0]
    stop = [STOP] * 19
    act(env, *stop[:medivac], ATTACK + 8, *stop[medivac:])
    np.testing.assert_allclose(env.field.health[0, 8], 20 + 8 * 0.5625)
    np.testing.assert_allclose(env.field.energy[0, medivac], 50 - 8 * (0.1875 - 0.03515625))
    for _ in range(10):
        act(env, *stop[:medivac], ATTACK + 8, *stop[medivac:])
    assert env.field.health[0, 8] == 45


def test_bodies_do_not_overlap_and_medivacs_fly_over_them() -> None:
    env = make("MMM")
    rng = np.random.default_rng(0)
    for _ in range(12):
        mask = env.observe().avail[0]
        actions = np.where(mask, rng.random(mask.shape), -1).argmax(-1)
        act(env, *actions)
    x, y, touch = env.field.x[0], env.field.y[0], env.rules.touch
    alive = env.field.health[0] > 0
    gaps = np.hypot(x[:, None] - x, y[:, None] - y)
    overlap = np.where((touch > 0) & alive & alive[:, None], touch - gaps, 0)
    assert overlap.max() < 0.3


# --- what is paid, and how battles end -----------------------------------------------------------

DUEL = {"places": [(x, y) for x in (10, 14) for y in (12, 14, 16)]}


def test_damage_pays_its_amount_and_a_kill_what_was_left_and_ten_scaled_to_twenty() -> None:
    env = make("3m", enemies="seats")
    scale = 20 / (3 * 10 + 200 + 3 * 45)
    env.set_layout(0, **DUEL)
    step = act(env, ATTACK, *[STOP] * 5)
    np.testing.assert_allclose(step.reward[0], [6 * scale] * 3 + [0] * 3, rtol=1e-6)
    env.set_layout(0, **DUEL, health=[45, 45, 45, 4, 45, 45])
    step = act(env, ATTACK, *[STOP] * 5)
    np.testing.assert_allclose(step.reward[0, 0], (4 + 10) * scale, rtol=1e-6)
    assert step.info["dead_enemies"].tolist() == [1.0]


def test_a_perfect_battle_is_worth_twenty() -> None:
    env = make("3m", enemies="seats")
    total = 0.0
    env.set_layout(0, **DUEL)
    for _ in range(59):
        avail = env.observe().avail[0]
        fire = [int(avail[i, ATTACK + i]) * (ATTACK + i) or STOP for i in range(3)]
        step = act(env, *fire, *np.where(avail[3:, 0], NOOP, STOP))
        total += float(step.reward[0, 0])
        if step.terminated[0]:
            break
    assert step.info["battle_won"].tolist() == [1.0]
    np.testing.assert_allclose(total, 20.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("health", "won", "sparse"),
    [
        ([45, 0, 0, 6, 0, 0], 1.0, 1.0),
        ([6, 0, 0, 45, 0, 0], 0.0, -1.0),
        ([6, 0, 0, 6, 0, 0], 0.0, 0),
    ],
)
def test_who_is_left_has_won_and_nobody_if_both_fall(
    health: list[int], won: float, sparse: float
) -> None:
    for options, wanted in (
        ({"reward_sparse": True, "reward_scale": False}, sparse),
        ({"reward_sparse": True}, sparse * 20 / 365),
    ):
        env = make("3m", enemies="seats", **options)
        env.set_layout(0, **DUEL, health=health)
        shoots = [ATTACK if sparse >= 0 else STOP, 0, 0, ATTACK if sparse <= 0 else STOP, 0, 0]
        step = act(env, *shoots)
        assert step.terminated[0]
        assert not step.truncated[0]
        assert step.info["battle_won"][0] == won
        np.testing.assert_allclose(step.reward[0, 0], wanted, rtol=1e-6)
        np.testing.assert_allclose(step.reward[0, 3], -wanted, rtol=1e-6)


def test_a_side_of_medivacs_alone_has_lost() -> None:
    env = make("MMM", enemies="seats")
    places = [(6, 10 + 1.2 * i) for i in range(10)] + [(26, 10 + 1.2 * i) for i in range(10)]
    health = env.rules.full_health.copy()
    health[:9] = 0
    env.set_layout(0, places=places, health=health)
    assert act(env, *[NOOP] * 9, *[STOP] * 11).terminated[0]


def test_the_limit_truncates_and_a_win_in_the_last_step_is_a_win() -> None:
    env = make("3m", enemies="seats")
    env.set_layout(0, **FAR_AWAY, step=59)
    step = act(env, *[STOP] * 6)
    assert (step.terminated[0], step.truncated[0]) == (False, True)
    assert step.info["timeouts"].tolist() == [1.0]
    env.set_layout(0, **DUEL, health=[45, 0, 0, 6, 0, 0], step=59)
    step = act(env, ATTACK, *[NOOP] * 2, STOP, *[NOOP] * 2)
    assert (step.terminated[0], step.truncated[0]) == (True, False)
    assert step.info["battle_won"].tolist() == [1.0]


def test_losses_cost_only_where_rewards_may_be_negative() -> None:
    for positive, wanted in ((True, 0.0), (False, -0.5 * (6 + 10))):
        env = make("3m", enemies="seats", reward_only_positive=positive, reward_scale=False)
        env.set_layout(0, **DUEL, health=[6, 45, 45, 45, 45, 45])
        step = act(env, STOP, STOP, STOP, ATTACK, STOP, STOP)
        assert step.reward[0, 0] == wanted


# --- both sides ----------------------------------------------------------------------------------


def test_the_enemy_sees_and_moves_as_if_it_were_on_our_side() -> None:
    env = make("3m", enemies="seats")
    ours = [(10.0, 14.0), (10.5, 16.0), (11.0, 18.0)]
    view = env.set_layout(0, places=[*ours, *[(32 - x, 32 - y) for x, y in ours]])
    np.testing.assert_allclose(view.obs[0, :3], view.obs[0, 3:], atol=1e-6)
    np.testing.assert_array_equal(view.avail[0, :3], view.avail[0, 3:])
    view = act(env, EAST, NORTH, STOP, EAST, NORTH, STOP)
    np.testing.assert_allclose(view.obs[0, :3], view.obs[0, 3:], atol=1e-5)
    assert env.field.x[0, 0] > 10
    assert env.field.x[0, 3] < 22


def test_roles_have_widths_of_their_own_and_all_seats_a_place_in_the_state() -> None:
    spec = make("corridor", enemies="seats", obs_last_action=True).spec
    assert spec.roles == ("ally",) * 6 + ("enemy",) * 24
    # Its own moves, 24 or 6 enemies, 5 or 23 mates with their last of 30 actions, itself.
    ours, theirs = 4 + 24 * 5 + 5 * (6 + 30) + 2, 4 + 6 * 6 + 23 * (5 + 30) + 1
    assert spec.obs_dims == (ours,) * 6 + (theirs,) * 24
    assert {len(columns) for columns in spec.agent_features} == {5}
    assert len(spec.agent_features) == 30
    assert not spec.shared_reward
    assert spec.n_actions == 30


# --- seeds, snapshots, the contract --------------------------------------------------------------


def test_a_restored_snapshot_continues_bit_for_bit() -> None:
    env, twin = make("2s3z", copies=4, seed=9), make("2s3z", copies=4)
    rng = np.random.default_rng(0)

    def go(battle: BattleEnv, actions: Any) -> TimeStep:
        return battle.step(np.where(battle._avail, actions, -1).argmax(-1))

    chances = rng.random((60, 4, 5, 11))
    for chance in chances[:30]:
        go(env, chance)
    snapshot = env.snapshot()
    np.testing.assert_array_equal(twin.restore(snapshot).obs, env.observe().obs)
    for chance in chances[30:]:
        one, other = go(env, chance), go(twin, chance)
        np.testing.assert_array_equal(one.state, other.state)
        np.testing.assert_array_equal(one.reward, other.reward)
    with pytest.raises(OmgError, match="does not fit"):
        make("3m", copies=4).restore(snapshot)


def test_a_snapshot_of_another_map_with_as_many_units_is_refused() -> None:
    env, other = make("8m", copies=2), make("3s5z", copies=2)
    assert env.field.fits(other.snapshot())
    with pytest.raises(OmgError, match="does not fit 2 copies of 8m"):
        env.restore(other.snapshot())


@pytest.mark.long
@pytest.mark.parametrize("name", BATTLES)
def test_the_contract_is_kept_on_every_map(name: str) -> None:
    for result in check_batched_env(partial(BattleEnv, args={"map_name": name}), steps=80):
        assert result.ok, f"{result.name}: {result.detail}"


@pytest.mark.long
@pytest.mark.parametrize("name", ["2s3z", "MMM2"])
def test_the_contract_is_kept_with_agents_on_both_sides(name: str) -> None:
    args = {"map_name": name, "enemies": "seats"}
    for result in check_batched_env(partial(BattleEnv, args=args), steps=80):
        assert result.ok, f"{result.name}: {result.detail}"


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        (
            (ATTACK + 2, STOP, STOP),
            r"Agent 0 .* action 8 at step 7 of copy 0: enemy 2 is 1\d",
        ),
        ((STOP, ATTACK, STOP), "Agent 1 .*: it is dead"),
        ((NOOP, NOOP, STOP), "Agent 0 .*: doing nothing .* is for the dead"),
        ((STOP, NOOP, WEST), "Agent 2 .*: there is no ground to the west"),
        ((ATTACK + 1, NOOP, STOP), "Agent 0 .*: enemy 1 is dead"),
    ],
)
def test_an_unavailable_action_is_refused_with_agent_step_and_reason(
    actions: tuple[int, ...], words: str
) -> None:
    env = make()
    places = [(10, 12), (10, 14), (1.3, 10), (14, 12), (14, 14), (28, 20)]
    env.set_layout(0, places=places, health=[45, 0, 45, 45, 0, 45], step=7)
    with pytest.raises(OmgError, match=words):
        act(env, *actions)


def test_or_it_does_nothing_where_that_is_wished() -> None:
    env, other = make(unavailable="noop"), make()
    for battle in (env, other):
        battle.set_layout(0, **FAR_AWAY, health=[45, 0, 45, 45, 45, 45])
    one, two = act(env, ATTACK, ATTACK, NOOP), act(other, STOP, NOOP, STOP)
    np.testing.assert_array_equal(one.state, two.state)


@pytest.mark.parametrize(
    "actions",
    [
        [[STOP, STOP]],
        [STOP, STOP, STOP],
        [[1.7, 1.0, 1.0]],
        [[STOP, STOP, 9]],
        [[STOP, STOP, -1]],
        [[True, True, True]],
        [["1", "1", "1"]],
    ],
)
def test_a_wrong_number_or_kind_of_actions_is_refused(actions: Any) -> None:
    with pytest.raises(OmgError, match=r"array \(1, 3\) of integers from 0 to 8"):
        make().step(np.array(actions))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"health": [float("nan"), *[45] * 5]}, "`health` of unit 0 is nan. Choose from 0 to 45"),
        ({"health": [45, -1, *[45] * 4]}, "`health` of unit 1 is -1"),
        ({"health": [*[45] * 5, 1e9]}, r"`health` of unit 5 is 1e\+09. Choose from 0 to 45"),
        ({"health": [45] * 5}, "`health` must have a number for each of 6 units"),
        ({"health": ["all"] * 6}, "`health` must have a number"),
        ({"shield": [1, *[0] * 5]}, "`shield` of unit 0 is 1. Choose from 0 to 0"),
        ({"cooldown": [-1, *[0] * 5]}, "`cooldown` of unit 0 is -1"),
        ({"step": 60}, "`step` is 60. Choose one from 0 to 59"),
        ({"copy": 1}, "`copy` is 1. Choose one from 0 to 0"),
        ({"copy": -1}, "`copy` is -1"),
        ({"places": [(float("nan"), 4)] * 6}, "`places` must be"),
        ({"places": [(1, 2), (3,)]}, "`places` must be"),
    ],
)
def test_a_refused_layout_says_why_and_changes_nothing(given: dict[str, Any], words: str) -> None:
    env = make(enemies="seats")
    env.set_layout(0, **DUEL, health=[40] * 6)
    before = env.snapshot()
    with pytest.raises(OmgError, match=words):
        env.set_layout(given.pop("copy", 0), **{**FAR_AWAY, "health": [9] * 6, **given})
    for name, array in env.snapshot().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"map_name": "8n"}, "no map called '8n'. Nearest: .*8m"),
        ({"map_name": "3s_vs_6z"}, "Nearest: 3s_vs_"),
        ({"map": "8m"}, "no argument 'map'"),
        ({"step_mul": 0}, "'step_mul' is 0"),
        ({"move_amount": -1}, "'move_amount' is -1"),
        ({"difficulty": "B"}, "difficulty='B' is not possible"),
        ({"reward_scale_rate": 0}, "'reward_scale_rate' is 0"),
        ({"enemies": "agents"}, "'enemies' is 'agents'"),
        ({"game_version": "4.10.0"}, "no game here whose version"),
        ({"heuristic_ai": True}, "'heuristic_ai' is True"),
        ({"replay_dir": "/tmp"}, "'replay_dir' is '/tmp'"),
        ({"debug": True}, "'debug' is True"),
        ({"seed": 3}, "'seed' is 3"),
        ({"timeout_seconds": 1}, "'timeout_seconds' is 1"),
        ({"map_name": 8}, "no map called '8'. Nearest: 8m"),
        ({"map_name": ["8m"]}, "'map_name' is .'8m'.*valid string"),
        ({"reward_scale_rate": -20}, "'reward_scale_rate' is -20.*greater than 0"),
        ({"reward_win": 0, "reward_death_value": -1000}, "perfect battle on 8m is worth -7640"),
        (
            {"obs_instead_of_state": True, "state_timestep_number": True},
            "state_timestep_number=true shows nothing.*obs_timestep_number=true instead",
        ),
        ({"enemies": "seats", "difficulty": 3}, "difficulty=3.*with enemies=seats there is none"),
    ],
)
def test_bad_arguments_are_explained_in_a_sentence(args: dict[str, Any], words: str) -> None:
    with pytest.raises(OmgError, match=words) as caught:
        BattleEnv(args=args, n_copies=1)
    assert "\n" not in str(caught.value)


def test_the_arguments_are_smacs_with_its_defaults() -> None:
    fields = {name: field.default for name, field in SmacArguments.model_fields.items()}
    assert fields == {**DOCUMENTED, "timeout_seconds": 300.0, "max_restarts": 5}
