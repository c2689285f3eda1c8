"""Contract checks of seats that leave an episode early, and of the goals that seats reach."""

from __future__ import annotations

import numpy as np

from omg.envs.check_play import COPIES, Subject, ended, require, steps_of
from omg.types import BoolArray, EnvSpec, FinalObservation, Observation, TimeStep


def leavers(subject: Subject) -> str:
    """An absent seat sees nothing, can only do action 0, earns nothing and does not come back."""
    with subject.env() as env:
        spec = env.spec
    views = subject.trace()
    require(
        spec.leavers or all(view.alive is None for view in views),
        "It says who is alive, but its spec has leavers=False. Say leavers=True.",
    )
    if not spec.leavers:
        return "everybody stays"
    before = _present(views[0], "at the start", spec)
    require(before.all(), "An agent is absent at the start of an episode.")
    left = 0
    for at, step in steps_of(views):
        paid = np.argwhere(~before & (step.reward != 0))
        require(not paid.size, f"An absent agent is rewarded at step {at}.")
        after = _present(step, f"at step {at}", spec)
        begun = ended(step)
        begun[step.dropped] = True
        require(after[begun].all(), f"An agent is absent at the start of an episode, step {at}.")
        if step.final is not None:
            last = _present(step.final, f"at the end in step {at}", spec)
            _stays_away(before[step.final.copies], last, at)
            left += int((before[step.final.copies] & ~last).sum())
        _stays_away(before[~begun], after[~begun], at)
        left += int((before & ~after)[~begun].sum())
        before = after
    return f"{left} left" if left else "warning: nobody left"


def _present(
    view: Observation | TimeStep | FinalObservation, when: str, spec: EnvSpec
) -> BoolArray:
    """Who acts, after a look at those who do not."""
    alive, shape = view.alive, view.obs.shape[:2]
    require(
        isinstance(alive, np.ndarray) and alive.dtype == np.bool_ and alive.shape == shape,
        f"The spec has leavers=True, so alive must be bool {shape} {when}.",
    )
    assert alive is not None
    require(not view.obs[~alive].any(), f"An absent agent observes something {when}.")
    only_first = np.arange(spec.n_actions) == 0
    require(
        (view.avail[~alive] == only_first).all(),
        f"An absent agent can do something other than action 0 {when}.",
    )
    return alive


def _stays_away(before: BoolArray, after: BoolArray, at: int) -> None:
    require(not (after & ~before).any(), f"An absent agent comes back at step {at}.")


def goals(subject: Subject) -> str:
    """Who reached which goal, one number per seat and step."""
    with subject.env() as env:
        spec = env.spec
    for columns in spec.goal_features:
        strange = [column for column in columns if not 0 <= column < spec.state_dim]
        require(not strange, f"goal_features names column {(strange or [0])[0]} of no state.")
    require(
        len(spec.goal_features) in (0, len(spec.goals))
        and len({len(columns) for columns in spec.goal_features}) < 2,
        f"goal_features must list as many columns for each of {len(spec.goals)} goals.",
    )
    count, shape = 0, (COPIES, spec.n_agents)
    views = subject.trace()
    for at, step in steps_of(views):
        reached, before = step.reached, views[at - 1].alive
        if not spec.goals:
            require(reached is None, f"A goal is reached at step {at}, and the spec names none.")
            continue
        require(
            isinstance(reached, np.ndarray) and reached.dtype == np.int64,
            f"The spec names goals, so reached must be int64 {shape} at step {at}.",
        )
        assert reached is not None
        known = reached.shape == shape and reached.min() >= -1 and reached.max() < len(spec.goals)
        require(known, f"reached is none of -1 to {len(spec.goals) - 1} for each agent, step {at}.")
        absent = before is not None and (reached[~before] >= 0).any()
        require(not absent, f"An absent agent reaches a goal at step {at}.")
        count += int((reached >= 0).sum())
    if not spec.goals:
        return "none"
    return f"{len(spec.goals)}, reached {count} times" if count else "warning: none was reached"
