"""Predator-Prey, many copies at once. Actions: none, left, right, down, up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import BatchedEnv
from omg.envs.keys import WORD, Keys, copy_keys, draw_words, episode_keys
from omg.envs.predator_prey.args import (
    AGENT_SPREAD,
    N_ACTIONS,
    OBSTACLE_SPREAD,
    PredatorPreyArgs,
)
from omg.envs.predator_prey.frame import PredatorPreyFrame, frame_of, frames_from_states
from omg.envs.predator_prey.world import Doubles, World
from omg.types import (
    BoolArray,
    EnvSpec,
    FinalObservation,
    FloatArray,
    IntArray,
    Observation,
    OmgError,
    Snapshot,
    TimeStep,
)

COLLISIONS, SURVIVAL = "collisions", "survival"


class PredatorPreyEnv(BatchedEnv):
    """Slow predators hunt faster prey among obstacles; every contact pays all predators."""

    exact_snapshots = True

    def __init__(
        self,
        *,
        args: PredatorPreyArgs | Mapping[str, Any],
        n_copies: int,
        first_copy: int = 0,
    ) -> None:
        if n_copies < 1:
            raise OmgError(f"n_copies is {n_copies}. Ask for at least one copy.")
        self.args = args = PredatorPreyArgs.parse(args)
        self.n_copies = n_copies
        self.first_copy = first_copy
        self.spec = EnvSpec(
            name=args.name,
            n_agents=args.n_agents,
            n_actions=N_ACTIONS,
            obs_dim=max(args.obs_dims),
            state_dim=args.state_dim,
            episode_limit=args.max_cycles,
            obs_format=args.obs_format,
            agent_features=tuple(
                tuple(range(4 * seat, 4 * seat + 4)) for seat in range(args.n_agents)
            ),
            roles=args.roles,
            obs_dims=args.obs_dims,
            statistics=(COLLISIONS, SURVIVAL),
        )
        self._world = World(args, n_copies)
        self._all = np.arange(n_copies)
        self._spread = np.full((args.n_bodies, 1, 1), AGENT_SPREAD)
        self._spread[args.n_agents :] = OBSTACLE_SPREAD
        self._seed: int | None = None
        self._keys = np.zeros(n_copies, np.uint64)
        self._episode = np.zeros(n_copies, np.int64)
        self._steps = np.zeros(n_copies, np.int64)
        self._collisions = np.zeros(n_copies, np.int64)
        # The step of the first contact; the limit as long as there was none.
        self._survival = np.full(n_copies, args.max_cycles)
        self._score = np.zeros((args.n_agents, n_copies))

    def reset(self, seed: int) -> Observation:
        """Seed every copy and start its episode 0."""
        self._set_seed(seed)
        self._episode[:] = -1
        return self.restart()

    def restart(self) -> Observation:
        """Abandon every running episode and start the next one of each copy."""
        self._require_reset()
        self._begin(self._all)
        return self.observe()

    def observe(self) -> Observation:
        """What the agents see now."""
        obs, state = self._world.view()
        return Observation(obs, state, self._avail(self.n_copies))

    def step(self, actions: IntArray) -> TimeStep:
        """Push, move, count contacts, and restart the copies that reached the limit."""
        self._require_reset()
        actions = np.asarray(actions, np.int64)
        wanted = (self.n_copies, self.args.n_agents)
        if actions.shape != wanted or actions.view(np.uint64).max() >= N_ACTIONS:
            raise ValueError(
                f"Actions must be an array {wanted} of integers from 0 to {N_ACTIONS - 1}."
            )
        world = self._world
        world.move(actions)
        contacts = world.contacts()
        reward = world.rewards(contacts)
        self._count(contacts, reward)
        truncated = self._steps >= self.args.max_cycles
        info = {
            COLLISIONS: self._collisions.astype(np.float32),
            SURVIVAL: self._survival.astype(np.float32),
        }
        final = None
        ended = truncated.nonzero()[0]
        if ended.size:
            final = FinalObservation(ended, *world.view(ended), self._avail(len(ended)))
            self._begin(ended)
        obs, state = world.view()
        return TimeStep(
            obs=obs,
            state=state,
            avail=self._avail(self.n_copies),
            reward=np.ascontiguousarray(reward.T, dtype=np.float32),
            terminated=np.zeros(self.n_copies, np.bool_),
            truncated=truncated,
            final=final,
            info=info,
        )

    def snapshot(self) -> Snapshot:
        """Counters and bodies; the layouts to come follow from the counters."""
        return {
            "seed": np.array(self._require_reset(), np.uint64),
            "episode": self._episode.copy(),
            "steps": self._steps.copy(),
            "place": np.moveaxis(self._world.place, -1, 0).copy(),
            "velocity": np.moveaxis(self._world.velocity, -1, 0).copy(),
            "collisions": self._collisions.copy(),
            "survival": self._survival.copy(),
            "score": self._score.T.copy(),
        }

    def restore(self, snapshot: Snapshot) -> Observation:
        """Continue bit for bit where the snapshot was taken."""
        place = np.moveaxis(snapshot["place"], 0, -1)
        velocity = np.moveaxis(snapshot["velocity"], 0, -1)
        world = self._world
        if place.shape != world.place.shape or velocity.shape != world.velocity.shape:
            raise OmgError(
                f"The snapshot does not fit {self.n_copies} copies of {self.spec.name}. "
                f"Restore it with the arguments it was made with."
            )
        self._set_seed(int(snapshot["seed"]))
        self._episode[:] = snapshot["episode"]
        self._steps[:] = snapshot["steps"]
        self._collisions[:] = snapshot["collisions"]
        self._survival[:] = snapshot["survival"]
        self._score[:] = snapshot["score"].T
        world.put(self._all, place, velocity)
        world.measure()
        return self.observe()

    def set_layout(
        self,
        copy: int,
        *,
        agent_pos: Sequence[Sequence[float]],
        obstacles: Sequence[Sequence[float]] = (),
        agent_vel: Sequence[Sequence[float]] | None = None,
        step: int = 0,
    ) -> Observation:
        """Put one copy into a given situation: (x, y) of every agent, predators first, and of every
        obstacle; agents rest unless velocities are given."""
        self._require_reset()
        n, limit = self.args.n_agents, self.args.max_cycles
        still = [(0.0, 0.0)] * n if agent_vel is None else agent_vel
        place = np.concatenate(
            [
                _points("agent_pos", agent_pos, n),
                _points("obstacles", obstacles, self.args.n_obstacles),
            ]
        )
        velocity = _points("agent_vel", still, n)
        if not 0 <= step < limit:
            raise OmgError(f"`step` is {step}. Choose one from 0 to {limit - 1}.")
        at = self._all[[copy]]
        self._clear(at)
        self._steps[at] = step
        self._world.put(at, place[:, :, None], velocity[:, :, None])
        self._world.measure()
        return self.observe()

    def frame(self, copy: int = 0) -> PredatorPreyFrame:
        """The situation of one copy, for pictures."""
        return frame_of(
            self._world.view(self._all[[copy]])[1][0],
            args=self.args,
            step=int(self._steps[copy]),
            score=tuple(self._score[:, copy].tolist()),
            collisions=int(self._collisions[copy]),
        )

    def render(self, copy: int = 0) -> NDArray[np.uint8]:
        """An RGB picture of one copy."""
        from omg.envs.predator_prey.render import to_rgb

        return to_rgb(self.frame(copy))

    def draw_episode(self, stem: Path, states: FloatArray, rewards: FloatArray) -> list[Path]:
        """Write an episode, states [T + 1, S] and rewards [T, N], as moving SVG and GIF."""
        from omg.envs.predator_prey.render import to_animated_svg, write_gif

        frames = frames_from_states(states, rewards, args=self.args)
        svg, gif = stem.with_suffix(".svg"), stem.with_suffix(".gif")
        svg.write_text(to_animated_svg(frames), encoding="utf-8")
        write_gif(gif, frames)
        return [svg, gif]

    def _avail(self, n_copies: int) -> BoolArray:
        return np.ones((n_copies, self.args.n_agents, N_ACTIONS), np.bool_)

    def _count(self, contacts: BoolArray, reward: Doubles) -> None:
        """Bring the counters of the running episodes up to date."""
        self._steps += 1
        self._score += reward
        touched = contacts.reshape(-1, self.n_copies).sum(axis=0)
        first = (touched > 0) & (self._collisions == 0)
        self._survival[first] = self._steps[first]
        self._collisions += touched

    def _clear(self, copies: IntArray) -> None:
        self._steps[copies] = 0
        self._collisions[copies] = 0
        self._survival[copies] = self.args.max_cycles
        self._score[:, copies] = 0.0

    def _set_seed(self, seed: int) -> None:
        self._seed = seed & WORD
        self._keys = copy_keys(self._seed, self.first_copy + self._all)

    def _require_reset(self) -> int:
        if self._seed is None:
            raise RuntimeError("Call reset before anything else.")
        return self._seed

    def _begin(self, copies: IntArray) -> None:
        """Start the next episode of some copies, everybody at rest."""
        self._episode[copies] += 1
        self._clear(copies)
        keys = episode_keys(self._keys[copies], self._episode[copies])
        self._world.put(copies, self._draw_places(keys), np.zeros((1, 1, 1)))
        self._world.measure()

    def _draw_places(self, keys: Keys) -> Doubles:
        """Uniform places [bodies, 2, E] for each episode key."""
        words = draw_words(keys, 2 * self.args.n_bodies).T
        unit = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        places: Doubles = (2.0 * unit - 1.0).reshape(self.args.n_bodies, 2, -1) * self._spread
        return places


def _points(what: str, points: Sequence[Sequence[float]], count: int) -> Doubles:
    """Points [count, 2], checked."""
    found = np.asarray(points, np.float64)
    found = found.reshape(0, 2) if found.size == 0 else found
    if found.shape != (count, 2):
        raise OmgError(f"`{what}` has shape {found.shape}. Give (x, y) for each of {count}.")
    if not np.isfinite(found).all():
        raise OmgError(f"`{what}` holds NaN or infinity. Give finite numbers.")
    return found
