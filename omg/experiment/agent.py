"""A trained policy to act with in a loop of one's own."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from omg.controllers.team import TeamMAC
from omg.envs.registry import make_batched
from omg.experiment.trained import TrainedRun, load_players, read_run
from omg.modules.device import choose_device, set_up_torch
from omg.opponents.lineups import EveryoneLearns
from omg.policies.inputs import Carry, StepView
from omg.policies.module import PolicyModule
from omg.types import EnvSpec, IntArray, Observation, OmgError, TimeStep


class Agent:
    """What a run has trained. It remembers what recurrent networks and opponent models need, for
    every game by itself, and forgets a game that has ended.

    `seats` are those it can play: all of them, or those of the role it was trained for.
    """

    def __init__(self, run: TrainedRun, mac: TeamMAC, spec: EnvSpec, device: torch.device) -> None:
        self.run, self.spec = run, spec
        self.seats = tuple(
            seat
            for seat in range(spec.n_agents)
            if not spec.roles or spec.roles[seat] in mac.lineup.roles
        )
        self._mac, self._device = mac, device
        self._generator = torch.Generator().manual_seed(run.config.seed)
        self.reset()

    def reset(self, seed: int | None = None) -> None:
        """Forget all games; `seed` starts the random choices of `greedy=False` again."""
        self._carry: Carry = {}
        self._last: IntArray = np.empty((0, self.spec.n_agents), np.int64)
        self._fresh = True
        self._alone: int | None = None  # the seat it was asked for in these games
        if seed is not None:
            self._generator.manual_seed(seed)

    def act(
        self,
        view: Observation | TimeStep | ArrayLike,
        *,
        state: ArrayLike | None = None,
        avail: ArrayLike | None = None,
        seat: int | None = None,
        last_actions: ArrayLike | None = None,
        greedy: bool = True,
    ) -> NDArray[np.int64]:
        """Choose actions.

        `view` is what an environment of `make_env` gave (B games at once), or the observations of
        all seats, [N, O] or [B, N, O], with the `state` [S] or [B, S] and the available actions
        `avail` [N, A] or [B, N, A] (none given: all). The actions come back as [n] or [B, n], one
        for each of `seats`; with `seat`, as a number or [B].

        A call is one step of the game for all seats: where seats are asked one by one, load an
        agent for each. After the first step of a game an agent with an opponent model must be told
        what everybody did, `last_actions` [N] or [B, N], unless it plays all seats itself. With
        arrays, call `reset` when a new game begins."""
        chosen_seats = self._seat(seat)
        shown, ended = self._shown(view, state, avail)
        batched = _games(view)
        copies = len(shown.obs)
        self._begin(copies, ended, seat)
        if last_actions is not None:
            self._last = np.where(ended[:, None], -1, self._told(last_actions, copies))
        elif not (self._fresh or self._knows_everybody(seat)):
            raise OmgError(
                "This agent models the others and must know what they did. Give last_actions=<the "
                "last action of every seat>."
            )
        with torch.inference_mode():
            acted = self._mac.act(
                StepView(
                    obs=torch.from_numpy(shown.obs).to(self._device),
                    state=torch.from_numpy(shown.state).to(self._device),
                    avail=torch.from_numpy(shown.avail).to(self._device),
                    last_actions=torch.from_numpy(self._last).to(self._device),
                    alive=self._alive(shown),
                ),
                self._carry,
                env_steps=self.run.env_steps,
                greedy=greedy,
                generator=self._generator,
            )
        self._carry, self._fresh = acted.carry, False
        actions = acted.actions.cpu().numpy()
        self._last = actions.copy()
        chosen = actions[:, chosen_seats]
        return chosen if batched else chosen[0]

    def module(self) -> PolicyModule:
        """One greedy step of its policy as a torch module with a `forward`, for `torch.export` and
        the like; the weights are shared. It keeps no memory: `carry` is handed in and out."""
        return PolicyModule(self._mac.policy, self.spec).eval()

    def _alive(self, shown: Observation) -> torch.Tensor | None:
        """Who still acts, where agents may leave. Of arrays: who sees something or has a choice."""
        if not self.spec.leavers:
            return None
        alive = shown.alive
        if alive is None:
            alive = shown.obs.any(-1) | (shown.avail.sum(-1) > 1)
        return torch.from_numpy(alive).to(self._device)

    def _told(self, last_actions: ArrayLike, copies: int) -> IntArray:
        """What everybody did, [B, N]; -1 where a game has just begun."""
        told = _as(last_actions, (self.spec.n_agents,), "last_actions", copies)
        if not np.isin(told, np.arange(-1, self.spec.n_actions)).all():
            raise OmgError(
                f"last_actions has an action that does not exist. There are {self.spec.n_actions}, "
                "counted from 0; -1 stands for none."
            )
        return told.astype(np.int64)

    def _knows_everybody(self, seat: int | None) -> bool:
        plays_all = seat is None and len(self.seats) == self.spec.n_agents
        return plays_all or not self._mac.policy.feature_dim

    def _seat(self, seat: int | None) -> Any:
        if seat is None:
            return list(self.seats)
        if seat not in self.seats:
            raise OmgError(f"seat={seat} is none this agent plays: {self.seats}. Choose one.")
        return seat

    def _begin(self, copies: int, ended: NDArray[np.bool_], seat: int | None) -> None:
        """Start remembering, and forget games that have ended."""
        rng = np.random.default_rng(0)  # of line-ups, which there are none of
        if len(self._last) not in (0, copies) and not ended.all():
            raise OmgError(
                f"The agent was playing {len(self._last)} games and is shown {copies}. Call "
                "reset() before other games begin."
            )
        if not (self._fresh or ended.all()) and seat != self._alone:
            raise OmgError(
                f"The agent was asked for {_seats(self._alone)} in this game, now for "
                f"{_seats(seat)}. Every call is one step of the game: ask for all seats at once, "
                "or load one agent per seat."
            )
        self._alone = seat
        if len(self._last) != copies:
            self._carry = self._mac.initial_carry(copies)
            self._last = np.full((copies, self.spec.n_agents), -1, np.int64)
            self._mac.begin_episodes(self._carry, np.arange(copies), rng)
            self._fresh = True
        elif ended.any():
            self._carry = {name: value.clone() for name, value in self._carry.items()}
            self._mac.begin_episodes(self._carry, np.flatnonzero(ended), rng)
            self._last[ended] = -1
            self._fresh = bool(ended.all())

    def _shown(
        self,
        view: Observation | TimeStep | ArrayLike,
        state: ArrayLike | None,
        avail: ArrayLike | None,
    ) -> tuple[Observation, NDArray[np.bool_]]:
        """What B games show, and which of them have just begun again."""
        if isinstance(view, Observation | TimeStep) and not (state is avail is None):
            raise OmgError(
                "state and avail are part of what an environment shows. Leave them out, or give "
                "arrays only."
            )
        if isinstance(view, Observation | TimeStep):
            self._check_game(view)
        if isinstance(view, Observation):  # of `reset`: every game has just begun
            return view, np.ones(len(view.obs), np.bool_)
        if isinstance(view, TimeStep):
            ended = view.terminated | view.truncated
            ended[view.dropped] = True
            return Observation(view.obs, view.state, view.avail, view.alive), ended
        spec = self.spec
        obs = _as(view, (spec.n_agents, spec.obs_dim), "the observations")
        if state is None and self._needs_state():
            raise OmgError("This agent is fed the state. Give state=<array>, beside observations.")
        copies = len(obs)
        states = np.zeros((copies, spec.state_dim), np.float32)
        allowed = np.ones((copies, spec.n_agents, spec.n_actions), np.bool_)
        if state is not None:
            states = _as(state, (spec.state_dim,), "state", copies)
        if avail is not None:
            shape = (spec.n_agents, spec.n_actions)
            allowed = _as(avail, shape, "avail", copies).astype(np.bool_)
            if not allowed.any(-1).all():
                raise OmgError("avail leaves an agent no action at all. Allow at least one each.")
        return Observation(obs, states, allowed), np.zeros(copies, np.bool_)

    def _check_game(self, view: Observation | TimeStep) -> None:
        found = (*view.obs.shape[1:], view.avail.shape[-1])
        wanted = (self.spec.n_agents, self.spec.obs_dim, self.spec.n_actions)
        if found != wanted:
            raise OmgError(
                f"This game has {found[0]} agents, observations of width {found[1]} and {found[2]} "
                f"actions; the agent learned one with {wanted[0]}, {wanted[1]} and {wanted[2]}. "
                "Use its run's make_env()."
            )

    def __repr__(self) -> str:
        return f"omg.Agent({self.run.config.name} of {str(self.run.model)!r})"

    def _needs_state(self) -> bool:
        config, model = self.run.config, self._mac.model
        return config.obs_is_state or config.am_present or (model is not None and model.reads_state)


def _seats(seat: int | None) -> str:
    return "all seats" if seat is None else f"seat {seat}"


def _games(view: Any) -> bool:
    """Whether a view is of several games (or of one in a batch)."""
    return isinstance(view, Observation | TimeStep) or np.ndim(view) == 3


def _as(
    given: Any, shape: tuple[int, ...], what: str, copies: int | None = None
) -> NDArray[np.float32]:
    """An array [B, …] of that shape; one game becomes a batch of one."""
    array = np.asarray(given, np.float32)
    if array.ndim == len(shape):
        array = array[None]
    if array.shape[1:] != shape or copies not in (None, len(array)):
        batch = "B" if copies is None else copies
        raise OmgError(
            f"{what}: expected the shape {shape} or ({batch}, {', '.join(map(str, shape))}), not "
            f"{np.shape(given)}."
        )
    return np.ascontiguousarray(array)


def load_agent(folder: str | os.PathLike[str], which: str | int = "last") -> Agent:
    """The agent (or team) of a run: its `last` or `best` weights, or those of a saved step."""
    run = read_run(folder, str(which))
    set_up_torch(run.config)
    env = make_batched(run.config.env, run.config.env_args, n_copies=1)
    spec = env.spec
    env.close()
    device = choose_device(run.config)
    return Agent(run, team_of(run, spec, device), spec, device)


def team_of(run: TrainedRun, spec: EnvSpec, device: torch.device) -> TeamMAC:
    """What a run trained, in all seats."""
    roles = run.meta.get("policy", {}).get("roles")
    mac = load_players(run, spec, device, lineup=EveryoneLearns(spec, roles))
    if not isinstance(mac, TeamMAC):
        raise OmgError(f"{run.folder} has mac={run.config.mac}, which cannot be loaded by itself.")
    return mac
