"""`python -m benchmarks.oracle_gap`: what knowing the others is worth, by scripted players.

One player sits among scripts of Stag Hunt or Snowdrift, in every seat in turn; all play the same
games. It is a script that does not know what the others want, or one that is told their goals at
every step and answers them by a simple rule (`answer_hunters`, `answer_clearers`). Or it knows
which kind the others are, all alike, and is the script that answers this kind best. The gap is what
these two earn more than the best script that knows nothing: what an opponent model can gain.

What agents learn with and without such knowledge: docs/environments/stag-hunt.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from omg.envs.registry import make_batched
from omg.opponents.grid_scripts import FAR, NOTHING, Kind, Scene
from omg.opponents.scripts import Script, scripted_game
from omg.types import IntArray

COPIES = 512
# Scripts of the two games to sit among, and such as a player without knowledge could be.
OTHERS = {
    "stag_hunt": (
        *("stag", "nearest_hare", "farthest_hare", "hare_1", "hare_3", "impatient", "waits_3"),
        *("waits_8", "joins"),
    ),
    "snowdrift": (
        *("nearest_drift", "farthest_drift", "drift_1", "drift_4", "free_rider", "late"),
        *("tires_1", "yields"),
    ),
}
PLAYERS = {
    "stag_hunt": (
        "stag",
        "nearest_hare",
        "waits_3",
        "waits_8",
        "impatient",
        "joins",
        "opportunist",
    ),
    "snowdrift": ("nearest_drift", "free_rider", "late", "tires_1", "tires_2", "yields"),
}
# Steps that a snow clearer takes from drift to drift, about.
PACE = 7

# The goal of every row, given the goals of all seats [R, N] (one's own is NOTHING).
Answer = Callable[[Scene, Any, IntArray], IntArray]


def answer_hunters(scene: Scene, board: Any, goals: IntArray) -> IntArray:
    """The stag if another goes for it; else the nearest hare that no other who wants it is nearer
    to."""
    targets = np.arange(scene.there.shape[1])
    wants = goals[:, :, None] == targets  # [R, N, K]
    stags = (targets < board.stags)[None]
    rivals = np.where(wants, scene.others, FAR).min(axis=1)
    stag = scene.least(scene.steps, stags & wants.any(axis=1))
    free = scene.least(scene.steps, ~stags & (scene.steps <= rivals))
    hare = np.where(free == NOTHING, scene.least(scene.steps, ~stags), free)
    best = np.where(stag == NOTHING, hare, stag)
    return np.where(best == NOTHING, scene.least(scene.steps), best)


def answer_clearers(scene: Scene, board: Any, goals: IntArray) -> IntArray:
    """Nothing while the others clear everything in time; else the nearest drift nobody goes for."""
    targets = np.arange(scene.there.shape[1])
    wanted = (goals[:, :, None] == targets).any(axis=1)  # [R, K]
    workers, left = (goals >= 0).sum(axis=1), scene.there.sum(axis=1)
    time = board.max_episode_steps - scene.clock
    in_time = (workers > 0) & (PACE * -(-left // np.maximum(workers, 1)) < time)
    free = scene.least(scene.steps, ~wanted)
    return np.where(in_time, NOTHING, np.where(free == NOTHING, scene.least(scene.steps), free))


ANSWERS: dict[str, Answer] = {"stag_hunt": answer_hunters, "snowdrift": answer_clearers}


class Informed:
    """An aim that knows the others' goals; they are told before every step."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.goals: IntArray | None = None  # [R, N]

    def __call__(self, scene: Scene, board: Any) -> IntArray:
        if self.goals is None:
            return np.full(len(scene.seats), NOTHING)
        return self._answer(scene, board, self.goals)


def play(
    env_name: str,
    player: str | None,
    *,
    episodes: int,
    mixed: bool = False,
    noise: float = 0.1,
    gamma: float = 0.95,
    seed: int = 0,
    others: Sequence[str] = (),
    env_args: Mapping[str, Any] | None = None,
) -> float:
    """The mean discounted return of a script, by name, or (None) of the one told the goals."""
    game = scripted_game(env_name)
    env = make_batched(env_name, env_args or {}, n_copies=COPIES)
    agents, board = env.spec.n_agents, game.board_of(env_args or {})
    informed = Informed(ANSWERS[env_name])
    names = list(others or OTHERS[env_name])
    scripts: list[Script[Any]] = [game.make_script(name, noise=noise) for name in names]
    kind = Kind(about="knows the goals", aim=informed)
    scripts.append(
        Script(name="informed", kind=kind) if player is None else game.make_script(player)
    )
    rng = np.random.default_rng(seed)
    found: list[Any] = []
    for number in range(-(-episodes // COPIES)):
        shape = (COPIES, agents) if mixed else (COPIES, 1)
        members = np.broadcast_to(rng.integers(len(names), size=shape), (COPIES, agents)).copy()
        own = np.arange(COPIES) % agents
        members[np.arange(COPIES), own] = len(names)
        found.append(_games(env, game, scripts, members, own, board, informed, rng, number, gamma))
    return float(np.concatenate(found)[:episodes].mean())


def _games(
    env: Any,
    game: Any,
    scripts: Sequence[Script[Any]],
    members: IntArray,
    own: IntArray,
    board: Any,
    informed: Informed,
    rng: np.random.Generator,
    number: int,
    gamma: float,
) -> Any:
    """One game of every copy: the player's discounted return, [B]."""
    agents = env.spec.n_agents
    seats, rows = np.tile(np.arange(agents), COPIES), members.ravel()
    memory = np.zeros((len(rows), game.MEMORY_DIM), np.int64)
    view: Any = env.reset(1000 + number)
    running, returns = np.ones(COPIES, np.bool_), np.zeros(COPIES)
    for step in range(env.spec.episode_limit):
        state = np.repeat(view.state, agents, axis=0)
        informed.goals = None
        goals = game.goals(scripts, rows, state, seats, memory, board).reshape(COPIES, agents)
        goals[np.arange(COPIES), own] = NOTHING
        informed.goals = np.repeat(goals, agents, axis=0)
        avail = view.avail.reshape(len(rows), -1)
        actions, memory = game.act_together(scripts, rows, state, seats, avail, memory, rng, board)
        view = env.step(actions.reshape(COPIES, agents))
        returns += gamma**step * view.reward[np.arange(COPIES), own] * running
        running &= ~(view.terminated | view.truncated)
    return returns


def compare(env: str, **options: Any) -> None:
    """Print what every player earns beside each kind, and among all kinds mixed."""
    columns: dict[str, dict[str, Any]] = {kind: {"others": (kind,)} for kind in OTHERS[env]}
    columns["mixed"] = {"mixed": True}
    print(f"\n{env}: mean return beside others of each kind, and of mixed kinds")
    print(f"  {'':16}" + "".join(f"{kind[:11]:>12}" for kind in columns) + f"{'kinds':>12}")
    table: dict[str, list[float]] = {}
    for player in (*PLAYERS[env], None):
        scores = [play(env, player, **options, **among) for among in columns.values()]
        name = player or "told the goals"
        table[name] = scores
        cells = [*scores, float(np.mean(scores[:-1]))]
        print(f"  {name:16}" + "".join(f"{cell:12.2f}" for cell in cells))
    _gaps(table)


def _gaps(table: dict[str, list[float]]) -> None:
    told = table["told the goals"]
    without = {name: scores for name, scores in table.items() if scores is not told}
    kinds = {name: float(np.mean(scores[:-1])) for name, scores in without.items()}
    best = max(kinds, key=lambda name: kinds[name])
    known = float(np.max([scores[:-1] for scores in table.values()], axis=0).mean())
    mixed = max(scores[-1] for scores in without.values())
    print(f"  best that knows nothing: {best}, {kinds[best]:.2f}; among mixed others {mixed:.2f}")
    print(
        f"  gap of who is told the goals {np.mean(told[:-1]) - kinds[best]:+.2f} "
        f"(mixed {told[-1] - mixed:+.2f}), of who knows the kind {known - kinds[best]:+.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.oracle_gap", description=__doc__)
    parser.add_argument("games", nargs="*", default=list(PLAYERS), help="stag_hunt, snowdrift")
    parser.add_argument("--episodes", type=int, default=512, help="of each player and kind")
    parser.add_argument("--noise", type=float, default=0.1, help="of the others")
    parser.add_argument("--gamma", type=float, default=0.95, help="1: plain returns")
    parser.add_argument("--set", nargs="*", default=[], help="env_args, e.g. hares=2")
    given = parser.parse_args()
    env_args = {key: int(value) for key, value in (word.split("=") for word in given.set)}
    for env in given.games:
        compare(
            env,
            episodes=given.episodes,
            noise=given.noise,
            gamma=given.gamma,
            env_args=env_args,
        )


if __name__ == "__main__":
    main()
