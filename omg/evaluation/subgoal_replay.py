"""Episodes with what an agent inferred (subgoals, beliefs, predicted actions): as JSON for the
report's player, battles as moving pictures."""

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
from omg.envs.goal_grid.env import GridEnv
from omg.envs.particles.env import ParticleEnv
from omg.envs.registry import make_batched
from omg.evaluation.agent_runs import AgentRun, SeatedAgent, slug
from omg.evaluation.crossplay import CPU
from omg.evaluation.replay_boards import Playable, board_of
from omg.opponents.pool import OpponentPool, PoolMember
from omg.opponents.sides import completed
from omg.opponents.unseen import record_seated, recorded
from omg.runners.rollout import play_episodes
from omg.storage.files import write_text, writing
from omg.storage.models import weights_hash
from omg.types import OmgError

FORMAT = 1
ENVS = ("foraging", "stag_hunt", "snowdrift", "spread", "predator_prey", "battle")


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
            f"Replays with inferences are drawn for env={' or '.join(ENVS)}, not "
            f"{agent.config.env}. Leave out --replays."
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    env = make_batched(agent.config.env, agent.config.env_args, n_copies=count)
    assert isinstance(env, ForagingEnv | GridEnv | ParticleEnv | BattleEnv)
    record_seated(
        pool,
        [player for member in members[:count] for player in completed([member], pool, env.spec)],
        runs=lambda: {str(agent.folder): weights_hash(agent.model)},
        episodes=count,
        options={"seed": seed, "replays": count},
    )
    written: list[Path] = []
    with (
        recorded(),
        SeatedAgent(agent, pool, members[:1], episodes=1, seed=seed, device=device) as seated,
    ):
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
                        "env": agent.config.env,
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
    players = completed([member], seated.pool, seated.spec)
    rollout = seated.rollout(seated.lineup(players), stream=f"replay.{member.id}", env=env)
    played = play_episodes(rollout, env.n_copies, round_number=0, env_steps=seated.agent.env_steps)
    return {
        copy: finished.episodes[row]
        for finished in played
        for row, copy in enumerate(finished.stats.copies.tolist())
    }


def replay_of(episode: EpisodeBatch, mac: TeamMAC, env: Playable) -> dict[str, Any]:
    """Frames, actions and inferences of one recorded episode."""
    steps = int(episode.lengths[0]) - 1
    seat = int(episode[SEAT][0])
    states = episode["state"][0, : steps + 1].numpy()
    rewards = episode["reward"][0, :steps].numpy()
    board = board_of(env, states, rewards)
    places = _places(episode, mac, seat, steps)
    others, believed = env.spec.n_agents - 1, [] if mac.model is None else [*mac.model.believed()]
    return {
        "field_size": list(board.size),
        "seat": seat,
        "players": env.spec.n_agents,
        "frames": board.frames,
        "actions": episode["actions"][0, :steps].tolist(),
        "subgoals": None
        if places is None
        else _rounded(board.at(places[..., :2] / mac.policy.rows.state_scale)),
        "goals": believed or list(env.spec.goals),
        "beliefs": _about_others(episode, "am_belief", steps, others, len(believed))
        if believed
        else None,
        "predictions": _about_others(episode, "am_prediction", steps, others),
        "roles": list(env.spec.roles),
        "plane": board.plane,
    }


def _about_others(
    episode: EpisodeBatch, name: str, steps: int, others: int, width: int | None = None
) -> list[list[list[float]]] | None:
    """What was recorded of each of the others at every step, [T, N-1, width], or the first `width`
    numbers of it; None: nothing."""
    if name not in episode.scheme.fields or not others:
        return None
    found = episode[name][0, :steps].view(steps, others, -1)[..., :width].tolist()
    return [[[round(value, 3) for value in row] for row in each] for each in found]


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
