"""A batch as PPO's epochs go over it, whole or in mini-batches of whole episodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from omg.components.trajectories import Sequences, Trajectories
from omg.modules.kernels.ppo import Aims, Taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """One batch, all of it fixed while the epochs last. Everything of a slot is packed, [P, n, …];
    what has no meaning where nobody acts is not read there."""

    arranged: Sequences
    inputs: Tensor  # [P, n, I], the policy's
    critic_inputs: Tensor  # [P, n, J]
    avail: Tensor  # [P, n, A]
    actions: Tensor  # [P, n]
    numbers: Tensor  # [4, P, n]: the four that follow, together, because they are read together
    counts: Tensor | None  # [P, n], which seats act in a transition there; None: all of them
    everyone: bool = False  # whether that is everyone at every slot but an episode's last

    @property
    def log_probs(self) -> Tensor:
        """Of the actions when they were taken, [P, n]."""
        return self.numbers[0]

    @property
    def advantages(self) -> Tensor:
        """[P, n]."""
        return self.numbers[1]

    @property
    def predicted(self) -> Tensor:
        """The critic's outputs before the first epoch, [P, n]."""
        return self.numbers[2]

    @property
    def targets(self) -> Tensor:
        """What it should have said, in its unit, [P, n]."""
        return self.numbers[3]

    @property
    def episodes(self) -> int:
        """How many there are."""
        return self.arranged.packing.shape[0]

    def part(self, episodes: Tensor) -> Experience:
        """Some of the episodes without their last slots, in which nobody acts."""
        whole = self.arranged
        packing, slots = whole.packing.without_last(episodes)

        def those(of_slots: Tensor) -> Tensor:
            return of_slots.index_select(0, slots)

        inputs, shared = those(self.inputs), self.critic_inputs is self.inputs
        counts = None if self.counts is None or self.everyone else those(self.counts)
        all_count = counts is None or bool(counts.all())
        return Experience(
            arranged=Sequences(
                packing=packing,
                n_seats=whole.n_seats,
                seats=None if whole.seats is None else whole.seats[episodes],
            ),
            inputs=inputs,
            critic_inputs=inputs if shared else those(self.critic_inputs),
            avail=those(self.avail),
            actions=those(self.actions),
            numbers=self.numbers.index_select(1, slots),
            counts=None if all_count else counts,
        )

    def counted(self, of_slots: Tensor) -> Tensor:
        """Values [P, n] of the seats that act in a transition, [L]."""
        return of_slots.flatten() if self.counts is None else of_slots[self.counts]

    @property
    def taken(self) -> Taken:
        """What was done, by row: slots x seats."""
        return Taken(
            self.avail.flatten(0, 1),
            self.actions.flatten(),
            self.log_probs.flatten(),
            self.advantages.flatten(),
            self.counted_rows,
        )

    @property
    def aims(self) -> Aims:
        """What the critic should have said, by row."""
        return Aims(self.predicted.flatten(), self.targets.flatten(), self.counted_rows)

    @property
    def rows(self) -> tuple[Tensor, Tensor]:
        """The policy's inputs [P·n, I], and how many rows each step has."""
        sizes = self.arranged.packing.sizes * self.arranged.n_seats
        return self.inputs.flatten(0, 1), sizes

    @property
    def counted_rows(self) -> Tensor | None:
        """Which rows are of a seat that acts; None: all."""
        return None if self.counts is None else self.counts.flatten()


def acting_slots(played: Trajectories) -> Tensor:
    """Which learning seats act in a transition at each slot, [P, n]."""
    packing = played.packing
    counts = torch.zeros(len(packing.time), played.n_seats, dtype=torch.bool)
    counts = counts.to(packing.time.device)
    counts[packing.now] = True
    return counts if played.alive is None else counts & played.alive
