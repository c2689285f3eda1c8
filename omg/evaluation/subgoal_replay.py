"""Episodes with the subgoals an agent inferred: Foraging as JSON that the report draws, battles as
moving pictures in which a ghost stands where each teammate is expected to be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import SEAT, SeatOrder
from omg.controllers.team import TeamMAC
from omg.envs.battle.env import BattleEnv
from omg.envs.battle.frames import with_ghosts
from omg.envs.battle.maps import SIDE
from omg.envs.battle.render import BattlePictures
from omg.envs.contract import BatchedEnv
from omg.envs.foraging.env import ForagingEnv
from omg.envs.foraging.render import ForagingFrame, frames_from_states
from omg.evaluation.agent_runs import AgentRun, SeatedAgent, slug
from omg.evaluation.crossplay import CPU
from omg.opponents.pool import OpponentPool, PoolMember
from omg.runners.rollout import play_episodes
from omg.storage.files import write_text, writing
from omg.types import OmgError

FORMAT = 1
FORAGING, BATTLE = "foraging", "battle"
ENVS = (FORAGING, BATTLE)


def clear_replays(folder: Path) -> None:
    """Remove the replays of an earlier evaluation; other files in the folder stay."""
    with writing(folder):
        for kind in ("json", "svg"):
            for old in folder.glob(f"*-vs-*.{kind}"):
                old.unlink()


def write_subgoal_replays(
    agent_id: str,
    agent: AgentRun,
    pool: OpponentPool,
    members: Sequence[PoolMember],
    folder: Path,
    *,
    count: int,
    seed: int = 0,
    device: torch.device = CPU,
) -> list[Path]:
    """Play `count` greedy episodes against the members in turn, each in the next seat, and write
    one file per episode."""
    if agent.config.env not in ENVS:
        raise OmgError(
            f"Replays with subgoals are drawn for env={' and '.join(ENVS)}, not "
            f"{agent.config.env}. Leave out --replays."
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with SeatedAgent(agent, pool, members[:1], episodes=1, seed=seed, device=device) as seated:
        kind = ForagingEnv if agent.config.env == FORAGING else BattleEnv
        env = kind(args=seated.config.env_args, n_copies=count)
        for first, member in enumerate(members[:count]):
            for number, episode in _played(seated, member, env).items():
                if number % len(members) != first:
                    continue
                path = folder / f"{slug(agent_id)}-vs-{member.id}-{number}.json"
                if isinstance(env, BattleEnv):
                    path = path.with_suffix(".svg")
                    write_text(path, battle_film(episode, seated.mac, env) + "\n")
                else:
                    content = {
                        "format": FORMAT,
                        "env": FORAGING,
                        "agent": agent_id,
                        "method": agent.method,
                        "opponent": member.id,
                        **replay_of(episode, seated.mac, env),
                    }
                    write_text(path, json.dumps(content, allow_nan=False) + "\n")
                written.append(path)
    return sorted(written)


def _played(seated: SeatedAgent, member: PoolMember, env: BatchedEnv) -> dict[int, EpisodeBatch]:
    """The first episode of every copy, by copy; the learning agent sits one seat on in each."""
    rollout = seated.rollout(seated.lineup([member]), stream=f"replay.{member.id}", env=env)
    played = play_episodes(rollout, env.n_copies, round_number=0, env_steps=seated.agent.env_steps)
    return {
        copy: finished.episodes[row]
        for finished in played
        for row, copy in enumerate(finished.stats.copies.tolist())
    }


def replay_of(episode: EpisodeBatch, mac: TeamMAC, env: ForagingEnv) -> dict[str, Any]:
    """Frames, actions and inferred places of one recorded episode."""
    steps = int(episode.lengths[0]) - 1
    rules = env.rules
    frames = frames_from_states(
        episode["state"][0, : steps + 1].numpy(),
        episode["reward"][0, :steps].numpy(),
        field_size=(rules.rows, rules.cols),
        n_foods=rules.max_num_food,
    )
    seat = int(episode[SEAT][0])
    return {
        "field_size": [rules.rows, rules.cols],
        "seat": seat,
        "players": rules.n_players,
        "frames": [_frame(frame) for frame in frames],
        "actions": episode["actions"][0, :steps].tolist(),
        "subgoals": None
        if (places := _places(episode, mac, seat, steps)) is None
        else _rounded(places[..., :2] / mac.policy.rows.state_scale),
    }


def battle_film(episode: EpisodeBatch, mac: TeamMAC, env: BattleEnv) -> str:
    """One recorded battle as a moving picture; with an agent that infers subgoals, its teammates'
    ghosts stand where it expects them."""
    steps = int(episode.lengths[0]) - 1
    frames = env.frames(
        episode["state"][0, : steps + 1].numpy(), episode["reward"][0, :steps].numpy()
    )
    seat = int(episode[SEAT][0])
    places = _places(episode, mac, seat, steps)
    if places is not None:
        extent = torch.tensor(env.rules.extent)
        at = (places[..., 2:4] / mac.policy.rows.state_scale * extent + SIDE / 2).clamp(0, SIDE)
        others = SeatOrder(env.spec)(torch.tensor([seat]))[0].tolist()
        ghosts = [
            [(unit, (x, y)) for unit, (x, y) in zip(others, row, strict=True)]
            for row in _rounded(at)
        ]
        frames = with_ghosts(frames, [*ghosts, []])
    return BattlePictures(env.rules, frames).to_animated_svg(frames)


def _frame(frame: ForagingFrame) -> dict[str, Any]:
    players = zip(frame.player_pos, frame.player_levels, strict=True)
    return {
        "players": [[row, col, level] for (row, col), level in players],
        "foods": [list(food) for food in frame.foods],
        "score": [round(score, 6) for score in frame.score],
    }


def _places(
    episode: EpisodeBatch, mac: TeamMAC, seat: int, steps: int, device: torch.device = CPU
) -> Tensor | None:
    """What the others are inferred to become: the mean of the inferred subgoal of every step,
    decoded, [T, N-1, W] in scaled features; None for an agent without subgoals."""
    model = mac.model
    if model is None:
        return None
    recorded = {
        name: episode[name][0, :steps].to(device)
        for name in model.record_dims()
        if name in episode.scheme.fields
    }
    with torch.inference_mode():
        places = model.places_ahead(recorded, torch.full((steps,), seat, device=device))
    return None if places is None else places.cpu()


def _rounded(places: Tensor) -> list[list[list[float]]]:
    """Places [T, N-1, 2] as plain numbers."""
    return [[[round(value, 3) for value in place] for place in row] for row in places.tolist()]
