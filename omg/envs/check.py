"""Does an environment keep the contract of `BatchedEnv`? For ours and for users' own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from omg.envs.check_leavers import goals, leavers
from omg.envs.check_play import COPIES, Subject, View, difference, ended, play, require, steps_of
from omg.envs.contract import MultiAgentEnv
from omg.envs.vector import BatchedEnvFactory, SerialVectorEnv
from omg.types import TimeStep

# Longest wait for an episode limit, as a multiple of the steps asked for.
PATIENCE = 10


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report. A `detail` that begins with "warning" is worth a look."""

    name: str
    ok: bool
    detail: str


def check_batched_env(
    factory: BatchedEnvFactory, *, steps: int = 200, seed: int = 0
) -> list[CheckResult]:
    """Run every check on fresh environments from `factory(n_copies=..., first_copy=...)`."""
    subject = Subject(factory=factory, steps=steps, seed=seed)
    return [_run(name, check, subject) for name, check in CHECKS.items()]


def check_multi_agent_env(
    factory: Callable[[int], MultiAgentEnv], *, steps: int = 200, seed: int = 0
) -> list[CheckResult]:
    """The same for a PyMARL-style environment, from `factory(copy)`."""
    return check_batched_env(partial(SerialVectorEnv, factory=factory), steps=steps, seed=seed)


def _run(name: str, check: Callable[[Subject], str], subject: Subject) -> CheckResult:
    try:
        return CheckResult(name, True, check(subject))
    except AssertionError as error:
        return CheckResult(name, False, str(error))
    except Exception as error:
        return CheckResult(name, False, f"It raised {type(error).__name__}: {error}")


def _shapes_and_dtypes(subject: Subject) -> str:
    with subject.env() as env:
        spec = env.spec
        require(env.n_copies == COPIES, f"{COPIES} copies were asked for, it has {env.n_copies}.")
        obs, avail = (spec.n_agents, spec.obs_dim), (spec.n_agents, spec.n_actions)
    views = subject.trace()
    for at, view in enumerate(views):
        _fits(f"obs at step {at}", view.obs, shape=(COPIES, *obs), dtype="float32")
        _fits(f"state at step {at}", view.state, shape=(COPIES, spec.state_dim), dtype="float32")
        _fits(f"avail at step {at}", view.avail, shape=(COPIES, *avail), dtype="bool")
    for at, step in steps_of(views):
        _fits(f"reward at step {at}", step.reward, shape=(COPIES, obs[0]), dtype="float32")
        _fits(f"terminated at step {at}", step.terminated, shape=(COPIES,), dtype="bool")
        _fits(f"truncated at step {at}", step.truncated, shape=(COPIES,), dtype="bool")
        same = (step.reward == step.reward[:, :1]).all()
        require(same or not spec.shared_reward, f"A shared reward differs at step {at}.")
    return f"{spec.n_agents} agents, {spec.n_actions} actions, obs {obs[1]}, state {spec.state_dim}"


def _fits(what: str, array: Any, *, shape: Sequence[int], dtype: str) -> None:
    got = f"{getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}"
    wanted = f"{dtype} {tuple(shape)}"
    require(isinstance(array, np.ndarray) and got == wanted, f"{what} is {got}, not {wanted}.")


def _finite_values(subject: Subject) -> str:
    for at, view in enumerate(subject.trace()):
        arrays = {"obs": view.obs, "state": view.state}
        if isinstance(view, TimeStep):
            arrays["reward"] = view.reward
            if view.final is not None:
                arrays |= {"final obs": view.final.obs, "final state": view.final.state}
        for what, array in arrays.items():
            require(np.isfinite(array).all(), f"{what} holds NaN or infinity at step {at}.")
    return "no NaN, no infinity"


def _storage_dtypes(subject: Subject) -> str:
    with subject.env() as env:
        spec = env.spec
    for at, view in enumerate(subject.trace()):
        final = view.final if isinstance(view, TimeStep) else None
        for part in (view, final) if final is not None else (view,):
            for what, array, dtype in (
                ("obs", part.obs, spec.obs_dtype),
                ("state", part.state, spec.state_dtype),
            ):
                with np.errstate(invalid="ignore", over="ignore"):
                    kept = array.astype(dtype).astype(array.dtype)
                require(
                    np.array_equal(kept, array),
                    f"{what} at step {at} does not survive storage as {dtype}, which the spec "
                    "announces.",
                )
    return f"obs as {spec.obs_dtype}, state as {spec.state_dtype}"


def _seats(subject: Subject) -> str:
    with subject.env() as env:
        spec = env.spec
    for what, per_seat in (("roles", spec.roles), ("obs_dims", spec.obs_dims)):
        require(
            len(per_seat) in (0, spec.n_agents),
            f"{what} has {len(per_seat)} entries for {spec.n_agents} agents.",
        )
    require(not spec.opposed or len(set(spec.roles)) > 1, "opposed needs roles that are opponents.")
    features = spec.agent_features
    require(
        len(features) in (0, spec.n_agents) and len({len(columns) for columns in features}) < 2,
        f"agent_features must list as many columns for each of {spec.n_agents} agents.",
    )
    strange = [c for columns in features for c in columns if not 0 <= c < spec.state_dim]
    require(not strange, f"agent_features names column {(strange or [0])[0]} of no state.")
    unknown = [a for a in spec.event_actions if not 0 <= a < spec.n_actions]
    require(not unknown, f"event_actions names {(unknown or [0])[0]}, which is no action.")
    for at, view in enumerate(subject.trace()):
        for seat, width in enumerate(spec.obs_dims):
            require(
                not view.obs[:, seat, width:].any(),
                f"Seat {seat} has {width} features by obs_dims, but more of them are not zero at "
                f"step {at}.",
            )
    roles = ", ".join(f"{spec.roles.count(role)} {role}" for role in dict.fromkeys(spec.roles))
    return roles or "all seats alike"


def _available_actions(subject: Subject) -> str:
    views = subject.trace()
    for at, view in enumerate(views):
        empty = np.argwhere(~view.avail.any(axis=-1))
        if empty.size:
            copy, agent = empty[0]
            require(False, f"Agent {agent} of copy {copy} has no available action at step {at}.")
    return f"random available actions were accepted for {len(views) - 1} steps"


def _ends(subject: Subject) -> str:
    count = 0
    for at, step in steps_of(subject.trace()):
        both = np.flatnonzero(step.terminated & step.truncated).tolist()
        require(not both, f"Copies {both} are both terminated and truncated at step {at}.")
        lost = np.intersect1d(step.dropped, np.flatnonzero(ended(step))).tolist()
        require(not lost, f"Copies {lost} are both dropped and ended at step {at}.")
        count += int(ended(step).sum())
    return f"{count} ends" if count else f"warning: nothing ended in {subject.steps} steps"


def _final_observations(subject: Subject) -> str:
    count = 0
    for at, step in steps_of(subject.trace()):
        copies = np.flatnonzero(ended(step)).tolist()
        got = None if step.final is None else step.final.copies.tolist()
        require(
            got == (copies or None),
            f"Copies {copies} ended at step {at}, a final observation is given for {got or []}.",
        )
        count += len(copies)
        for what in ("obs", "state", "avail") if copies else ():
            array, now = getattr(step.final, what), getattr(step, what)
            shape = (len(copies), *now.shape[1:])
            _fits(f"final {what} at step {at}", array, shape=shape, dtype=str(now.dtype))
    return f"given for {count} ends" if count else "warning: nothing ended"


def _episode_limit(subject: Subject) -> str:
    with subject.env() as env:
        limit = env.spec.episode_limit
        require(limit > 0, f"episode_limit is {limit}.")
        budget = max(subject.steps, min(limit + 1, PATIENCE * subject.steps))
        views = play(env, env.reset(subject.seed), player=subject.player(env), steps=budget)
    length = np.zeros(COPIES, np.int64)
    cut = reached = 0
    for _, step in steps_of(views):
        length += 1
        at_limit = ended(step) & (length == limit)
        reached += int(at_limit.sum())
        cut += int((at_limit & step.truncated).sum())
        length[ended(step)] = 0
        length[step.dropped] = 0
        require(length.max() < limit, f"An episode goes on after its limit of {limit} steps.")
    require(
        cut > 0 or reached == 0,
        f"{reached} episodes reached the limit of {limit} steps and none was truncated. Report "
        "such ends as truncated; if the game ends there by its own rules, raise episode_limit.",
    )
    return f"{cut} episodes cut" if cut else f"warning: no episode reached the limit of {limit}"


def _same_seed(subject: Subject) -> str:
    first = subject.trace()
    where = difference(first, subject.trace())
    require(not where, f"Two runs with one seed differ: {where}.")
    with subject.env() as env:
        play(env, env.reset(subject.seed + 1), player=subject.player(env), steps=5)
        again = play(env, env.reset(subject.seed), player=subject.player(env), steps=subject.steps)
    where = difference(first, again)
    require(not where, f"A second reset with the same seed gives another run: {where}.")
    return "two runs are equal"


def _other_seed(subject: Subject) -> str:
    with subject.env() as env:
        other = play(
            env, env.reset(subject.seed + 1), player=subject.player(env), steps=subject.steps
        )
    where = difference(subject.trace(), other)
    return f"first {where}" if where else "warning: the seed makes no difference"


def _independent_copies(subject: Subject) -> str:
    with subject.env() as env:
        player = subject.player(env)
        player.change_mind(1)
        other = play(env, env.reset(subject.seed), player=player, steps=subject.steps)
    where = difference(subject.trace(), other, copies=[(0, 0), (2, 2)])
    require(not where, f"Other actions in copy 1 change {where}.")
    if difference(subject.trace(), subject.trace(), copies=[(0, 1)]) == "":
        return "warning: two copies played the same episodes; does the game take a seed?"
    return "copies do not influence each other"


def _split_copies(subject: Subject) -> str:
    whole = subject.trace(4)
    for first_copy in (0, 2):
        part = subject.trace(2, first_copy)
        where = difference(whole, part, copies=[(first_copy, 0), (first_copy + 1, 1)])
        require(not where, f"Copies made with first_copy={first_copy} differ: {where}.")
    return "copies 0-3 equal 0-1 and 2-3"


def _restarts(subject: Subject) -> str:
    with subject.env() as env:
        env.reset(subject.seed)
        expected = env.restart()
        first = env.reset(subject.seed)
        views = play(env, first, player=subject.player(env), steps=1)
        if isinstance(views[-1], TimeStep) and ended(views[-1]).any():
            return "warning: an episode ended after one step, so this was not tried"
        where = difference([expected], [env.restart()])
    require(not where, f"The episode after restart() depends on the one before: {where}.")
    return "restart() begins the next episode"


def _snapshots(subject: Subject) -> str:
    with subject.env() as env, subject.env() as twin:
        player = subject.player(env)
        before: View = env.reset(subject.seed)
        if env.exact_snapshots:
            before = play(env, before, player=player, steps=subject.steps // 2 + 1)[-1]
        else:
            before = env.restart()
        snapshot = {key: np.array(array) for key, array in env.snapshot().items()}
        bad = [key for key, array in snapshot.items() if array.dtype == object]
        require(not bad, f"The snapshot holds objects instead of numbers in {bad}.")
        same_player = copy.deepcopy(player)
        expected = play(env, before, player=player, steps=subject.steps)
        restored = play(twin, twin.restore(snapshot), player=same_player, steps=subject.steps)
    where = difference(expected, restored)
    require(not where, f"A restored environment goes on differently: {where}.")
    return "exact in mid-episode" if env.exact_snapshots else "exact from an episode's start"


def _unmodified_arrays(subject: Subject) -> str:
    with subject.env() as env:
        player = subject.player(env)
        handed_out: list[View] = [env.reset(subject.seed)]
        copies = copy.deepcopy(handed_out)
        for _ in range(min(subject.steps, 100)):
            actions = player.act(copies[-1].avail)
            given = actions.copy()
            handed_out.append(env.step(actions))
            copies.append(copy.deepcopy(handed_out[-1]))
            require(np.array_equal(actions, given), "step() writes into the actions it is given.")
    where = difference(copies, handed_out)
    require(not where, f"An array changes after it was handed out: {where}.")
    return "arrays keep their values"


def _statistics(subject: Subject) -> str:
    with subject.env() as env:
        names = env.spec.statistics
    for at, step in steps_of(subject.trace()):
        for name in names if ended(step).any() else ():
            require(name in step.info, f"Statistic '{name}' is missing at the end in step {at}.")
            _fits(f"statistic '{name}'", step.info[name], shape=(COPIES,), dtype="float32")
            finite = np.isfinite(step.info[name][ended(step)]).all()
            require(finite, f"Statistic '{name}' has no value at the end in step {at}.")
    return ", ".join(names) or "none"


CHECKS: dict[str, Callable[[Subject], str]] = {
    "shapes and dtypes": _shapes_and_dtypes,
    "finite values": _finite_values,
    "storage dtypes": _storage_dtypes,
    "seats": _seats,
    "available actions": _available_actions,
    "leavers": leavers,
    "goals": goals,
    "terminated or truncated": _ends,
    "final observations": _final_observations,
    "episode limit": _episode_limit,
    "same seed": _same_seed,
    "other seed": _other_seed,
    "independent copies": _independent_copies,
    "split copies": _split_copies,
    "restart": _restarts,
    "snapshot": _snapshots,
    "unmodified arrays": _unmodified_arrays,
    "statistics": _statistics,
}
