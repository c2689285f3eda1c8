"""PettingZoo's parallel environments as a batch of copies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.adapters.base import AdaptedEnv, Seen, cut_off, first_possible, known_limit, no_limit
from omg.envs.adapters.options import Options, Seat, seat_of
from omg.envs.adapters.packages import parallel_maker
from omg.envs.serial import End
from omg.types import FloatArray, OmgError

_NEEDED = ("possible_agents", "observation_space", "action_space", "reset", "step")
_NUMBER = re.compile(r"[_-]?\d+$")
# Steps in which a state has to equal the observations to be taken for them.
_PROBED = 3


class PettingZooEnv(AdaptedEnv):
    """A PettingZoo parallel environment, named by env_args.key=package:module.

    Every possible agent has a seat. One that has ended or is not there sees zeros, can only do
    action 0 and earns nothing. The episode ends when no agent is left; it is a truncation if one
    of the last was truncated and not terminated.
    """

    def __init__(self, *, args: Mapping[str, Any], n_copies: int, first_copy: int = 0) -> None:
        options = Options.parse(args, example="mpe2:simple_spread_v3")
        make = partial(parallel_maker(options.key), **options.game_args)
        # The agents that still play, of every copy.
        self._playing: list[list[Any]] = [[]] * n_copies
        super().__init__(options, make=make, n_copies=n_copies, first_copy=first_copy)

    def _settle(self) -> None:
        game, options = self._games[0], self._options
        self._agents = _agents_of(game, options.key)
        if any(_agents_of(other, options.key) != self._agents for other in self._games):
            raise OmgError(f"Copies of {options.key} have different agents. Make them all alike.")
        self._seat = {agent: seat for seat, agent in enumerate(self._agents)}
        names = [str(agent) for agent in self._agents]
        seats = [
            seat_of(
                options.key,
                name,
                observed=game.observation_space(agent),
                acted=game.action_space(agent),
            )
            for agent, name in zip(self._agents, names, strict=True)
        ]
        self._no_masks = [None] * len(seats)
        self._any_masked = any(seat.masked for seat in seats)
        self._describe(
            seats,
            episode_limit=_limit(game, options),
            shared_reward=bool(options.shared_reward),
            state_dim=self._own_state_dim(seats),
            roles=tuple(_NUMBER.sub("", name) or name for name in names),
        )

    def _own_state_dim(self, seats: Sequence[Seat]) -> int | None:
        """The width of the game's own state. None where the observations are to be used, because
        that was asked for, there is no other, or (`auto`) it is nothing but them."""
        wanted = self._options.state
        if wanted == "observations":
            return None
        observations, infos = self._reset_game(0, seed=0)
        game = self._games[0]
        try:
            width = int(np.size(game.state()))
        except Exception as error:
            if wanted == "env":
                raise OmgError(
                    f"{self._options.key} has no state() ({type(error).__name__}: {error}). Use "
                    "env_args.state=observations."
                ) from error
            return None
        for _ in range(0 if wanted == "env" else _PROBED):
            if not self._is_side_by_side(game.state(), observations, seats) or not game.agents:
                return width
            actions = {}
            for agent in game.agents:
                seat = seats[self._seat_of(agent)]
                mask = _mask_of(seat, observations.get(agent), infos.get(agent))
                actions[agent] = first_possible(seat, mask)
            observations, _, _, _, infos = game.step(actions)
        return width if wanted == "env" else None

    def _is_side_by_side(
        self, state: Any, observations: Mapping[Any, Any], seats: Sequence[Seat]
    ) -> bool:
        if any(agent not in observations for agent in self._agents):
            return False
        pairs = zip(self._agents, seats, strict=True)
        side_by_side = np.concatenate([seat.read(observations[agent]) for agent, seat in pairs])
        return np.array_equal(np.ravel(state), side_by_side)

    def _start(self, b: int, seed: int) -> None:
        observations, infos = self._reset_game(b, seed)
        agents = list(self._games[b].agents)
        if not agents:
            raise OmgError(f"{self.spec.name} begins without agents. Let reset() fill `agents`.")
        self._playing[b] = agents
        self._seen[b] = self._sorted(b, agents, observations, infos)

    def _act(
        self, b: int, actions: list[int], reward: FloatArray, info: Mapping[str, FloatArray]
    ) -> End:
        game, acted, seats = self._games[b], self._playing[b], self._seat
        if game.agents == self._agents:
            chosen = dict(zip(self._agents, actions, strict=True))
        else:
            chosen = {agent: actions[seats[agent]] for agent in game.agents}
        observations, rewards, terminations, truncations, infos = game.step(chosen)
        for agent in acted:
            reward[seats[agent]] = rewards.get(agent, 0.0)
        if self.spec.shared_reward:
            self._share(b, reward, [seats[agent] for agent in acted])
        playing = acted
        if any(terminations.values()) or any(truncations.values()) or game.agents != acted:
            playing = [
                agent
                for agent in game.agents
                if not (terminations.get(agent, False) or truncations.get(agent, False))
            ]
            self._playing[b] = playing
        self._seen[b] = self._sorted(b, playing or acted, observations, infos, over=not playing)
        if playing:
            return End.NONE
        cut = cut_off(
            [terminations.get(agent, False) for agent in acted],
            [truncations.get(agent, False) for agent in acted],
        )
        if cut:
            self._require_last_view(b, acted)
        return End.TRUNCATED if cut or self._counts_as_cut(b) else End.TERMINATED

    def _sorted(
        self,
        b: int,
        agents: list[Any],
        observations: Mapping[Any, Any],
        infos: Mapping[Any, Any],
        *,
        over: bool = False,
    ) -> Seen:
        masked = self._any_masked or any(infos.values())
        if not masked and agents == self._agents and observations.keys() >= self._seat.keys():
            return Seen([observations[agent] for agent in agents], self._no_masks, True)
        values: list[Any] = [None] * len(self._agents)
        masks: list[Any] = [None] * len(self._agents)
        for agent in agents:
            seat = self._seat_of(agent)
            value = values[seat] = observations.get(agent)
            if value is None and not over:
                raise OmgError(
                    f"There is no observation of agent {agent} {self._where(b)}, which is still "
                    "in `agents`. Give one of every agent that plays."
                )
            masks[seat] = _mask_of(self._seats[seat], value, infos.get(agent))
        return Seen(values, masks, False)

    def _seat_of(self, agent: Any) -> int:
        try:
            return self._seat[agent]
        except KeyError:
            raise OmgError(
                f"Agent {agent} of {self._options.key} is none of its possible_agents "
                f"({', '.join(map(str, self._agents))}). List there all that may ever play."
            ) from None

    def _require_last_view(self, b: int, acted: Sequence[Any]) -> None:
        """A truncated episode goes on in the mind of the learner, so its last view is needed."""
        unseen = [agent for agent in acted if self._seen[b].obs[self._seat[agent]] is None]
        if unseen:
            raise OmgError(
                f"The episode {self._where(b)} was cut off without a last observation of agent "
                f"{unseen[0]}. Let the game give one, or cut earlier: "
                f"env_args.time_limit={max(self._steps[b] - 1, 1)}."
            )

    def _state(self, b: int) -> NDArray[Any]:
        state = np.ravel(self._games[b].state())
        if state.shape != (self.spec.state_dim,):
            raise OmgError(
                f"The state {self._where(b)} has {state.size} numbers, not {self.spec.state_dim} "
                "as at first. Use env_args.state=observations."
            )
        return state


def _agents_of(game: Any, key: str) -> list[Any]:
    if hasattr(game, "agent_iter"):
        raise OmgError(
            f"{key} makes an environment whose agents move in turns. Name one with PettingZoo's "
            "parallel API, in which all act at once."
        )
    lacking = [name for name in _NEEDED if not hasattr(game, name)]
    if lacking:
        raise OmgError(
            f"{key} lacks {', '.join(lacking)} of PettingZoo's parallel API. Define what is "
            "missing; possible_agents lists all that may ever play."
        )
    return list(game.possible_agents)


def _limit(game: Any, options: Options) -> int:
    own, wanted = known_limit(game, options.game_args), options.time_limit
    if own is None and wanted is None:
        raise no_limit(options.key)
    if own is not None and wanted is not None and wanted > own:
        raise OmgError(
            f"env_args.time_limit={wanted} lies beyond the game's own limit of {own} steps. Raise "
            "that one with the game's own argument, e.g. env_args.max_cycles."
        )
    return min(limit for limit in (own, wanted) if limit is not None)


def _mask_of(seat: Seat, value: Any, info: Any) -> Any:
    """The action mask of an agent, from its observation or else its info; None: all it has."""
    if seat.masked and value is not None and "action_mask" in value:
        return value["action_mask"]
    return info.get("action_mask") if info else None
