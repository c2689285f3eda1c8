"""Episodes that are played to be looked at, and the files or tables that show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from omg.catalogue import Choice, Showing, open_env, seat_ranges, showing_of
from omg.catalogue.play.players import Cast, players_of
from omg.components.trajectories import SEAT
from omg.envs.drawing import save_gif
from omg.modules.device import set_up_torch
from omg.opponents.players import LINEUP
from omg.runners.assembly import make_rollout
from omg.runners.replay import save_replays
from omg.runners.rollout import Finished, Rollout, play_episodes
from omg.types import EnvSpec, OmgError, RunFailedError

# Longest side of a picture.
LARGEST = 480
SECONDS_PER_STEP = 0.2


@dataclass(frozen=True, slots=True)
class Played:
    """Episodes, one `Finished` of one row each, and how they were shown."""

    spec: EnvSpec
    players: Cast
    episodes: tuple[Finished, ...]
    showing: Showing
    reason: str  # why there are no pictures
    files: tuple[Path, ...]

    def seats_of(self, episode: Finished) -> tuple[str, ...]:
        """Who sat where."""
        if self.players.seats:
            return self.players.seats
        names, fields = self.players.mac.players(), episode.episodes
        seated = [names[m] if m >= 0 else "learner" for m in fields[LINEUP][0].tolist()]
        if SEAT in fields.scheme.fields:
            seated[int(fields[SEAT][0])] = "learner"
        return tuple(seated)


class WatchedRollout(Rollout):
    """Keeps the episodes of its one copy and, if wanted, a picture before every step. The last
    view of an episode has none: by then the game has begun the next."""

    def __init__(self, *, pictures: bool, **parts: Any) -> None:
        self._wanted = pictures
        self.played: list[Finished] = []
        self.pictures: list[list[NDArray[np.uint8]]] = []
        super().__init__(**parts)

    def begin(self, round_number: int, *, played: int = 0) -> None:
        super().begin(round_number, played=played)
        self.played, self.pictures = [], [[]]

    def step(self, env_steps: int) -> Finished | None:
        if self._wanted:
            self.pictures[-1].append(self.env.render(0))
        finished = super().step(env_steps)
        if self.dropped_last:
            self.pictures[-1] = []
        if finished is not None:
            self.played.append(finished)
            self.pictures.append([])
        return finished


def play(choice: Choice, policy: str, *, episodes: int, seed: int, out: Path | None) -> Played:
    """Play episodes and write replays into a folder; without one nothing is drawn."""
    if episodes < 1:
        raise OmgError(f"--episodes={episodes} is too few. Play at least one.")
    if seed < 0:
        raise OmgError(f"--seed={seed} is not possible. Use 0 or more.")
    set_up_torch(choice.config)
    env = open_env(choice, pictures=out is not None)
    try:
        players = players_of(policy, choice, env.spec, episodes=episodes, seed=seed)
        showing, reason = showing_of(env) if out is not None else ("text", "")
        rollout = make_rollout(
            choice.config,
            env=env,
            mac=players.mac,
            stream="replay",
            device=players.device,
            greedy=players.greedy,
            seed=seed,
            common_reward=False,
            kind=WatchedRollout,
            pictures=showing == "frames",
        )
        assert isinstance(rollout, WatchedRollout)
        steps = players.env_steps
        if out is None or showing == "text":
            play_episodes(rollout, episodes, round_number=0, env_steps=steps)
            files: list[Path] = []
        else:
            _prepare(out)
            files = _replays(rollout, showing, out, episodes, steps)
    finally:
        env.close()
    return Played(env.spec, players, tuple(rollout.played), showing, reason, tuple(files))


def _prepare(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OmgError(
            f"--out={out} cannot be a folder: {error.strerror}. Choose another."
        ) from error


def _replays(
    rollout: WatchedRollout, showing: Showing, out: Path, episodes: int, env_steps: int
) -> list[Path]:
    try:
        if showing != "frames":
            return save_replays(rollout, out, episodes, env_steps=env_steps)
        play_episodes(rollout, episodes, round_number=0, env_steps=env_steps)
        shown = rollout.pictures[: len(rollout.played)]
        return [
            write_pictures(out / f"episode_{number}.gif", pictures)
            for number, pictures in enumerate(shown)
        ]
    except OSError as error:
        raise RunFailedError(
            f"{out} could not be written to: {error.strerror or error}. Free some space, or choose "
            "another --out."
        ) from error


def write_pictures(path: Path, pictures: Sequence[NDArray[np.uint8]]) -> Path:
    """RGB pictures as an animated GIF that plays in a loop."""
    from PIL import Image

    images = [Image.fromarray(np.ascontiguousarray(picture)) for picture in pictures]
    for image in images:
        image.thumbnail((LARGEST, LARGEST))
    save_gif(path, images, seconds_per_step=SECONDS_PER_STEP, rest=3)
    return path


def seating(names: Sequence[str], played: Played) -> str:
    """Who sits where, those alike together: `0–2 chase (predator), 3 flee (prey)`."""
    roles = played.spec.roles or ("",) * len(names)
    groups: dict[tuple[str, str], list[int]] = {}
    for seat, key in enumerate(zip(names, roles, strict=True)):
        groups.setdefault(key, []).append(seat)
    return ", ".join(
        f"{seat_ranges(seats)} {name}{f' ({role})' if role else ''}"
        for (name, role), seats in groups.items()
    )


def _numbers(values: Sequence[float]) -> str:
    return "  ".join(f"{value:.4g}" for value in values)


def steps_table(episode: Finished, number: int) -> Table:
    """Actions and rewards of every step, by seat."""
    table = Table("step", "actions", "rewards", title=f"Episode {number}", title_justify="left")
    data = episode.episodes
    for step in range(int(episode.stats.lengths[0])):
        actions = "  ".join(map(str, data["actions"][0, step].flatten().tolist()))
        rewards = _numbers(data["reward"][0, step].tolist())
        table.add_row(str(step), actions, rewards)
    return table


def results_table(played: Played) -> Table:
    """Length, end, returns and statistics of every episode, and their means."""
    drawn = not played.players.seats
    who = ["players"] if drawn else []
    names = played.spec.statistics
    table = Table("episode", "steps", "ended by", *who, "return of each seat", *names)
    for number, episode in enumerate(played.episodes):
        stats = episode.stats
        table.add_row(
            *(str(number), str(int(stats.lengths[0]))),
            "limit" if stats.truncated[0] else "the game",
            *([seating(played.seats_of(episode), played)] if drawn else []),
            _numbers(stats.returns[0].tolist()),
            *(_numbers([float(stats.info[name][0])]) for name in names),
        )
    if len(played.episodes) > 1:
        every = [episode.stats for episode in played.episodes]
        table.add_row(
            *("mean", _numbers([float(np.mean([stats.lengths[0] for stats in every]))]), ""),
            *([""] if drawn else []),
            _numbers(np.mean([stats.returns[0] for stats in every], axis=0).tolist()),
            *(_numbers([float(np.mean([s.info[name][0] for s in every]))]) for name in names),
        )
    return table
