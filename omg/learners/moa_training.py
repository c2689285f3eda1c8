"""How MOA learns: a buffer and an optimiser for every pair of players, shuffled mini-batches, and
counts of the goals that were reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from omg.components.episodes import REACHED
from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.controllers.team import TeamMAC
from omg.learners.base import Metrics, Progress
from omg.learners.moa_buffer import MoaBuffer, MoaRows
from omg.learners.model_training import Lesson, ModelTraining, ValuesAlternatives
from omg.learners.subgoal_training import SubgoalTraining
from omg.modules.kernels.optimiser import FastAdam
from omg.modules.opponent_models.beliefs import GoalCounts
from omg.modules.opponent_models.moa import MoaModel
from omg.modules.opponent_models.moa_nets import PairNets, Stack, cross_entropy, masked_softmax
from omg.modules.opponent_models.moa_omg import MoaSubgoalModel
from omg.storage.files import save_tensors, writing
from omg.storage.models import load_networks
from omg.types import EnvSpec, user_path


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """Rows of several pairs side by side; `there` says which places of the grid hold one."""

    pairs: list[int]  # places among the pairs that are updated
    rows: Tensor  # [M, b]
    there: Tensor  # [M, b]


def mini_batches(
    owner: Tensor, n_pairs: int, size: int, generator: torch.Generator
) -> Iterator[MiniBatch]:
    """One pass: the rows of every pair in a random order of its own, `size` at a time, the last
    ones too. `owner` [n] is each row's pair, ascending. Pairs with few rows finish early."""
    counts = torch.bincount(owner, minlength=n_pairs)
    order = torch.arange(len(owner), device=owner.device)
    if int(counts.max()) > size:  # else one batch holds all of a pair, in whatever order
        keys = torch.rand(len(owner), generator=generator, dtype=torch.float64)
        order = torch.argsort(owner + keys.to(owner.device))
    rank = torch.arange(len(owner), device=owner.device) - (counts.cumsum(0) - counts)[owner]
    for step in range(-(-int(counts.max()) // size)):
        inside = (rank >= step * size) & (rank < (step + 1) * size)
        active = (counts > step * size).nonzero(as_tuple=True)[0]
        place = torch.zeros_like(counts)
        place[active] = torch.arange(len(active), device=owner.device)
        width = min(size, int(counts.max()) - step * size)
        rows = torch.zeros(len(active), width, dtype=torch.int64, device=owner.device)
        there = torch.zeros_like(rows, dtype=torch.bool)
        at = (place[owner[inside]], rank[inside] - step * size)
        rows[at], there[at] = order[inside], True
        yield MiniBatch(active.tolist(), rows, there)


class PairTraining:
    """The networks of all pairs with their buffer; one Adam for each."""

    def __init__(
        self, *, config: Config, spec: EnvSpec, nets: PairNets, limit: float, goals: bool
    ) -> None:
        """`goals`: targets are goals that the environment declares; `limit`: the time that counts
        as 1."""
        self._config, self._nets, self._limit, self._goals = config, nets, limit, goals
        self._obs_scale = spec.obs_scale if config.scale_inputs else 1.0
        self.buffer = MoaBuffer(spec, n_pairs=len(nets), goals=goals)
        self.names = [name.removesuffix(".pth") for name in nets.names()]
        members = nets.members(range(len(nets)))
        self._adams = [FastAdam(net.parameters(), lr=config.moa_lr) for net in members]
        self.shuffle = torch.Generator().manual_seed(config.seed)
        self._folder: Path | None = None
        if config.moa_save_dir:
            self._folder = user_path(config.moa_save_dir)

    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """By the name of the pair."""
        return dict(zip(self.names, self._adams, strict=True))

    def saved(self) -> dict[str, Any]:
        return {**self.optimisers(), "moa_buffer": self.buffer, "moa_shuffle": self.shuffle}

    def update(self) -> Metrics:
        """Train every pair whose buffer holds enough, and empty it; nothing where none does.
        Rows that nobody can learn from leave the buffer, too."""
        self.buffer.forget_useless()
        enough = self.buffer.sizes() >= max(1, self._config.moa_min_size)
        due = enough.nonzero(as_tuple=True)[0]
        if not len(due):
            return {}
        rows = self.buffer.take(due)
        pairs: list[int] = due.tolist()
        self._load(pairs)
        owner = torch.searchsorted(due, rows.pair)
        inputs = self._inputs(rows)
        losses, hits = [], []
        for _ in range(self._config.moa_update_time):
            size = self._config.moa_batch_size
            for batch in mini_batches(owner, len(pairs), size, self.shuffle):
                loss, right = self._step([pairs[p] for p in batch.pairs], inputs, rows, batch)
                losses.append(loss)
                hits.append(right)
        self._save(pairs)
        return {"moa_loss": torch.stack(losses).mean(), "moa_accuracy": torch.cat(hits).mean()}

    def _inputs(self, rows: MoaRows) -> Tensor:
        """[observation | time | goal] of every row, as `PairNet` takes them."""
        seen = rows.obs.to(torch.float32) * self._obs_scale
        time = (rows.time.to(torch.float32) / self._limit).unsqueeze(1)
        goal = rows.target
        if self._goals:
            goal = functional.one_hot(goal, self._nets.goal_dim).to(torch.float32)
        return torch.cat([seen, time, goal], -1)

    def _step(
        self, pairs: list[int], inputs: Tensor, rows: MoaRows, batch: MiniBatch
    ) -> tuple[Tensor, Tensor]:
        """One step of each of these pairs' optimisers on its own mean loss: the mean of these, and
        which guesses were right."""
        adams = [self._adams[pair] for pair in pairs]
        for adam in adams:
            adam.zero_grad()
        logits = Stack.of(self._nets.members(pairs)).logits(inputs[batch.rows])
        avail = rows.avail[batch.rows] | ~batch.there.unsqueeze(-1)
        chances, actions = masked_softmax(logits, avail), rows.action[batch.rows]
        errors = cross_entropy(chances, actions) * batch.there
        losses = errors.sum(1) / batch.there.sum(1)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        for adam in adams:
            adam.step()
        right = (chances.detach().argmax(-1) == actions)[batch.there]
        return losses.detach().mean(), right.to(torch.float32)

    def _load(self, pairs: list[int]) -> None:
        """The note's way: what lies in the folder is continued."""
        if self._folder is None:
            return
        names = [self._nets.names()[pair] for pair in pairs]
        nets = zip(names, self._nets.members(pairs), strict=True)
        found = {name: net for name, net in nets if (self._folder / name).is_file()}
        load_networks(self._folder, found)

    def _save(self, pairs: list[int]) -> None:
        if self._folder is None:
            return
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            for pair, net in zip(pairs, self._nets.members(pairs), strict=True):
                replace_tensors(self._folder / self._nets.names()[pair], net.state_dict())


def replace_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file in one go: whoever reads it sees the old or the new one."""
    part = path.with_name(f".{path.name}.part")
    save_tensors(part, dict(tensors))
    part.replace(path)


@dataclass(slots=True)
class Reached:
    """Goals that others reached in episodes not yet learned from: rows of (seat, player, goal)."""

    events: Tensor

    def insert(self, played: Trajectories, players_BN: Tensor | None, order_of: PairNets) -> None:
        """Of every episode, what those reached whom a learning seat models; each once."""
        packing, now = played.packing, played.packing.now
        reached = packing.take(played.team.raw(REACHED), now).long()
        modelled = torch.zeros(reached.shape, dtype=torch.bool, device=reached.device)
        others = order_of.order(played.seats_PN[now]).flatten(1)
        modelled.scatter_(1, others, True)
        # Episode by episode, in time: as they happened.
        at = torch.argsort(packing.place[now])
        row, seat = ((reached[at] >= 0) & modelled[at]).nonzero(as_tuple=True)
        episode = packing.episode[now][at][row]
        who = torch.full_like(seat, -1) if players_BN is None else players_BN[episode, seat]
        found = torch.stack([seat, who.to(seat.device), reached[at][row, seat]], -1)
        self.events = torch.cat([self.events, found.cpu()])

    def count(self, counts: GoalCounts) -> None:
        """Add them to the counts; none are left."""
        seats, players, goals = self.events.to(counts.seats.device).unbind(-1)
        counts.add(seats, players, goals)
        self.events = self.events[:0]

    def state_dict(self) -> Tensor:
        return self.events.clone()

    def load_state_dict(self, state: Tensor) -> None:
        self.events = state.clone()


class MoaTraining(ModelTraining):
    """Discrete goals or none. Every episode that the run plays goes into the buffers once, when it
    has ended. An update of the policy is followed by one of the models and of the counts."""

    trains = MoaModel

    def __init__(self, *, config: Config, mac: TeamMAC, on_policy: bool) -> None:
        super().__init__(config=config, mac=mac, on_policy=on_policy)
        model = mac.trainee
        assert isinstance(model, MoaModel)
        self._moa, self._mac = model, mac
        self.pairs = PairTraining(
            config=config,
            spec=mac.spec,
            nets=model.nets,
            limit=model.limit,
            goals=bool(model.goals),
        )
        self._reached = Reached(torch.zeros(0, 3, dtype=torch.int64))

    def receive(self, played: Trajectories) -> None:
        self.pairs.buffer.insert(played)
        if self._moa.goals:
            self._reached.insert(played, self._mac.known_players(played), self._moa.nets)

    @torch.no_grad()
    def prepare(
        self, played: Trajectories, progress: Progress, values: ValuesAlternatives
    ) -> Lesson:
        rows = self._mac.model_rows(played)
        feature = self._moa.unroll(rows, played.rows, self.generator)
        return Lesson(played, feature.view(-1, played.n_seats, self._moa.feature_dim))

    def train(self, lesson: Lesson) -> Metrics:
        return {}

    def finish(self, lesson: Lesson) -> Metrics:
        self._reached.count(self._moa.counts)
        return self.pairs.update()

    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        return self.pairs.optimisers()

    def saved(self) -> dict[str, Any]:
        return {**super().saved(), **self.pairs.saved(), "moa_reached": self._reached}


class MoaSubgoalTraining(SubgoalTraining):
    """Subgoals as goals: the inference learns as in OMG, the models of the others with the subgoal
    that it infers at every step of the episodes that the run plays."""

    trains = MoaSubgoalModel

    def __init__(self, *, config: Config, mac: TeamMAC, on_policy: bool) -> None:
        super().__init__(config=config, mac=mac, on_policy=on_policy)
        model = mac.model
        assert isinstance(model, MoaSubgoalModel)
        self._moa = model
        self.pairs = PairTraining(
            config=config, spec=mac.spec, nets=model.nets, limit=model.limit, goals=False
        )

    @torch.no_grad()
    def receive(self, played: Trajectories) -> None:
        rows = self.policy.rows.stored(played)
        mean, _, _ = self._moa.posterior(rows, played.rows)
        self.pairs.buffer.insert(played, mean)

    def finish(self, lesson: Lesson) -> Metrics:
        return self.pairs.update()

    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        return {**super().optimisers(), **self.pairs.optimisers()}

    def saved(self) -> dict[str, Any]:
        return {**super().saved(), **self.pairs.saved()}
