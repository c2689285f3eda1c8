"""Battles in NumPy: how episodes begin, what a step does and pays. The C kernel does the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omg.envs.battle.field import Field, Outcome, Seen
from omg.envs.battle.maps import STAY
from omg.envs.battle.rules import MOVES, Rules
from omg.envs.battle.sight import Sight
from omg.envs.battle.ticks import Fight
from omg.envs.battle.units import HEAL
from omg.envs.contract import Keys, draw_words, episode_keys
from omg.envs.sc2.args import PLAIN_ACTIONS
from omg.types import BoolArray, FloatArray, IntArray

f32 = np.float32
JITTER = f32(0.5)


class ReferenceBattles:
    """All copies, stepped together."""

    def __init__(self, rules: Rules, n_copies: int) -> None:
        self.rules, self.field = rules, Field(rules, n_copies)
        self.fight, self.sight = Fight(rules, self.field), Sight(rules, self.field)
        self.steps = np.zeros(n_copies, np.int64)
        self.episodes = np.zeros(n_copies, np.int64)
        self.keys = np.zeros(n_copies, np.uint64)

    def begin(self, copies: IntArray) -> None:
        """Start the next episode of some copies."""
        self.episodes[copies] += 1
        self.steps[copies] = 0
        keys = episode_keys(self.keys[copies], self.episodes[copies])
        self._place(copies, keys)
        rules, field = self.rules, self.field
        field.health[copies], field.shield[copies] = rules.full_health, rules.full_shield
        field.energy[copies] = rules.start_energy
        for name in ("cooldown", "peace", "burst", "moving", "ticks"):
            getattr(field, name)[copies] = 0
        for name in ("goal_x", "goal_y", "press_x", "press_y"):
            getattr(field, name)[copies] = 0
        field.target[copies] = -1
        field.last[copies] = -1

    def _place(self, copies: IntArray, keys: Keys) -> None:
        """Units around their places in the formation; ours are numbered by kind, x and y."""
        rules, field = self.rules, self.field
        words = draw_words(keys, 3 * rules.n_units).reshape(len(keys), rules.n_units, 3)
        shift = (words[..., :2] >> np.uint64(40)).astype(f32) * f32(2.0**-24) - JITTER
        place = rules.place + shift
        cells = np.clip(place, 0, 31).astype(np.int32)
        ground = (rules.grid[cells[..., 0], cells[..., 1]] & 1) != 0
        place = np.where(ground[..., None], place, rules.place)
        names = rules.map.allies
        for first in [i for i in range(len(names)) if i == 0 or names[i] != names[i - 1]]:
            block = slice(first, first + names.count(names[first]))
            order = np.lexsort((place[:, block, 1], place[:, block, 0]))
            place[:, block] = np.take_along_axis(place[:, block], order[..., None], 1)
        field.x[copies], field.y[copies] = place[..., 0], place[..., 1]
        field.dice[copies] = (words[..., 2] >> np.uint64(32)).astype(np.uint32) | np.uint32(1)

    def view(self, copies: IntArray | None = None) -> Seen:
        """What agents see and may do."""
        return self.sight.view(self.steps, copies)

    def step(self, actions: IntArray) -> tuple[Outcome, Seen]:
        """One step of all copies; those that end begin their next episode."""
        rules, field = self.rules, self.field
        before = field.health + field.shield
        lived = field.health > 0
        self._order(actions)
        for _ in range(rules.args.step_mul):
            self.fight.tick()
        self.steps += 1
        outcome = self._judge(before, lived)
        ended = (outcome.terminated | outcome.truncated).nonzero()[0]
        if ended.size:
            outcome = replace(outcome, final=self.view(ended))
            self.begin(ended)
        return outcome, self.view()

    def _order(self, actions: IntArray) -> None:
        """What the actions tell the units; scripted ones walk on to where we began."""
        rules, field = self.rules, self.field
        field.last[:] = actions
        amount = f32(rules.args.move_amount)
        for seat in range(rules.n_seats):
            chosen, theirs = actions[:, seat], seat >= rules.n_allies
            attack = chosen >= PLAIN_ACTIONS
            heals = rules.weapon[seat] == HEAL
            own = rules.n_allies if theirs else 0
            other = 0 if theirs else rules.n_allies
            first = own if heals else other
            field.target[:, seat] = np.where(attack, chosen - PLAIN_ACTIONS + first, -1)
            field.moving[:, seat] = (chosen >= 2) & ~attack
            for number, (dx, dy) in enumerate(MOVES):
                going = chosen == 2 + (number ^ int(theirs))
                to_x = field.x[:, seat] + f32(dx) * amount
                to_y = field.y[:, seat] + f32(dy) * amount
                np.copyto(field.goal_x[:, seat], to_x, where=going)
                np.copyto(field.goal_y[:, seat], to_y, where=going)
        for unit in range(rules.n_seats, rules.n_units):
            if rules.weapon[unit] != HEAL:
                field.goal_x[:, unit], field.goal_y[:, unit] = rules.spawns[0]
                field.moving[:, unit] = rules.orders != STAY

    def _judge(self, before: FloatArray, lived: BoolArray) -> Outcome:
        """Who has won, and what each side earned."""
        rules, args, field = self.rules, self.rules.args, self.field
        alive = field.health > 0
        ours, theirs = alive[:, : rules.n_allies], alive[:, rules.n_allies :]
        fights = rules.weapon != HEAL
        can = [
            (side & fights[part]).any(1)
            for side, part in ((ours, slice(rules.n_allies)), (theirs, slice(rules.n_allies, None)))
        ]
        lost = ~can[0] & (ours.any(1) | theirs.any(1))
        won = ~can[1] & ~lost & ours.any(1)
        over = lost | won | ~(ours.any(1) | theirs.any(1))
        result = (won.astype(np.int8) - lost.astype(np.int8)).astype(np.int8)
        truncated = ~over & (self.steps >= rules.limit)
        reward = np.zeros((len(over), 2), f32)
        for side, (first, last) in enumerate(
            ((rules.n_allies, rules.n_units), (0, rules.n_allies))
        ):
            mine = (0, rules.n_allies) if side == 0 else (rules.n_allies, rules.n_units)
            sign = result if side == 0 else -result
            earned = self._earned(before, lived, alive, first, last, f32(1))
            if not args.reward_only_positive:
                share = f32(args.reward_negative_scale)
                earned = earned - self._earned(before, lived, alive, *mine, share)
            else:
                earned = np.maximum(earned, f32(0))
            if args.reward_sparse:
                earned = sign.astype(f32)
            else:
                bonus = np.where(sign > 0, f32(args.reward_win), f32(0))
                earned = earned + np.where(sign < 0, f32(args.reward_defeat), bonus)
            reward[:, side] = earned / rules.reward_divisor[side]
        dead = np.stack([(~ours).sum(1), (~theirs).sum(1)], 1).astype(np.int64)
        return Outcome(
            reward=reward, terminated=over, truncated=truncated, won=result, dead=dead, final=None
        )

    def _earned(
        self,
        before: FloatArray,
        lived: BoolArray,
        alive: BoolArray,
        first: int,
        last: int,
        share: np.float32,
    ) -> FloatArray:
        """Health and shields that units lost in this step, less what they recovered, and their
        deaths."""
        field, death = self.field, f32(self.rules.args.reward_death_value)
        total = np.zeros(len(before), f32)
        for unit in range(first, last):
            now = field.health[:, unit] + field.shield[:, unit]
            loss = (before[:, unit] - now) * share
            dies = lived[:, unit] & ~alive[:, unit]
            total = total + np.where(dies, loss + death * share, loss)
        return total

    def close(self) -> None:
        """There is nothing to free."""
