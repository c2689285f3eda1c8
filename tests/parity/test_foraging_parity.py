"""Our foraging game against lbforaging: same situation, same actions, same outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from omg.envs.foraging import ForagingEnv, ForagingFrame

reference = pytest.importorskip("lbforaging.foraging.environment")

COPIES = 5
STEPS = 210


def game(size: tuple[int, int], players: int, foods: int, **others: Any) -> dict[str, Any]:
    return {"field_size": size, "players": players, "max_num_food": foods, **others}


GAMES = {
    "5x5-2p-1f": game((5, 5), 2, 1),
    "5x5-3p-2f-2s": game((5, 5), 3, 2, sight=2),
    "5x5-4p-2f-1s": game((5, 5), 4, 2, sight=1),
    "5x5-5p-3f": game((5, 5), 5, 3),
    "5x5-5p-2f-coop-2s": game((5, 5), 5, 2, force_coop=True, sight=2),
    "6x6-2p-3f-1s-unnormalised": game((6, 6), 2, 3, sight=1, normalize_reward=False),
    "6x6-3p-3f-penalty": game((6, 6), 3, 3, penalty=0.1, force_coop=True),
    "6x6-4p-4f-3s": game((6, 6), 4, 4, sight=3),
    "7x7-2p-2f-coop": game((7, 7), 2, 2, force_coop=True),
    "7x7-4p-3f-2s-penalty": game((7, 7), 4, 3, sight=2, penalty=0.25, force_coop=True),
    "8x8-2p-3f": game((8, 8), 2, 3),
    "8x8-2p-3f-2s-coop": game((8, 8), 2, 3, sight=2, force_coop=True),
    "8x8-3p-5f-no-levels": game((8, 8), 3, 5, observe_agent_levels=False),
    "8x8-4p-4f-2s-no-levels": game((8, 8), 4, 4, sight=2, observe_agent_levels=False),
    "9x9-5p-5f-3s": game((9, 9), 5, 5, sight=3),
    "10x10-3p-3f": game((10, 10), 3, 3),
    "10x10-4p-5f-unnormalised": game(
        (10, 10), 4, 5, normalize_reward=False, penalty=0.5, max_player_level=3
    ),
    "11x11-5p-5f-4s": game((11, 11), 5, 5, sight=4),
    "12x12-4p-5f-2s": game((12, 12), 4, 5, sight=2),
    "12x12-5p-4f-11s": game((12, 12), 5, 4, sight=11),
    "5x8-3p-3f": game((5, 8), 3, 3),
    "9x5-3p-2f-2s": game((9, 5), 3, 2, sight=2),
    "6x11-4p-4f-1s": game((6, 11), 4, 4, sight=1),
    "12x6-5p-4f-3s-no-levels": game((12, 6), 5, 4, sight=3, observe_agent_levels=False),
    "6x6-3p-3f-levels": game(
        (6, 6), 3, 3, min_player_level=[1, 2, 4], max_player_level=[1, 3, 6], max_food_level=3
    ),
    "7x7-2p-3f-food-levels": game(
        (7, 7), 2, 3, min_food_level=[1, 2, 3], max_food_level=[1, 2, 5], penalty=0.1
    ),
    "5x5-3p-2f-short": game((5, 5), 3, 2, max_episode_steps=7),
    "3x3-2p-1f": game((3, 3), 2, 1),
}
DEFAULTS = {
    "sight": None,
    "max_episode_steps": 50,
    "force_coop": False,
    "min_player_level": 1,
    "max_player_level": 2,
    "min_food_level": 1,
    "max_food_level": None,
}


class Anything:
    """A space that contains everything."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def contains(self, _: object) -> bool:
        return True


def make_reference(args: dict[str, Any]) -> Any:
    settings = {**DEFAULTS, **args}
    if settings["sight"] is None:
        settings["sight"] = max(settings["field_size"])
    env = reference.ForagingEnv(**settings)
    # Its own bounds swap rows and columns, which makes it refuse its views of oblong fields.
    env.observation_space = [Anything(env.observation_space[0].shape)] * env.n_agents
    return env


def put(env: Any, frame: ForagingFrame) -> None:
    env.field = np.zeros(frame.field_size, np.int32)
    for row, col, level in frame.foods:
        env.field[row, col] = level
    for player, position, level in zip(
        env.players, frame.player_pos, frame.player_levels, strict=True
    ):
        player.setup(position, level, frame.field_size)
    env._food_spawned = env.field.sum()
    env.current_step = 0
    env._game_over = False
    env._gen_valid_moves()


def valid(env: Any) -> NDArray[np.bool_]:
    table = np.zeros((env.n_agents, 6), bool)
    for seat, player in enumerate(env.players):
        table[seat, [action.value for action in env._valid_actions[player]]] = True
    return table


def situation(env: Any) -> tuple[Any, ...]:
    foods = [(int(r), int(c), int(env.field[r, c])) for r, c in np.argwhere(env.field)]
    return tuple(foods), tuple(tuple(map(int, player.position)) for player in env.players)


def mostly_valid(rng: np.random.Generator, avail: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Load where possible half of the time, now and then something impossible."""
    weights = np.where(avail, [0.4, 1, 1, 1, 1, 4], 0.05) * rng.random(avail.shape) ** 0.5
    return weights.argmax(-1)


def play(args: dict[str, Any], seed: int) -> dict[str, int]:
    """Compare everything along random play; count what happened."""
    rng = np.random.default_rng(seed)
    ours = ForagingEnv(args=args, n_copies=COPIES)
    seen = ours.reset(seed)
    theirs = [make_reference(args) for _ in range(COPIES)]
    for copy, env in enumerate(theirs):
        put(env, ours.frame(copy))
        assert np.array_equal(seen.obs[copy], env._make_gym_obs())
        assert np.array_equal(seen.avail[copy], valid(env))
    counts = dict.fromkeys(("loads", "failed", "collisions", "shared", "ends", "limits"), 0)
    avail = seen.avail
    for _ in range(STEPS):
        actions = mostly_valid(rng, avail)
        step = ours.step(actions)
        ended = [] if step.final is None else step.final.copies.tolist()
        for copy, env in enumerate(theirs):
            foods, before = situation(env)
            able = valid(env)
            obs, reward, done, _, _ = env.step(actions[copy].tolist())
            left, after = situation(env)
            assert np.abs(step.reward[copy] - reward).max() < 1e-6
            assert done == bool(step.terminated[copy] or step.truncated[copy])
            assert step.terminated[copy] == (not left)
            share = 1 - env.field.sum() / max(env._food_spawned, 1)
            if env._food_spawned:
                assert abs(step.info["food_collected"][copy] - share) < 1e-6
            if copy in ended:
                assert step.final is not None
                view, at = step.final, ended.index(copy)
                state = view.state[at]
                assert np.array_equal(view.obs[at], obs)
                assert np.array_equal(view.avail[at], valid(env))
                put(env, ours.frame(copy))
                assert ours.frame(copy).step == 0
                obs = env._make_gym_obs()
            else:
                state = step.state[copy]
                scores = np.array([player.score for player in env.players])
                assert np.abs(scores - ours.frame(copy).score).max() < 1e-6
            assert foods_and_players(state, args) == (left, after)
            assert np.array_equal(step.obs[copy], obs)
            assert np.array_equal(step.avail[copy], valid(env))
            counts["loads"] += len(foods) - len(left)
            chosen = actions[copy]
            moving = able[np.arange(len(chosen)), chosen] & (chosen > 0) & (chosen < 5)
            stuck = [a == b for a, b in zip(before, after, strict=True)]
            counts["collisions"] += int((moving & stuck).sum())
            counts["failed"] += int((able[:, 5] & (chosen == 5)).any() and len(foods) == len(left))
            counts["shared"] += len(set(after)) < len(after)
            counts["ends"] += int(step.terminated[copy])
            counts["limits"] += int(step.truncated[copy])
        avail = step.avail
    return counts


def foods_and_players(state: NDArray[np.float32], args: dict[str, Any]) -> tuple[Any, ...]:
    rows = [tuple(map(int, row)) for row in state.reshape(-1, 3)]
    foods, players = rows[: args["max_num_food"]], rows[args["max_num_food"] :]
    return tuple(food for food in foods if food[2]), tuple(player[:2] for player in players)


@pytest.mark.parametrize("name", GAMES)
def test_a_thousand_random_transitions_equal_those_of_the_reference(name: str) -> None:
    counts = play(GAMES[name], seed=len(name))
    assert COPIES * STEPS >= 1_000
    assert counts["loads"] > 0
    assert counts["collisions"] > 0
    assert counts["ends"] + counts["limits"] > 0


def test_crowded_games_show_failed_loads_and_shared_cells() -> None:
    counts = play(GAMES["5x5-5p-2f-coop-2s"], seed=0)
    assert counts["failed"] > 0
    assert counts["shared"] > 0
