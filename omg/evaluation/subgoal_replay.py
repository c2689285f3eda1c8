"""Foraging episodes with the subgoals an agent inferred, as JSON for pictures of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import SEAT
from omg.controllers.team import TeamMAC
from omg.envs.foraging.env import ForagingEnv
from omg.envs.foraging.render import ForagingFrame, frames_from_states
from omg.evaluation.agent_runs import AgentRun, SeatedAgent, slug
from omg.evaluation.crossplay import CPU
from omg.opponents.pool import OpponentPool, PoolMember
from omg.runners.rollout import play_episodes
from omg.storage.files import write_text, writing
from omg.types import OmgError

FORMAT = 1
ENV = "foraging"


def clear_replays(folder: Path) -> None:
    """Remove the replays of an earlier evaluation; other files in the folder stay."""
    with writing(folder):
        for old in folder.glob("*-vs-*.json"):
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
    if agent.config.env != ENV:
        raise OmgError(
            f"Replays with subgoals are drawn for env={ENV}, not {agent.config.env}. Leave out "
            "--replays."
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with SeatedAgent(agent, pool, members[:1], episodes=1, seed=seed, device=device) as seated:
        env = ForagingEnv(args=seated.config.env_args, n_copies=count)
        for first, member in enumerate(members[:count]):
            for number, episode in _played(seated, member, env).items():
                if number % len(members) != first:
                    continue
                content = {
                    "format": FORMAT,
                    "env": ENV,
                    "agent": agent_id,
                    "method": agent.method,
                    "opponent": member.id,
                    **replay_of(episode, seated.mac, env),
                }
                path = folder / f"{slug(agent_id)}-vs-{member.id}-{number}.json"
                write_text(path, json.dumps(content, allow_nan=False) + "\n")
                written.append(path)
    return sorted(written)


def _played(seated: SeatedAgent, member: PoolMember, env: ForagingEnv) -> dict[int, EpisodeBatch]:
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
        "subgoals": _places(episode, mac, seat, steps),
    }


def _frame(frame: ForagingFrame) -> dict[str, Any]:
    players = zip(frame.player_pos, frame.player_levels, strict=True)
    return {
        "players": [[row, col, level] for (row, col), level in players],
        "foods": [list(food) for food in frame.foods],
        "score": [round(score, 6) for score in frame.score],
    }


def _places(
    episode: EpisodeBatch, mac: TeamMAC, seat: int, steps: int, device: torch.device = CPU
) -> list[list[list[float]]] | None:
    """Where the others are inferred to go to: the mean of the inferred subgoal of every step,
    decoded, [T, N-1, 2] in cells; None for an agent without subgoals."""
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
    if places is None:
        return None
    cells = places[..., :2].cpu() / mac.policy.rows.state_scale
    rounded: list[list[list[float]]] = [
        [[round(value, 3) for value in place] for place in row] for row in cells.tolist()
    ]
    return rounded
