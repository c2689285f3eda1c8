"""MeLIBA: its loss against a slow loop, what its belief depends on, how it finds a character."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal, kl_divergence

from omg.components.trajectories import SEAT
from omg.config.loader import load_command_line
from omg.functional import Packing
from omg.learners.base import Progress
from omg.learners.q_learner import QLearner
from omg.modules.opponent_models import ModelRows
from omg.modules.opponent_models.meliba_am import Gaussian, MelibaModel, later_slots
from omg.policies.policy import build_model
from omg.types import EnvSpec, OmgError

from .test_liam import features, model_of, played, team_of
from .test_mixed_teams import CPU, SMALL, TASK, make_rollout

SPEC = EnvSpec(name="x", n_agents=3, n_actions=4, obs_dim=5, state_dim=2, episode_limit=9)
SIZES = ["--am_hidden_dim=16", "--meliba_permanent_dim=3", "--meliba_temporal_dim=2"]


@pytest.fixture(scope="module")
def pool(scripted_pool: Callable[..., Path]) -> Path:
    return scripted_pool("nearest_food", "highest_level")


def words(pool: Path, *more: str) -> list[str]:
    chosen = ["--config=iql_am", "--am_model=meliba_am", *SIZES, *more]
    return [*SMALL, *chosen, f"--opponent_pool={pool}", *TASK]


def build(spec: EnvSpec, *more: str) -> MelibaModel:
    torch.manual_seed(0)
    model = build_model(load_command_line(["--config=d3qn_meliba", *SIZES, *more]).config, spec)
    assert isinstance(model, MelibaModel)
    return model


def random_rows(packing: Packing, spec: EnvSpec = SPEC, *, leaving: bool = False) -> ModelRows:
    rng = torch.Generator().manual_seed(1)
    count, others = len(packing.time), spec.n_agents - 1

    def actions() -> Tensor:
        return torch.randint(0, spec.n_actions, (count, others), generator=rng)

    return ModelRows(
        own=torch.randn(count, spec.obs_dim, generator=rng),
        last_action=torch.randint(-1, spec.n_actions, (count,), generator=rng),
        others_last=actions(),
        seats=torch.randint(0, spec.n_agents, (count,), generator=rng),
        state=torch.randn(count, spec.state_dim, generator=rng),
        others_actions=actions(),
        others_alive=torch.rand(count, others, generator=rng) < 0.6 if leaving else None,
    )


def packed(*lengths: int) -> Packing:
    """Episodes of these many slots; the second one terminates in its last but one."""
    filled = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    terminated = torch.zeros_like(filled)
    terminated[1, lengths[1] - 2] = True
    return Packing.of(filled, terminated)


# --- the loss against a slow loop ----------------------------------------------------------------


def gaussian(told: Tensor) -> Normal:
    mean, log_var = told.chunk(2, -1)
    return Normal(mean, log_var.clamp(-10, 4).exp().sqrt())


def slow_loss(
    model: MelibaModel, rows: ModelRows, packing: Packing, *, decodes: int, weight: float
) -> dict[str, float]:
    """One episode, step and other after the other, with the draws of the same generator."""
    rng, slots = torch.Generator().manual_seed(7), len(packing.time)
    count = len(packing.now)
    noise = torch.randn(slots, 3, generator=rng)
    rand = torch.rand(count, decodes, generator=rng)
    moods = torch.randn(count * (1 + decodes), 2, generator=rng).view(count, 1 + decodes, 2)
    where = {
        (int(b), int(t)): slot
        for slot, (b, t) in enumerate(zip(packing.episode, packing.time, strict=True))
    }
    hidden: dict[tuple[int, int], Tensor] = {}
    for (b, t), slot in sorted(where.items()):
        before = hidden[b, t - 1] if t else torch.zeros(1, 16)
        hidden[b, t] = model.rnn(model._inputs(rows.take(torch.tensor([slot]))), before)
    transitions = {(int(packing.episode[s]), int(packing.time[s])): k for k, s in
                   enumerate(packing.now.tolist())}  # fmt: skip
    now, rest, hits, kl_permanent, kl_temporal = [], [], [], [], []
    for (b, t), k in transitions.items():
        q = gaussian(model.permanent(hidden[b, t]))
        prior = Normal(torch.zeros(1, 3), torch.ones(1, 3))
        if t:
            prior = gaussian(model.permanent(hidden[b, t - 1]))
        kl_permanent.append(kl_divergence(q, prior).sum())
        m = q.mean + q.stddev * noise[where[b, t]]
        steps = [i for e, i in transitions if e == b and i >= t]
        drawn = [t] + [steps[int(u * len(steps))] for u in rand[k].tolist()]
        for number, step in enumerate(drawn):
            q_mood = gaussian(model.temporal(torch.cat([hidden[b, step], m], -1)))
            kl_temporal.append(
                kl_divergence(q_mood, Normal(torch.zeros(1, 2), torch.ones(1, 2))).sum()
            )
            mood = q_mood.mean + q_mood.stddev * moods[k, number]
            slot = where[b, step]
            told = model.decoder(torch.cat([rows.own[slot : slot + 1], m, mood], -1)).view(2, 4)
            for other in range(2):
                if rows.others_alive is not None and not rows.others_alive[slot, other]:
                    continue
                action = rows.others_actions[slot, other]  # type: ignore[index]
                entropy = -Categorical(logits=told[other]).log_prob(action)
                (rest if number else now).append(entropy)
                if not number:
                    hits.append(float(told[other].argmax() == action))

    def mean(values: list[Tensor]) -> float:
        return float(torch.stack(values).detach().mean()) if values else 0.0

    found = {
        "am_action_loss": mean(now),
        "am_accuracy": sum(hits) / len(hits),
        "am_kl_permanent": mean(kl_permanent),
        "am_kl_temporal": mean(kl_temporal),
    }
    if decodes:
        found["am_rest_loss"] = mean(rest)
    kl = found["am_kl_permanent"] + found["am_kl_temporal"]
    return {"am_loss": mean(now) + mean(rest) + weight * kl, **found}


@pytest.mark.parametrize("leaving", [False, True])
@pytest.mark.parametrize("decodes", [0, 3])
def test_the_loss_is_that_of_a_slow_loop(decodes: int, leaving: bool) -> None:
    model = build(SPEC, f"--meliba_decodes={decodes}", "--meliba_kl_weight=0.3")
    packing = packed(6, 8, 3)
    rows = random_rows(packing, leaving=leaving)
    terms = model.sampled_loss(rows, packing, torch.Generator().manual_seed(7))
    expected = slow_loss(model, rows, packing, decodes=decodes, weight=0.3)
    assert {k: v.item() for k, v in terms.items()} == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_later_steps_are_drawn_evenly_from_the_rest_of_the_same_episode() -> None:
    packing = packed(6, 5, 2)
    found = later_slots(packing, 4000, torch.Generator().manual_seed(0))
    last = {0: 4, 1: 3, 2: 0}  # the last transition of each
    for slot, drawn in zip(packing.now.tolist(), found, strict=True):
        episode, time = int(packing.episode[slot]), int(packing.time[slot])
        assert bool((packing.episode[drawn] == episode).all())
        counts = torch.bincount(packing.time[drawn], minlength=last[episode] + 1)
        assert int(counts[:time].sum()) == 0
        share = counts[time:] / 4000
        torch.testing.assert_close(share, torch.full_like(share, 1 / len(share)), atol=0.04, rtol=0)


def test_absent_others_count_in_no_term() -> None:
    model, packing = build(SPEC), packed(6, 8, 3)
    rows = random_rows(packing, leaving=True)
    assert rows.others_actions is not None
    assert rows.others_alive is not None
    absent = ~rows.others_alive
    actions = rows.others_actions.clone()
    actions[absent] = (actions[absent] + 1) % 4
    one, other = (
        model.sampled_loss(r, packing, torch.Generator().manual_seed(3))
        for r in (rows, replace(rows, others_actions=actions))
    )
    assert {k: v.item() for k, v in one.items()} == {k: v.item() for k, v in other.items()}


def test_the_features_are_mean_and_log_variance_of_both_latents() -> None:
    model, packing = build(SPEC), packed(4, 3)
    rows = random_rows(packing)
    found = model.unroll(rows, packing, torch.Generator())
    hidden = model.encode(rows, packing)
    mean, log_var = model.permanent(hidden).chunk(2, -1)
    temporal = model.temporal(torch.cat([hidden, mean], -1))
    torch.testing.assert_close(found, torch.cat([mean, log_var, temporal], -1).detach())
    assert found.shape[1] == model.feature_dim == 2 * (3 + 2)
    assert not found.requires_grad


def test_a_game_for_one_is_refused() -> None:
    with pytest.raises(OmgError, match=r"am_model=meliba_am models the other agents, and x has"):
        build(replace(SPEC, n_agents=1))


# --- what it sees, and when ----------------------------------------------------------------------


def test_features_while_acting_are_those_of_the_unroll(pool: Path) -> None:
    rollout = make_rollout(words(pool))
    team = team_of(rollout)
    model, episodes = model_of(team), played(rollout)
    rows, packing = team.model_rows(episodes), episodes.packing
    unrolled, carry, start = features(team, episodes), torch.zeros(len(episodes.team), 16), 0
    for size in packing.sizes.tolist():
        now = torch.arange(start, start + size)
        inferred = model.infer(rows.take(now), carry[:size], torch.Generator())
        torch.testing.assert_close(inferred.feature, unrolled[now], atol=1e-5, rtol=1e-5)
        carry, start = inferred.carry, start + size
        widths = {name: value.shape[1] for name, value in inferred.record.items()}
        assert widths == dict(model.record_dims())
    assert start == len(unrolled)


def test_features_do_not_depend_on_the_future_nor_on_what_only_the_others_see(pool: Path) -> None:
    rollout = make_rollout(words(pool))
    team, episodes = team_of(rollout), played(rollout)
    later, hidden = episodes.team.copy(), episodes.team.copy()
    for name in ("obs", "state", "actions"):
        field = later.raw(name)
        field[:, 5:] = field[:, 5:].flip(1)
    for row, seat in enumerate(hidden[SEAT].tolist()):
        for other in {0, 1, 2} - {seat}:
            hidden.raw("obs")[row, :, other] = 7
    hidden.raw("state")[:] = 7
    seen, future, without = (
        episodes.packing.unpack(features(team, team.trajectories(batch)))
        for batch in (episodes.team, later, hidden)
    )
    assert torch.equal(seen[:, :5], future[:, :5])
    assert not torch.equal(seen[:, 5:], future[:, 5:])
    assert torch.equal(seen, without)


def test_the_policys_loss_sends_no_gradient_into_the_model(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = make_rollout(words(pool))
    team = team_of(rollout)
    learner = QLearner(config=team._config, spec=rollout.env.spec, mac=team, device=CPU)
    model, batch = model_of(team), played(rollout).team
    with monkeypatch.context() as values_only:
        values_only.setattr(learner._model, "train", lambda lesson: {})
        learner.train(batch, Progress(0, 0, 0))
    assert all(weight.grad is None for weight in model.parameters())
    learner.train(batch, Progress(0, 0, 0))
    assert all(weight.grad is not None for weight in model.parameters())


def test_how_often_the_likeliest_action_was_taken_is_told_per_episode(pool: Path) -> None:
    rollout = make_rollout(words(pool, "--store_inference=True"))
    team, episodes = team_of(rollout), played(rollout)
    told = team.recording().judge(episodes.team)["prediction_accuracy"]
    for episode, share in enumerate(told):
        seat, right = int(episodes.team[SEAT][episode]), []
        length = int(episodes.team["filled"][episode].sum()) - 1
        for time in range(length):
            guess = episodes.team["am_prediction"][episode, time].view(2, 6).argmax(-1)
            for k in (1, 2):
                did = episodes.team["actions"][episode, time, (seat + k) % 3]
                right.append(float(guess[k - 1] == did))
        assert share == pytest.approx(sum(right) / len(right), abs=1e-6)


# --- learning ------------------------------------------------------------------------------------


@pytest.mark.long
def test_it_finds_out_who_the_other_is_and_stays_with_it() -> None:
    """The other does the same all the time, another thing in every episode: nothing tells it at the
    first step, everything at the second, and the belief about its character then stays."""
    spec = EnvSpec(name="x", n_agents=2, n_actions=3, obs_dim=1, state_dim=1, episode_limit=8)
    model = build(spec, "--meliba_kl_weight=0.02")
    rng, episodes, slots = torch.Generator().manual_seed(0), 60, 9
    filled = torch.ones(episodes, slots, dtype=torch.bool)
    packing = Packing.of(filled, torch.zeros_like(filled))
    character = torch.randint(0, 3, (episodes, 1), generator=rng).expand(-1, slots)
    last = character.clone()
    last[:, 0] = -1
    rows = ModelRows(
        own=torch.zeros(len(packing.time), 1),
        last_action=torch.zeros(len(packing.time), dtype=torch.int64),
        others_last=packing.pack(last).unsqueeze(1),
        seats=torch.zeros(len(packing.time), dtype=torch.int64),
        state=torch.zeros(len(packing.time), 1),
        others_actions=packing.pack(character).unsqueeze(1),
    )
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(250):
        adam.zero_grad()
        model.sampled_loss(rows, packing, rng)["am_loss"].backward()
        adam.step()
    with torch.no_grad():
        who, mood = model._belief(model.encode(rows, packing))
        right = model.logits(rows.own, who.mean, mood.mean).argmax(-1).squeeze(1)
        right = packing.unpack((right == packing.pack(character)).float())
        before = Gaussian(packing.previous(who.mean), packing.previous(who.log_var))
        changes = packing.unpack(who.kl(before))
    assert float(right[:, 0].mean()) < 0.6
    assert float(right[:, 1:].mean()) == 1.0
    assert float(changes[:, 1].mean()) > 5 * float(changes[:, 3:].mean())
