"""Stag Hunt and Snowdrift as a plain loop over players and targets: one game, lists and numbers.

Written from the rules in docs/environments, not from the batched code, so that tests can compare
the two transition by transition and `benchmarks.stag_hunt` can measure them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Cell = tuple[int, int]
MOVES = {1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}


@dataclass
class Seen:
    """What one step brought, or what players see now."""

    obs: list[list[float]]
    state: list[float]
    avail: list[list[bool]]
    alive: list[bool]
    reward: list[float] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False


class PlainGame:
    """What both games have in common; a subclass settles who gets what."""

    n_actions = 5

    def __init__(
        self,
        *,
        side: int,
        players: Sequence[Cell],
        targets: Sequence[Cell],
        limit: int,
        obstacles: Sequence[Cell] = (),
        strengths: Sequence[int] | None = None,
    ) -> None:
        self.side, self.limit, self.steps = side, limit, 0
        self.players, self.targets, self.obstacles = list(players), list(targets), list(obstacles)
        self.strengths = list(strengths or [1] * len(players))
        self.alive = [True] * len(players)
        self.there = [True] * len(targets)

    def action_for(self, target: int) -> int:
        """The action that is for a target."""
        raise NotImplementedError

    def settle(self, tries: list[list[int]]) -> tuple[list[float], list[int]]:
        """Rewards and goals reached, by seat; `tries[k]`: the seats that try for target k."""
        raise NotImplementedError

    def free(self, cell: Cell) -> bool:
        inside = 0 <= cell[0] < self.side and 0 <= cell[1] < self.side
        return inside and cell not in self.obstacles

    def step(self, actions: Sequence[int]) -> Seen:
        self.steps += 1
        tries: list[list[int]] = [[] for _ in self.targets]
        for seat, action in enumerate(actions):
            if not self.alive[seat]:
                continue
            if action in MOVES:
                row, col = self.players[seat]
                there = (row + MOVES[action][0], col + MOVES[action][1])
                if self.free(there):
                    self.players[seat] = there
                continue
            for k, cell in enumerate(self.targets):
                if self.there[k] and cell == self.players[seat] and action == self.action_for(k):
                    tries[k].append(seat)
        reward, reached = self.settle(tries)
        seen = self.look()
        seen.reward, seen.reached = reward, reached
        seen.terminated = not any(self.alive) or not any(self.there)
        seen.truncated = not seen.terminated and self.steps >= self.limit
        return seen

    def look(self) -> Seen:
        return Seen(
            obs=[self._observation(seat) for seat in range(len(self.players))],
            state=self._state(),
            avail=[self._avail(seat) for seat in range(len(self.players))],
            alive=list(self.alive),
        )

    def _state(self) -> list[float]:
        numbers: list[float] = []
        for cell, there in zip(self.targets, self.there, strict=True):
            numbers += [*cell, 1] if there else [0, 0, 0]
        for seat, cell in enumerate(self.players):
            numbers += [*cell, self.strengths[seat]] if self.alive[seat] else [0, 0, 0]
        for cell in self.obstacles:
            numbers += [*cell, 1]
        return numbers

    def _observation(self, me: int) -> list[float]:
        things = len(self.players) + len(self.targets) + len(self.obstacles)
        if not self.alive[me]:
            return [0.0] * (3 * things)
        row, col = self.players[me]
        numbers: list[float] = [row, col, self.strengths[me]]
        for step in range(1, len(self.players)):
            other = (me + step) % len(self.players)
            if self.alive[other]:
                cell = self.players[other]
                numbers += [cell[0] - row, cell[1] - col, self.strengths[other]]
            else:
                numbers += [0, 0, 0]
        for cell, there in zip(self.targets, self.there, strict=True):
            numbers += [cell[0] - row, cell[1] - col, 1] if there else [0, 0, 0]
        for cell in self.obstacles:
            numbers += [cell[0] - row, cell[1] - col, 1]
        return numbers

    def _avail(self, me: int) -> list[bool]:
        avail = [True] + [False] * (self.n_actions - 1)
        if not self.alive[me]:
            return avail
        row, col = self.players[me]
        for action, (down, right) in MOVES.items():
            avail[action] = self.free((row + down, col + right))
        for k, cell in enumerate(self.targets):
            if self.there[k] and cell == self.players[me]:
                avail[self.action_for(k)] = True
        return avail


class PlainStagHunt(PlainGame):
    """The first `stags` targets are stags, the others hares."""

    n_actions = 7

    def __init__(
        self,
        *,
        stags: int = 1,
        stag_reward: float = 10.0,
        hare_reward: float = 1.0,
        stag_hunters: int = 2,
        stag_strength: int = 2,
        side: int = 8,
        players: Sequence[Cell],
        targets: Sequence[Cell],
        limit: int = 35,
        obstacles: Sequence[Cell] = (),
        strengths: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            side=side,
            players=players,
            targets=targets,
            limit=limit,
            obstacles=obstacles,
            strengths=strengths,
        )
        self.stags, self.stag_reward, self.hare_reward = stags, stag_reward, hare_reward
        self.stag_hunters, self.stag_strength = stag_hunters, stag_strength

    def action_for(self, target: int) -> int:
        return 5 if target < self.stags else 6

    def settle(self, tries: list[list[int]]) -> tuple[list[float], list[int]]:
        reward, reached = [0.0] * len(self.players), [-1] * len(self.players)
        for k, hunters in enumerate(tries):
            if not hunters:
                continue
            strength = sum(self.strengths[seat] for seat in hunters)
            few = len(hunters) < self.stag_hunters or strength < self.stag_strength
            if k < self.stags and few:
                continue
            value = self.stag_reward if k < self.stags else self.hare_reward
            self.there[k] = False
            for seat in hunters:
                reward[seat], reached[seat], self.alive[seat] = value / len(hunters), k, False
        return reward, reached


class PlainSnowdrift(PlainGame):
    """All targets are drifts."""

    n_actions = 6

    def __init__(
        self,
        *,
        gain: float = 6.0,
        cost: float = 4.0,
        side: int = 8,
        players: Sequence[Cell],
        targets: Sequence[Cell],
        limit: int = 50,
        obstacles: Sequence[Cell] = (),
    ) -> None:
        super().__init__(
            side=side, players=players, targets=targets, limit=limit, obstacles=obstacles
        )
        self.gain, self.cost = gain, cost

    def action_for(self, target: int) -> int:
        return 5

    def settle(self, tries: list[list[int]]) -> tuple[list[float], list[int]]:
        reward, reached = [0.0] * len(self.players), [-1] * len(self.players)
        for k, removers in enumerate(tries):
            if not removers:
                continue
            self.there[k] = False
            for seat in range(len(self.players)):
                reward[seat] += self.gain
            for seat in removers:
                reward[seat] -= self.cost / len(removers)
                reached[seat] = k
        return reward, reached
