"""JaxMARL's SMAX, battles in JAX, as a batch of copies: for comparisons with published results."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxmarl.environments.smax import HeuristicEnemySMAX, map_name_to_scenario
from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO
from pydantic import Field

from omg.envs.contract import GameArguments, NativeEnv, episode_keys
from omg.registry import nearest
from omg.types import (
    EnvSpec,
    FinalObservation,
    IntArray,
    Observation,
    OmgError,
    Snapshot,
    TimeStep,
)

STATISTICS = ("battle_won", "dead_allies", "dead_enemies", "timeouts")


class SmaxArgs(GameArguments):
    """A map of SMAX, and those of its settings that published results vary."""

    game = "SMAX"

    map_name: str = "3m"
    max_steps: int = Field(100, ge=1, le=2**31)
    see_enemy_actions: bool = True
    walls_cause_death: bool = True
    attack_mode: Literal["closest", "random"] = "closest"


class Battles:
    """SMAX's functions for a batch of copies, compiled when they are first called."""

    def __init__(self, args: SmaxArgs) -> None:
        self.game = game = HeuristicEnemySMAX(
            scenario=map_name_to_scenario(args.map_name),
            max_steps=2**30,  # the environment keeps the limit
            see_enemy_actions=args.see_enemy_actions,
            walls_cause_death=args.walls_cause_death,
            attack_mode=args.attack_mode,
        )
        self.start = jax.jit(jax.vmap(lambda key: game.reset(key)[1]))
        self.view = jax.jit(jax.vmap(self._seen))
        self.advance = jax.jit(jax.vmap(self._stepped))

    def _seen(self, state: Any) -> tuple[Any, Any, Any]:
        game = self.game
        obs, avail = game.get_obs(state), game.get_avail_actions(state)
        return (
            jnp.stack([obs[agent] for agent in game.agents]),
            game.get_world_state(state),
            jnp.stack([avail[agent] for agent in game.agents]) > 0,
        )

    def _stepped(self, state: Any, actions: Any, key: Any, step: Any) -> tuple[Any, ...]:
        game = self.game
        chosen = {agent: actions[seat] for seat, agent in enumerate(game.agents)}
        _, state, rewards, _, _ = game.step_env(jax.random.fold_in(key, step), state, chosen)
        alive = state.state.unit_alive
        left = alive[: game.num_allies].sum(), alive[game.num_allies :].sum()
        reward = jnp.stack([rewards[agent] for agent in game.agents])
        return state, reward.astype(jnp.float32), left[0], left[1], self._seen(state)


@lru_cache(maxsize=8)
def compiled_battles(args: SmaxArgs) -> Battles:
    """The same functions for all environments of equal arguments: compiling takes long."""
    return Battles(args)


class SmaxEnv(NativeEnv):
    """Our units against SMAX's heuristic enemy. An episode ends when a side is dead, or is
    truncated after `max_steps`. Episodes follow from (seed, copy, episode) as everywhere."""

    def __init__(
        self, *, args: SmaxArgs | Mapping[str, Any], n_copies: int, first_copy: int = 0
    ) -> None:
        self.args = args = SmaxArgs.parse(args)
        if args.map_name not in MAP_NAME_TO_SCENARIO:
            raise OmgError(
                f"SMAX has no map '{args.map_name}'"
                f"{nearest(args.map_name, MAP_NAME_TO_SCENARIO) or '.'} Choose one of: "
                f"{', '.join(MAP_NAME_TO_SCENARIO)}."
            )
        self._battles = battles = compiled_battles(args)
        self._game = game = battles.game
        spec = EnvSpec(
            name=f"smax-{args.map_name}",
            n_agents=game.num_allies,
            n_actions=game.num_ally_actions,
            obs_dim=game.obs_size,
            state_dim=game.state_size,
            episode_limit=args.max_steps,
            shared_reward=True,
            statistics=STATISTICS,
        )
        super().__init__(spec=spec, n_copies=n_copies, first_copy=first_copy)
        self._state: Any = None

    def _keys_of(self, copies: IntArray) -> Any:
        """JAX's keys of the running episodes, [E, 2]."""
        words = episode_keys(self._keys[copies], self._episode[copies])
        halves = [words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)]
        return jnp.asarray(np.stack(halves, 1).astype(np.uint32))

    def observe(self) -> Observation:
        """What the agents see now."""
        return Observation(*(np.asarray(part) for part in self._battles.view(self._state)))

    def _begin(self, copies: IntArray) -> None:
        self._episode[copies] += 1
        self._steps[copies] = 0
        fresh = self._battles.start(self._keys_of(self._all))
        if self._state is None or len(copies) == self.n_copies:
            self._state = fresh
            return
        new = jnp.zeros(self.n_copies, bool).at[copies].set(True)

        def merged(old: Any, other: Any) -> Any:
            return jnp.where(new.reshape(-1, *[1] * (old.ndim - 1)), other, old)

        self._state = jax.tree.map(merged, self._state, fresh)

    def step(self, actions: IntArray) -> TimeStep:
        """Fight for a step, and restart the copies that end."""
        self._require_reset()
        chosen = jnp.asarray(self._checked_actions(actions))
        self._state, reward, ours, theirs, seen = self._battles.advance(
            self._state, chosen, self._keys_of(self._all), jnp.asarray(self._steps)
        )
        self._steps += 1
        left = np.asarray(ours), np.asarray(theirs)
        terminated = (left[0] == 0) | (left[1] == 0)
        truncated = (self._steps >= self.spec.episode_limit) & ~terminated
        view = Observation(*(np.asarray(part) for part in seen))
        final = None
        ended = (terminated | truncated).nonzero()[0]
        if ended.size:
            parts = (view.obs[ended], view.state[ended], view.avail[ended])
            final = FinalObservation(ended, *parts)
            self._begin(ended)
            view = self.observe()
        game = self._game
        return TimeStep(
            obs=view.obs,
            state=view.state,
            avail=view.avail,
            reward=np.asarray(reward),
            terminated=terminated,
            truncated=truncated,
            final=final,
            info={
                "battle_won": ((left[1] == 0) & (left[0] > 0)).astype(np.float32),
                "dead_allies": (game.num_allies - left[0]).astype(np.float32),
                "dead_enemies": (game.num_enemies - left[1]).astype(np.float32),
                "timeouts": truncated.astype(np.float32),
            },
        )

    def snapshot(self) -> Snapshot:
        """Counters, and the leaves of SMAX's state."""
        leaves = jax.tree.leaves(self._state)
        return {
            "seed": np.array(self._require_reset(), np.uint64),
            "episode": self._episode.copy(),
            "steps": self._steps.copy(),
            **{f"leaf_{number}": np.array(leaf) for number, leaf in enumerate(leaves)},
        }

    def restore(self, snapshot: Snapshot) -> Observation:
        """Continue bit for bit where the snapshot was taken."""
        self.reset(int(snapshot["seed"]))
        leaves, kind = jax.tree.flatten(self._state)
        found = [snapshot.get(f"leaf_{number}") for number in range(len(leaves))]
        fits = [
            there is not None and there.shape == leaf.shape
            for there, leaf in zip(found, leaves, strict=True)
        ]
        if not all(fits):
            raise self._snapshot_refused()
        self._episode[:] = snapshot["episode"]
        self._steps[:] = snapshot["steps"]
        self._state = jax.tree.unflatten(kind, [jnp.asarray(leaf) for leaf in found])
        return self.observe()
