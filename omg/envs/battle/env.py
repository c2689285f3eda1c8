"""Battles between two small armies, many copies at once: SMAC's maps, actions, observations, state,
masks and reward, without StarCraft II."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from omg.envs.battle.args import BattleArgs
from omg.envs.battle.field import Outcome, Seen
from omg.envs.battle.frames import BattleFrame, frames_of
from omg.envs.battle.kernel import KernelBattles, battle_kernel
from omg.envs.battle.maps import BATTLES, SIDE
from omg.envs.battle.reference import ReferenceBattles
from omg.envs.battle.render import BattlePictures
from omg.envs.battle.rules import MOVES, SHOOT_RANGE, Rules
from omg.envs.battle.units import HEAL
from omg.envs.contract import NativeEnv
from omg.envs.sc2.args import PLAIN_ACTIONS
from omg.types import (
    FinalObservation,
    FloatArray,
    IntArray,
    Observation,
    OmgError,
    Snapshot,
    TimeStep,
)

NOOP, STOP = 0, 1
DIRECTIONS = ("north", "south", "east", "west")


class BattleEnv(NativeEnv):
    """Our units against theirs, which are scripted or, with `enemies: seats`, agents as well."""

    maps: ClassVar[tuple[str, ...]] = tuple(BATTLES)

    def __init__(
        self,
        *,
        args: BattleArgs | Mapping[str, Any],
        n_copies: int,
        first_copy: int = 0,
    ) -> None:
        self.args = BattleArgs.parse(args)
        self.rules = rules = Rules(self.args)
        super().__init__(spec=rules.spec(), n_copies=n_copies, first_copy=first_copy)
        kernel, _ = battle_kernel()
        self._battles: KernelBattles | ReferenceBattles
        if kernel is None:
            self._battles = ReferenceBattles(rules, n_copies)
        else:
            self._battles = KernelBattles(kernel, rules, n_copies)
        self.pictures = BattlePictures(rules)
        # The counters are the simulator's.
        self._steps, self._episode = self._battles.steps, self._battles.episodes
        self._avail = np.zeros((n_copies, rules.n_seats, rules.n_actions), np.bool_)
        self._kind = crc32(self.args.name.encode())
        self._sides = np.array([int(seat >= rules.n_allies) for seat in range(rules.n_seats)])

    @property
    def field(self) -> Any:
        """The battles as arrays: places, health, cooldowns …"""
        return self._battles.field

    def observe(self) -> Observation:
        """What the agents see now."""
        return self._shown(self._battles.view())

    def _shown(self, seen: Seen) -> Observation:
        self._avail = seen.avail
        return Observation(seen.obs, seen.state, seen.avail)

    def step(self, actions: IntArray) -> TimeStep:
        """Fight for `step_mul` ticks, and restart the copies that end."""
        self._require_reset()
        chosen = self._possible(self._checked_actions(actions))
        outcome, seen = self._battles.step(chosen)
        ended = (outcome.terminated | outcome.truncated).nonzero()[0]
        final = None
        if outcome.final is not None:
            last = outcome.final
            final = FinalObservation(ended, last.obs, last.state, last.avail)
        self._avail = seen.avail
        return TimeStep(
            obs=seen.obs,
            state=seen.state,
            avail=seen.avail,
            reward=np.ascontiguousarray(outcome.reward[:, self._sides]),
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            final=final,
            info=_statistics(outcome),
        )

    def _possible(self, actions: IntArray) -> IntArray:
        """The actions, all available: another is refused, or becomes nothing at all."""
        able = np.take_along_axis(self._avail, actions[..., None], 2)[..., 0]
        if able.all():
            return actions
        if self.args.unavailable == "error":
            copy, seat = (int(index) for index in np.argwhere(~able)[0])
            raise self._refusal(copy, seat, int(actions[copy, seat]))
        idle = np.where(self._avail[..., NOOP], NOOP, STOP)
        return np.where(able, actions, idle)

    def _refusal(self, copy: int, seat: int, action: int) -> OmgError:
        return OmgError(
            f"Agent {seat} cannot take action {action} at step {int(self._steps[copy])} of copy "
            f"{copy}: {self._reason(copy, seat, action)}. Choose among the available actions, or "
            "set env_args.unavailable=noop."
        )

    def _reason(self, copy: int, seat: int, action: int) -> str:
        """Why an action is not available."""
        field, rules = self.field, self.rules
        if not field.health[copy, seat] > 0:
            return "it is dead and can only do nothing (action 0)"
        if action == NOOP:
            return "doing nothing (action 0) is for the dead; to wait, stop (action 1)"
        if action < PLAIN_ACTIONS:
            theirs = seat >= rules.n_allies
            way = DIRECTIONS[(action - 2) ^ int(theirs)]
            return f"there is no ground to the {way} of it"
        heals, theirs = rules.weapon[seat] == HEAL, seat >= rules.n_allies
        start = rules.n_allies if theirs == heals else 0
        number = action - PLAIN_ACTIONS
        count = rules.n_enemies if start else rules.n_allies
        whom = f"{'ally' if heals else 'enemy'} {number}"
        if number >= count:
            return f"there is no {whom}"
        unit = start + number
        if not field.health[copy, unit] > 0:
            return f"{whom} is dead"
        if heals and rules.weapon[unit] == HEAL:
            return f"{whom} cannot be healed"
        gap = float(
            np.hypot(
                field.x[copy, unit] - field.x[copy, seat], field.y[copy, unit] - field.y[copy, seat]
            )
        )
        return f"{whom} is {gap:.2f} away, more than {SHOOT_RANGE:g}"

    def snapshot(self) -> Snapshot:
        """Counters and the running battles; those to come follow from the counters."""
        return {
            "seed": np.array(self._require_reset(), np.uint64),
            "battle": np.array(self._kind, np.int64),
            "episode": self._episode.copy(),
            "steps": self._steps.copy(),
            **self.field.snapshot(),
        }

    def restore(self, snapshot: Snapshot) -> Observation:
        """Continue bit for bit where the snapshot was taken."""
        # Some maps have as many units as others.
        same = int(snapshot.get("battle", np.array(self._kind))) == self._kind
        if not (same and self.field.fits(snapshot)):
            raise self._snapshot_refused()
        self._set_seed(int(snapshot["seed"]))
        self._episode[:] = snapshot["episode"]
        self._steps[:] = snapshot["steps"]
        self.field.restore(snapshot)
        return self.observe()

    def set_layout(
        self,
        copy: int,
        *,
        places: Sequence[Sequence[float]],
        health: Sequence[float] | None = None,
        shield: Sequence[float] | None = None,
        cooldown: Sequence[int] | None = None,
        step: int = 0,
    ) -> Observation:
        """Put one copy into a given situation: (x, y) of every unit, ours first; health (0: dead)
        and shields are full, weapons ready, unless they are given."""
        self._require_reset()
        rules, field = self.rules, self.field
        if copy not in range(self.n_copies):
            raise OmgError(f"`copy` is {copy}. Choose one from 0 to {self.n_copies - 1}.")
        if step not in range(rules.limit):
            raise OmgError(f"`step` is {step}. Choose one from 0 to {rules.limit - 1}.")
        found = _numbers(places)
        if found.shape != (rules.n_units, 2) or not ((found >= 0) & (found < SIDE)).all():
            raise OmgError(
                f"`places` must be (x, y) from 0 to {SIDE} for each of {rules.n_units} units."
            )
        values = {
            "health": self._within("health", health, rules.full_health),
            "shield": self._within("shield", shield, rules.full_shield),
            "cooldown": self._within("cooldown", cooldown, rules.full_cooldown + 2, start=0),
        }
        for name, array in values.items():
            getattr(field, name)[copy] = array
        field.x[copy], field.y[copy] = found.T
        field.shield[copy][field.health[copy] <= 0] = 0
        field.target[copy], field.last[copy] = -1, -1
        for name in ("peace", "burst", "moving", "press_x", "press_y", "ticks"):
            getattr(field, name)[copy] = 0
        self._steps[copy] = step
        return self.observe()

    def _within(
        self, name: str, given: Sequence[float] | None, most: NDArray[Any], *, start: float = 1
    ) -> FloatArray:
        """A number for each unit from 0 to the most it can have; `start` times that, if none are
        given."""
        found = _numbers(most * start if given is None else given)
        if found.shape != most.shape:
            raise OmgError(f"`{name}` must have a number for each of {len(most)} units.")
        wrong = (~((found >= 0) & (found <= most))).nonzero()[0]
        if wrong.size:
            unit = int(wrong[0])
            raise OmgError(
                f"`{name}` of unit {unit} is {found[unit]:g}. Choose from 0 to {most[unit]:g}."
            )
        return found

    def frame(self, copy: int = 0) -> BattleFrame:
        """The situation of one copy, for pictures."""
        state = self._battles.view(np.array([copy])).state
        nothing = np.zeros((0, 1), np.float32)
        return frames_of(self.rules, state, nothing, first_step=int(self._steps[copy]))[0]

    def frames(self, states: FloatArray, rewards: FloatArray) -> list[BattleFrame]:
        """An episode's frames from its states [T + 1, S] and rewards [T, N] or [T, 1]."""
        return frames_of(self.rules, states, rewards)

    def render(self, copy: int = 0) -> NDArray[np.uint8]:
        """An RGB picture of one copy."""
        return self.pictures.to_rgb(self.frame(copy))

    def draw_episode(self, stem: Path, states: FloatArray, rewards: FloatArray) -> list[Path]:
        """Write an episode, states [T + 1, S] and rewards [T, N], as moving SVG and GIF."""
        frames = self.frames(states, rewards)
        pictures = BattlePictures(self.rules, frames)
        svg, gif = stem.with_suffix(".svg"), stem.with_suffix(".gif")
        svg.write_text(pictures.to_animated_svg(frames), encoding="utf-8")
        pictures.write_gif(gif, frames)
        return [svg, gif]

    def close(self) -> None:
        """End the simulator's threads."""
        self._battles.close()

    def _set_seed(self, seed: int) -> None:
        super()._set_seed(seed)
        self._battles.keys[:] = self._keys

    def _begin(self, copies: IntArray) -> None:
        self._battles.begin(copies)


def _numbers(given: Any) -> FloatArray:
    """As an array; an empty one where they are no numbers."""
    try:
        return np.asarray(given, np.float32)
    except (TypeError, ValueError):
        return np.zeros(0, np.float32)


def _statistics(outcome: Outcome) -> dict[str, FloatArray]:
    """Of copies that ended; of others, as if they had."""
    return {
        "battle_won": (outcome.won > 0).astype(np.float32),
        "dead_allies": outcome.dead[:, 0].astype(np.float32),
        "dead_enemies": outcome.dead[:, 1].astype(np.float32),
        "timeouts": outcome.truncated.astype(np.float32),
    }


assert len(DIRECTIONS) == len(MOVES)
