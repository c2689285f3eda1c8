"""How different the members of a pool are: on which share of the same states two of them would act
differently. Used to choose whom to hold out.

While one member plays (in all seats it can take, or in one beside a reference player), every other
one sits in the same seats, sees the same games and says what it would do; it remembers as if it
played. Shares are over decisions: a living seat of a running episode with more than one action.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from omg.components.seeding import SeedTree
from omg.config.schema import Config
from omg.envs.contract import BatchedEnv
from omg.envs.registry import make_batched
from omg.evaluation.crossplay_files import prepare_folder
from omg.opponents.building import pool_players
from omg.opponents.players import Players
from omg.opponents.pool import OpponentPool, PoolMember
from omg.opponents.sides import named_member
from omg.opponents.unseen import record_look, recorded
from omg.policies.inputs import Carry, StepView
from omg.storage.files import write_text
from omg.types import BoolArray, EnvSpec, IntArray, Observation, OmgError, TimeStep

CPU = torch.device("cpu")
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The training member that a member differs from least; of a training member another one."""

    member: str
    split: str
    nearest: str
    disagreement: float
    mean: float  # over all training members


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Counts of every pair: decisions of games that the first member played, and those of them in
    which the second would have acted differently."""

    members: tuple[PoolMember, ...]
    decisions: IntArray  # [M, M]
    differing: IntArray  # [M, M]

    def shares(self) -> Matrix:
        """Of the decisions of both members' games, [M, M]; not a number where the two never sit in
        the same seat. On the diagonal: how far a member differs from itself, by chance."""
        decided = self.decisions + self.decisions.T
        differing = self.differing + self.differing.T
        return np.where(decided > 0, differing / np.maximum(decided, 1), np.nan)

    def nearest(self) -> list[Nearest]:
        """Of every member, in the pool's order: those that agents do not train with can be judged
        by how far the training ones are from each other."""
        shares, found = self.shares(), []
        train = [i for i, member in enumerate(self.members) if member.split == "train"]
        for i, member in enumerate(self.members):
            known = [j for j in train if j != i and np.isfinite(shares[i, j])]
            if not known:
                continue
            closest = min(known, key=lambda j: float(shares[i, j]))
            found.append(
                Nearest(
                    member=member.id,
                    split=member.split,
                    nearest=self.members[closest].id,
                    disagreement=float(shares[i, closest]),
                    mean=float(shares[i, known].mean()),
                )
            )
        return found


def compare_pool(
    pool: OpponentPool,
    config: Config,
    *,
    episodes: int = 32,
    beside: str = "",
    seed: int = 0,
) -> Disagreement:
    """Every member plays `episodes` of the configuration's game; `beside`: in one seat, the others
    taken by that member. Held-out members play and are measured, so it is a look at them."""
    if episodes < 1:
        raise OmgError(f"episodes={episodes} is too few. Play at least one per member.")
    if len(pool.members()) < 2:
        raise OmgError(f"{pool.path} has fewer than two members. Add some with 'omg pool add'.")
    env = make_batched(config.env, config.env_args, n_copies=episodes)
    try:
        with recorded():
            players, members = pool_players(config, env.spec, CPU, (pool, pool.members()))
        reference = members.index(named_member(pool, beside)) if beside else None
        everyone = range(len(members))
        seatings = [_seating(members, i, env.spec, episodes, reference) for i in everyone]
        played = {"env": config.env, "env_args": config.as_dict()["env_args"]}
        record_look(
            pool,
            members,
            kind="comparison",
            runs={},
            episodes=episodes,
            options={"seed": seed, "beside": beside, **played},
        )
        table = _Table(env, players, members, SeedTree(seed))
        shape = (len(members), len(members))
        decisions, differing = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for number, seating in enumerate(seatings):
            decisions[number], differing[number] = table.play(number, seating)
    finally:
        env.close()
    order = [members.index(member) for member in pool.members()]
    return Disagreement(
        members=pool.members(),
        decisions=decisions[np.ix_(order, order)],
        differing=differing[np.ix_(order, order)],
    )


def _plays(member: PoolMember, spec: EnvSpec) -> BoolArray:
    """Which seats a member may take, [N]."""
    roles = spec.roles or [""] * spec.n_agents
    return np.array([not member.roles or role in member.roles for role in roles])


def _seating(
    members: Sequence[PoolMember],
    driver: int,
    spec: EnvSpec,
    episodes: int,
    reference: int | None,
) -> IntArray:
    """Who plays where while `driver` does, [B, N]: everywhere it can, or in one seat (another one
    in every game) beside the reference. The first who can takes what is left."""
    able = np.stack([_plays(member, spec) for member in members])
    own = able[driver].nonzero()[0]
    first = [reference, driver] if reference is not None else [driver]
    seating = np.empty((episodes, spec.n_agents), np.int64)
    for seat in range(spec.n_agents):
        takers = [m for m in (*first, *range(len(members))) if able[m, seat]]
        if not takers:
            raise OmgError(f"No member of the pool plays {spec.roles[seat]}. Add one that does.")
        seating[:, seat] = takers[0]
    if reference is not None:
        seating[np.arange(episodes), own[np.arange(episodes) % len(own)]] = driver
    return seating


class _Table:
    """The games, those who play them, and those who look on from the same seats."""

    def __init__(
        self, env: BatchedEnv, players: Players, members: Sequence[PoolMember], seeds: SeedTree
    ) -> None:
        self._env, self._players, self._seeds = env, players, seeds
        self._able = np.stack([_plays(member, env.spec) for member in members])

    @torch.inference_mode()
    def play(self, driver: int, seating: IntArray) -> tuple[IntArray, IntArray]:
        """One episode per copy; decisions in the driver's seats that each member could have taken,
        and those it would have taken differently, [M] each."""
        copies, seats = seating.shape
        everyone = len(self._able)
        mine = seating == driver
        looking = np.where(
            mine & self._able[:, None], np.arange(everyone)[:, None, None], -1
        ).reshape(everyone * copies, seats)
        playing, shadows = self._seated(seating), self._seated(looking)
        generators = [self._seeds.torch(f"compare.{who}", driver) for who in ("plays", "looks")]
        seen: Observation | TimeStep = self._env.reset(self._seeds.integer("compare.games"))
        last = np.full((copies, seats), -1)
        running = np.ones(copies, np.bool_)
        decisions, differing = np.zeros(everyone, np.int64), np.zeros(everyone, np.int64)
        while running.any():
            actions = self._act(seen, last, playing, generators[0], repeat=1)
            said = self._act(seen, last, shadows, generators[1], repeat=everyone)
            choice = mine & running[:, None] & (seen.avail.sum(axis=2) > 1)
            if seen.alive is not None:
                choice &= seen.alive
            asked = choice & self._able[:, None]
            other = said.reshape(everyone, copies, seats) != actions
            decisions += asked.sum(axis=(1, 2))
            differing += (asked & other).sum(axis=(1, 2))
            seen = self._env.step(actions)
            last = actions
            running &= ~(seen.terminated | seen.truncated)
        return decisions, differing

    def _seated(self, seating: IntArray) -> Carry:
        carry = self._players.initial_carry(len(seating))
        self._players.seat(carry, torch.arange(len(seating)), seating)
        return carry

    def _act(
        self,
        seen: Observation | TimeStep,
        last: IntArray,
        carry: Carry,
        generator: torch.Generator,
        *,
        repeat: int,
    ) -> IntArray:
        """Actions [repeat * B, N] of those who are seated; 0 elsewhere."""

        def tiled(array: NDArray[np.generic]) -> torch.Tensor:
            return torch.from_numpy(np.concatenate([array] * repeat))

        view = StepView(
            obs=tiled(seen.obs),
            state=tiled(seen.state),
            avail=tiled(seen.avail),
            last_actions=tiled(last),
            alive=None if seen.alive is None else tiled(seen.alive),
        )
        actions = torch.zeros(view.last_actions.shape, dtype=torch.int64)
        self._players.act(view, carry, actions, generator)
        return actions.numpy()


def write_disagreement(found: Disagreement, out: Path) -> list[Path]:
    """disagreement.csv, the matrix, and nearest.csv, a row per member."""
    out = prepare_folder(out)
    names = [member.id for member in found.members]
    matrix = [["member", "side", *names]]
    for member, row in zip(found.members, found.shares(), strict=True):
        told = ["" if np.isnan(share) else f"{share:.4f}" for share in row]
        matrix.append([member.id, member.split, *told])
    nearest = [["member", "side", "nearest", "disagreement", "mean"]]
    for near in found.nearest():
        shares = [f"{near.disagreement:.4f}", f"{near.mean:.4f}"]
        nearest.append([near.member, near.split, near.nearest, *shares])
    files = {out / "disagreement.csv": matrix, out / "nearest.csv": nearest}
    for path, rows in files.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        write_text(path, text.getvalue())
    return list(files)
