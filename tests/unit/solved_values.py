"""Values of the two-state game as a learner tells them, and as they should be."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from omg.components.episodes import EpisodeBatch
from omg.learners import LEARNERS

from . import mdps
from .every_algorithm import TABLE
from .small_learners import TWO_STATES, Bench, game_batch, tempt, with_padding

FAST = [
    *(f"--gamma={mdps.GAMMA}", "--optimizer=adam", "--critic_lr=0.03", "--grad_norm_clip=1000"),
    *("--obs_last_action=False", "--target_update_interval=1", "--target_update_tau=0.2"),
    *("--td_lambda=0.5", "--gae_lambda=0.5", "--ppo_epochs=4", "--ppo_minibatches=1"),
    *("--mlp_hidden_dims=[32]", "--critic_hidden_dims=[32]", "--mixing_embed_dim=32"),
    *("--subgoal_epsilon_start=0", "--am_lr=0.0003"),
]
# How often a single step is asked for at once: COMA draws what the others do behind a cut.
REPEATS = 300
# A policy that stays what it is, and no other share of chance than its own.
FROZEN = ["--lr=1e-12", "--epsilon_start=0", "--epsilon_finish=0"]


def learned(name: str, *, ending: str, padded: bool) -> Bench:
    """A learner that has seen every play of the game, again and again."""
    row = TABLE[name]
    words = [*FAST, *(FROZEN if row.values == "policy" else ["--lr=0.03"])]
    words += [] if row.recurrent else ["--policy_model=mlp"]
    bench = Bench(name, *words, spec=TWO_STATES)
    tempt(bench)
    batches = _batches(bench, ending, padded)
    for update in range(row.updates):
        if update == row.updates * 2 // 3:
            _slow_down(bench)
        bench.train(next(batches))
    return bench


def _batches(bench: Bench, ending: str, padded: bool) -> Iterator[EpisodeBatch]:
    """All plays of two steps from X and of one step from Y, in turns; together with `padded`, and
    nonsense behind their ends. With a memory, random plays of up to six steps."""
    rng = np.random.default_rng(1)
    while bench.row.recurrent:
        yield mdps.episodes(
            rng, 24, ending=ending, common=False, padded=padded, scheme=bench.scheme
        )
    groups = [
        [mdps.play(start, actions, ending=ending) for actions in mdps.all_plays(steps)]
        for start, steps in ((0, 2), (1, 1))
    ]
    if padded:
        whole = [*groups[0], *groups[1] * 3]
        yield from itertools.repeat(with_padding(game_batch(bench, whole), 2, rng))
    yield from itertools.cycle([game_batch(bench, group) for group in groups])


def _slow_down(bench: Bench) -> None:
    """A tenth of the learning rate, to settle."""
    for found in vars(bench.learner).values():
        for group in getattr(found, "param_groups", ()):
            group["lr"] *= 0.1


def told(bench: Bench, ending: str) -> Iterator[tuple[str, float, float]]:
    """(what, told, expected) for every state and joint action: the value, and the target of a
    single step that ends or is cut. Asked by an update on that step alone, which is taken back."""
    row = bench.row
    expected = mdps.solve(ending, mdps.CHANCE if row.values == "policy" else None)
    on_policy = LEARNERS[bench.config.learner].able.on_policy
    before = bench.state()
    for state, first, second in itertools.product(range(2), range(2), range(2)):
        step = mdps.play(state, [(first, second)], ending=ending)
        batch = game_batch(bench, [step])
        if row.sure_ending != "mixed":
            batch = batch[[*range(len(batch))] * REPEATS]
        metrics = bench.train(batch)
        bench.learner.load_state_dict(before)
        q = expected[state, first, second]
        total = q.sum() if bench.config.common_reward else q.mean()
        where = f"{'XY'[state]} {first} {second}"
        if "value_mean" in metrics:
            v = _policy_value(expected[state], bench.config.common_reward)
            yield f"V({where[0]})", metrics["value_mean"], v
        else:
            yield f"Q({where})", metrics["q_taken_mean"], total
        yield f"target({where})", metrics["target_mean"], total
    assert on_policy == (row.values == "policy")


def _policy_value(q: np.ndarray, common: bool) -> float:
    """Σ_a π(a) Q(a) of one state, of the team or of one agent."""
    chances = np.array([mdps.CHANCE, 1 - mdps.CHANCE])
    values = np.einsum("ijn,i,j->n", q, chances, chances)
    return float(values.sum() if common else values.mean())
