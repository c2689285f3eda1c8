"""What environments of moving discs share: counters, snapshots, layouts, pictures.

Actions: none, left, right, down, up. All are always available. The time limit truncates, nothing
terminates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import Keys, NativeEnv, draw_words, episode_keys
from omg.envs.particles.kernel import KernelSteps, ParticleKernel, Stepped, particle_kernel
from omg.envs.particles.physics import N_ACTIONS, Doubles, Particles
from omg.envs.particles.scene import F, Scene, whole_episode
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

COLLISIONS = "collisions"


class ParticleEnv(NativeEnv, Generic[F]):
    """Many copies of a game of moving discs; what a game adds is its world and `_outcome`."""

    scene: ClassVar[Scene[Any]]
    things: ClassVar[str]  # what the bodies beside the agents are called
    thing_size: ClassVar[float]  # their radius in pictures

    def __init__(
        self,
        *,
        spec: EnvSpec,
        world: Particles,
        spread: Sequence[float],
        counters: Mapping[str, float],
        first_copy: int,
    ) -> None:
        """`spread` is, for each body, the half side of the square it begins in; `counters` are the
        statistics, [B] each, with what they begin an episode with."""
        n_copies = world.n_copies
        super().__init__(spec=spec, n_copies=n_copies, first_copy=first_copy)
        self._particles = world
        self._spread = np.array(spread)[:, None, None]
        self._score = np.zeros((spec.n_agents, n_copies))
        self._start = dict(counters)
        self._counters: dict[str, NDArray[Any]] = {
            name: np.full(n_copies, start) for name, start in counters.items()
        }
        self._in_c: KernelSteps | None = None
        self._chosen = False  # whether steps are made in C or in NumPy

    # --- what a game decides ---------------------------------------------------------------

    @abstractmethod
    def _outcome(self) -> Doubles:
        """What every agent earns now, [N, B], after a move; brings the counters up to date."""

    @abstractmethod
    def _frame_of(self, state: FloatArray, step: int, score: tuple[float, ...]) -> F:
        """The frame that a state vector [S] describes."""

    def _kernel_rules(self) -> Mapping[str, float] | None:
        """What the kernel must know of the game; None: it does not know it."""
        return None

    def _differs_from(self, game: type) -> bool:
        """Whether a subclass has rules of its own, which the kernel of a game does not know."""
        rules = ("_outcome", "_step", "_begin", "_clear", "_draw_places")
        return any(getattr(type(self), name) is not getattr(game, name) for name in rules)

    @property
    def agent_sizes(self) -> tuple[float, ...]:
        """The agents' radii, by seat."""
        return tuple(self._particles.bodies.sizes[: self.spec.n_agents])

    # --- what all share --------------------------------------------------------------------

    def observe(self) -> Observation:
        """What the agents see now."""
        obs, state = self._particles.view()
        return Observation(obs, state, self._avail(self.n_copies))

    def use(self, kernel: ParticleKernel | None) -> None:
        """Make steps in C, where the kernel knows the game, or in NumPy; the environment chooses
        by itself before its first step."""
        self._chosen, self._in_c = True, None
        world, rules = self._particles, self._kernel_rules()
        world.measure()
        if kernel is None or rules is None or world.bodies.n_bodies > kernel.max_bodies:
            return
        kept = {"score": self._score, "steps": self._steps, "episode": self._episode}
        kept |= {"keys": self._keys, "spread": self._spread, **self._counters}
        rules = {**rules, "limit": self.spec.episode_limit}
        self._in_c = KernelSteps(kernel, world, kept, rules)

    def step(self, actions: IntArray) -> TimeStep:
        """Push, move, pay, and restart the copies that reached the limit."""
        self._require_reset()
        if not self._chosen:
            self.use(particle_kernel()[0])
        if self._in_c is None:
            return self._step(self._checked_actions(actions))
        told = self._in_c(actions) if isinstance(actions, np.ndarray) else None
        if told is None:
            told = self._in_c(self._checked_actions(actions))
            assert told is not None
        return self._seen(told)

    def _seen(self, told: Stepped) -> TimeStep:
        final = None
        if told.final is not None:
            ended = told.truncated.nonzero()[0]
            final = FinalObservation(ended, *told.final, self._avail(len(ended)))
        return TimeStep(
            obs=told.obs,
            state=told.state,
            avail=self._avail(self.n_copies),
            reward=told.reward,
            terminated=np.zeros(self.n_copies, np.bool_),
            truncated=told.truncated,
            final=final,
            info=dict(zip(self._counters, told.info, strict=True)),
        )

    def _step(self, actions: IntArray) -> TimeStep:
        world = self._particles
        world.move(actions)
        self._steps += 1
        reward = self._outcome()
        self._score += reward
        truncated = self._steps >= self.spec.episode_limit
        info = {name: count.astype(np.float32) for name, count in self._counters.items()}
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
            "place": np.moveaxis(self._particles.place, -1, 0).copy(),
            "velocity": np.moveaxis(self._particles.velocity, -1, 0).copy(),
            "score": self._score.T.copy(),
            **{name: count.copy() for name, count in self._counters.items()},
        }

    def restore(self, snapshot: Snapshot) -> Observation:
        """Continue bit for bit where the snapshot was taken."""
        place = np.moveaxis(snapshot["place"], 0, -1)
        velocity = np.moveaxis(snapshot["velocity"], 0, -1)
        world = self._particles
        if place.shape != world.place.shape or velocity.shape != world.velocity.shape:
            raise self._snapshot_refused()
        self._set_seed(int(snapshot["seed"]))
        self._episode[:] = snapshot["episode"]
        self._steps[:] = snapshot["steps"]
        self._score[:] = snapshot["score"].T
        for name, count in self._counters.items():
            count[:] = snapshot[name]
        world.put(self._all, place, velocity)
        world.measure()
        return self.observe()

    def frame(self, copy: int = 0) -> F:
        """The situation of one copy, for pictures."""
        state = self._particles.view(self._all[[copy]])[1][0]
        score = tuple(self._score[:, copy].tolist())
        frame = self._frame_of(state, int(self._steps[copy]), score)
        return replace(frame, collisions=int(self._counters[COLLISIONS][copy]))

    def frames(self, states: FloatArray, rewards: FloatArray) -> list[F]:
        """An episode's frames from its states [T + 1, S] and rewards [T, N]; a common reward [T, 1]
        is shown for everybody."""
        n_agents = self.spec.n_agents
        return whole_episode(states, rewards, n_agents=n_agents, frame_of=self._frame_of)

    def render(self, copy: int = 0) -> NDArray[np.uint8]:
        """An RGB picture of one copy."""
        return self.scene.to_rgb(self.frame(copy))

    def draw_episode(self, stem: Path, states: FloatArray, rewards: FloatArray) -> list[Path]:
        """Write an episode, states [T + 1, S] and rewards [T, N], as moving SVG and GIF."""
        frames = self.frames(states, rewards)
        svg, gif = stem.with_suffix(".svg"), stem.with_suffix(".gif")
        svg.write_text(self.scene.to_animated_svg(frames), encoding="utf-8")
        self.scene.write_gif(gif, frames)
        return [svg, gif]

    def set_layout(
        self,
        copy: int,
        *,
        agent_pos: Sequence[Sequence[float]],
        agent_vel: Sequence[Sequence[float]] | None = None,
        step: int = 0,
        **things: Sequence[Sequence[float]],
    ) -> Observation:
        """Put one copy into a given situation: (x, y) of every agent by seat and, under the
        game's name for them, of every thing; agents rest unless velocities are given."""
        self._require_reset()
        n, limit, kind = self.spec.n_agents, self.spec.episode_limit, self.things
        if unknown := things.keys() - {kind}:
            raise TypeError(f"{self.spec.name} has {kind}, and no {', '.join(sorted(unknown))}.")
        beside = checked_points(kind, things.get(kind, ()), len(self._spread) - n)
        place = np.concatenate([checked_points("agent_pos", agent_pos, n), beside])
        still = [(0.0, 0.0)] * n if agent_vel is None else agent_vel
        velocity = checked_points("agent_vel", still, n)
        if not 0 <= step < limit:
            raise OmgError(f"`step` is {step}. Choose one from 0 to {limit - 1}.")
        at = self._all[[copy]]
        self._clear(at)
        self._steps[at] = step
        self._particles.put(at, place[:, :, None], velocity[:, :, None])
        self._particles.measure()
        return self.observe()

    def _avail(self, n_copies: int) -> BoolArray:
        return np.ones((n_copies, self.spec.n_agents, N_ACTIONS), np.bool_)

    def _clear(self, copies: IntArray) -> None:
        self._steps[copies] = 0
        self._score[:, copies] = 0.0
        for name, count in self._counters.items():
            count[copies] = self._start[name]

    def _begin(self, copies: IntArray) -> None:
        """Start the next episode of some copies, everybody at rest."""
        self._episode[copies] += 1
        self._clear(copies)
        keys = episode_keys(self._keys[copies], self._episode[copies])
        self._particles.put(copies, self._draw_places(keys), np.zeros((1, 1, 1)))
        self._particles.measure()

    def _draw_places(self, keys: Keys) -> Doubles:
        """Uniform places [bodies, 2, E] for each episode key."""
        bodies = len(self._spread)
        words = draw_words(keys, 2 * bodies).T
        unit = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        places: Doubles = (2.0 * unit - 1.0).reshape(bodies, 2, -1) * self._spread
        return places


def agent_columns(n_agents: int) -> tuple[tuple[int, ...], ...]:
    """The columns of the state that describe each agent: x, y and velocity."""
    return tuple(tuple(range(4 * seat, 4 * seat + 4)) for seat in range(n_agents))


def checked_points(what: str, points: Sequence[Sequence[float]], count: int) -> Doubles:
    """Points [count, 2], checked."""
    found = np.asarray(points, np.float64)
    found = found.reshape(0, 2) if found.size == 0 else found
    if found.shape != (count, 2):
        raise OmgError(f"`{what}` has shape {found.shape}. Give (x, y) for each of {count}.")
    if not np.isfinite(found).all():
        raise OmgError(f"`{what}` holds NaN or infinity. Give finite numbers.")
    return found
