"""Subgoals beside the paper's: events, several horizons, modes, what else is fed and learned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from omg.cli.train import train
from omg.components.episodes import EpisodeBatch, environment_scheme
from omg.envs.registry import make_batched
from omg.functional import gaussian_kl
from omg.learners.base import Progress
from omg.learners.subgoal_events import next_events, rows_of_next_events, seat_events
from omg.modules.kernels.subgoal import Lessons
from omg.modules.opponent_models.base import SubgoalSource, action_loss
from omg.storage.files import load_tensors
from omg.types import EnvSpec, OmgError

from .test_omg import START, Case, words

LATER = Progress(10**7, 0, 0)  # the ε-mix is over


@pytest.fixture(scope="module")
def pool(scripted_pool: Callable[..., Path]) -> Path:
    return scripted_pool("nearest_food", "highest_level", "random")


def spec_of(**more: object) -> EnvSpec:
    given = {"agent_features": ((0, 1), (2, 3)), "n_actions": 4, "obs_dim": 1, "state_dim": 5}
    return EnvSpec(name="x", n_agents=2, episode_limit=7, **(given | more))  # type: ignore[arg-type]


def random_episodes(spec: EnvSpec, *, seed: int, common_reward: bool = False) -> EpisodeBatch:
    """Five episodes of different lengths, in which players often stand still."""
    rng = np.random.default_rng(seed)
    scheme = environment_scheme(spec, common_reward=common_reward)
    batch = EpisodeBatch(scheme, batch_size=5, max_seq_length=8)
    width = 1 if common_reward else 2
    for b, length in enumerate([8, 3, 1, 6, 2]):
        for t in range(length):
            values = {
                "state": rng.integers(0, 2, spec.state_dim),
                "obs": np.zeros((2, 1)),
                "actions": rng.integers(0, 4, 2),
                "avail_actions": np.ones((2, 4)),
                "reward": rng.choice([-1.0, 0.0, 0.0, 2.0], width),
                "terminated": np.array(False),
            }
            given = {name: np.asarray(value)[None, None] for name, value in values.items()}
            batch.update(given, rows=slice(b, b + 1), steps=slice(t, t + 1))
    return batch


@pytest.mark.parametrize("named", [(), (3,), (1, 3)])
@pytest.mark.parametrize("common_reward", [False, True])
def test_the_next_event_of_a_seat_is_the_one_a_slow_loop_finds(
    named: tuple[int, ...], common_reward: bool
) -> None:
    spec = spec_of(event_actions=named)
    batch = random_episodes(spec, seed=len(named), common_reward=common_reward)
    found = next_events(seat_events(spec, batch))
    state, reward = batch["state"], batch["reward"]
    kinds = set()
    for b, length in enumerate(batch.lengths.tolist()):
        for t in range(length):
            for seat, columns in enumerate(spec.agent_features):
                expected = 8
                for later in range(t + 1, length - 1):
                    here, there = (state[b, s, list(columns)].tolist() for s in (later, later + 1))
                    paid = float(reward[b, later, 0 if common_reward else seat]) > 0
                    event = here == there or paid
                    if named:
                        event = int(batch["actions"][b, later, seat]) in named
                    if event:
                        expected = later
                        break
                kinds.add(expected == 8)
                assert int(found[b, t, seat]) == expected
    assert kinds == {False, True}


def test_where_nobody_says_whose_features_are_whose_only_rewards_are_events() -> None:
    spec = spec_of(agent_features=())
    batch = random_episodes(spec, seed=5)
    acts = torch.zeros_like(batch.filled)
    acts[:, :-1] = batch.filled[:, 1:]
    assert torch.equal(seat_events(spec, batch), (batch["reward"] > 0) & acts.unsqueeze(-1))


@torch.no_grad()
def test_an_event_subgoal_shows_every_other_at_its_own_next_event(pool: Path) -> None:
    case = Case(pool, "--subgoal_mode=event", "--subgoal_source=opponents")
    lesson = case.training.prepare(case.update.played, START, case.values)
    packing, rows, load = case.packing, case.rows, 5
    mean = lesson.selected.lessons.prior_mean[lesson.selected.lessons.chosen]
    apart = 0
    for number, p in enumerate(packing.now.tolist()):
        b, t, seat = int(packing.episode[p]), int(packing.time[p]), int(rows.seats[p])
        last = int(case.batch.lengths[b]) - 1
        times = []
        for other in ((seat + 1) % 3, (seat + 2) % 3):
            acts = case.batch["actions"][b, :last, other].tolist()
            times.append(next((s for s in range(t + 1, last) if acts[s] == load), last))
        earliest = min(times)
        assert int(lesson.steps_ahead[number]) == earliest - t - 1
        assert int(lesson.chosen[number]) == case.slot(b, earliest)
        # Two foods of three numbers, then three players of three numbers.
        state = [case.batch["state"][b, s] / 6 for s in (*times, earliest)]
        parts = [state[i][6 + 3 * ((seat + 1 + i) % 3) :][:3] for i in range(2)]
        encoded = torch.cat([*parts, state[2][:6]])
        torch.testing.assert_close(mean[number], case.model.vae.encode(encoded)[0])
        apart += times[0] != times[1]
    assert apart > 0


@pytest.mark.parametrize("part", ["state", "opponents", "places"])
def test_moments_of_several_rows_are_put_together_from_each_others_own(part: str) -> None:
    spec = EnvSpec(
        name="x",
        n_agents=3,
        n_actions=2,
        obs_dim=1,
        state_dim=7,
        episode_limit=5,
        agent_features=((1, 2), (3, 4), (5, 6)),
    )
    source = SubgoalSource(spec, part=part)
    state = torch.arange(70.0).view(10, 7)
    seats = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
    rows = torch.tensor([[3, 9], [7, 4], [5, 5]])  # the seats of a moment are the same
    found = source.of_moments(state, seats, rows)
    for number, (first, second) in enumerate(rows.tolist()):
        seat = int(seats[first])
        mixed = state[min(first, second)].clone()
        for other, row in (((seat + 1) % 3, first), ((seat + 2) % 3, second)):
            columns = list(spec.agent_features[other])
            mixed[columns] = state[row, columns]
        assert torch.equal(found[number], source(mixed[None], torch.tensor([seat]))[0])


def test_the_places_alone_are_encoded_without_food_and_without_oneself() -> None:
    spec = spec_of()
    source = SubgoalSource(spec, part="places")
    state = torch.arange(10.0).view(2, 5)
    assert source(state, torch.tensor([0, 1])).tolist() == [[2, 3], [5, 6]]


@torch.no_grad()
def test_further_horizons_are_encoded_beside_the_selected_state(pool: Path) -> None:
    flags = ("--subgoal_mode=fixed", "--subgoal_fixed_k=2", "--subgoal_horizons=[1,7]")
    case = Case(pool, *flags)
    lesson = case.training.prepare(case.update.played, START, case.values)
    mean = lesson.selected.lessons.prior_mean[lesson.selected.lessons.chosen]
    assert case.model.feature_dim == 3 * 8
    for number, p in enumerate(case.packing.now.tolist()):
        b, t = int(case.packing.episode[p]), int(case.packing.time[p])
        last = int(case.batch.lengths[b]) - 1
        ahead = [case.slot(b, min(t + k, last)) for k in (2, 1, 7)]
        torch.testing.assert_close(mean[number], case.prior[ahead].flatten())


@pytest.mark.parametrize("mode", ["optimistic", "conservative"])
def test_candidates_are_valued_with_the_further_subgoals_that_were_inferred(
    pool: Path, mode: str
) -> None:
    case = Case(pool, f"--subgoal_mode={mode}", "--subgoal_horizons=[3]", "--subgoal_condition")
    with torch.no_grad():
        case.training.prepare(case.update.played, START, case.values)
        found = case.model.stored(case.rows, case.packing, torch.Generator())
        network, context = case.mac.policy.network, case.model.context(*found.beside)
        assert context is not None
        features = torch.cat([found.subgoal, context], -1)
        number = len(case.packing.now) // 2
        p = int(case.packing.now[number])
        b, t = int(case.packing.episode[p]), int(case.packing.time[p])
        hidden = torch.zeros(1, network.carry_dim)
        for s in range(t):
            q = case.slot(b, s)
            inputs = torch.cat([case.update.plain[q], features[[q]]], -1)
            _, hidden = network.step(inputs, hidden)
        goal = case.prior[case.slot(b, t + 1)]
        fed = torch.cat([goal, found.subgoal[p, 8:], context[p]])
        inputs = torch.cat([case.update.plain[p], fed[None]], -1)
        avail = case.part["avail_actions"][b, t, 0]
        value = network.step(inputs, hidden)[0][0][avail].mean()
        assert case.told[number, 0].item() == pytest.approx(value.item(), abs=1e-5)


ALL = (
    *("--subgoal_mode=event", "--subgoal_horizons=[2]", "--subgoal_modes=3"),
    *(
        "--subgoal_feature=both",
        "--subgoal_spread",
        "--subgoal_condition",
        "--am_others_weight=0.5",
    ),
)


@torch.no_grad()
def test_all_that_is_fed_in_learning_equals_acting_step_by_step(pool: Path) -> None:
    case = Case(pool, *ALL)
    b = int(case.batch.lengths.argmax())
    stored = case.model.unroll(case.rows, case.packing, torch.Generator())
    # Four subgoals and places of two others, log-variances, the modes' chances, the condition.
    assert stored.shape[1] == case.model.feature_dim == 4 * 8 + 4 * 6 + 4 * 8 + 3 + 48
    carry = torch.zeros(1, case.model.carry_dim)
    for t in range(int(case.batch.lengths[b])):
        p = torch.tensor([case.slot(b, t)])
        inferred = case.model.infer(case.rows.take(p), carry, torch.Generator())
        torch.testing.assert_close(inferred.feature, stored[p], atol=1e-5, rtol=1e-5)
        carry = inferred.carry
        assert {k: v.shape[1] for k, v in inferred.record.items()} == case.model.record_dims()
        again = case.model.exchanged(
            inferred, torch.tensor([0]), case.rows.take(p), torch.Generator()
        )
        torch.testing.assert_close(again, inferred.feature)


def test_the_likeliest_mode_comes_first_with_its_own_subgoal(pool: Path) -> None:
    case = Case(pool, "--subgoal_modes=3")
    found = case.model.stored(case.rows, case.packing, torch.Generator())
    assert found.chances is not None
    assert (found.chances.diff(dim=1) <= 0).all()
    torch.testing.assert_close(found.chances.exp().sum(1), torch.ones(len(found.chances)))
    embedding = case.model._embed(case.rows)
    mean, _ = case.model.inference.encode(embedding, found.condition)
    assert case.model.chances is not None
    logits = case.model.chances(torch.cat([embedding, found.condition], -1))
    for row in range(0, len(mean), 7):
        order = sorted(range(3), key=lambda m: -logits[row, m].item())
        expected = torch.cat([mean[row, 8 * m : 8 * (m + 1)] for m in order])
        torch.testing.assert_close(found.mean[row], expected)


def test_the_loss_of_one_mode_is_the_papers_and_further_horizons_add_theirs(pool: Path) -> None:
    case = Case(pool, "--subgoal_horizons=[2]")
    rows, now = case.rows, case.packing.now
    found = case.model.stored(rows, case.packing, torch.Generator())
    wanted = [torch.randn_like(found.mean) for _ in range(2)]
    chosen = now.flip(0)
    terms = case.model.loss(rows, found, Lessons(now, chosen, *wanted), 0.3)
    kl = torch.stack(
        [
            gaussian_kl(
                *(value[now][:, part] for value in (found.mean, found.log_var)),
                *(value[chosen][:, part] for value in wanted),
            )
            for part in (slice(8), slice(8, 16))
        ]
    )
    target = case.model._embed(rows).detach()
    decoded = case.model.inference.decode(found.subgoal, found.condition)
    expected = (decoded - target)[now].square().mean() + 0.3 * kl.sum(0).mean()
    assert terms["am_loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_mode_learns_by_its_share_and_becomes_likelier(pool: Path) -> None:
    case = Case(pool, "--subgoal_modes=2")
    rows, now = case.rows, case.packing.now
    found = case.model.stored(rows, case.packing, torch.Generator())
    assert found.chances is not None
    wanted = [torch.cat([v, v], -1) for v in (torch.randn(len(found.mean), 8),) * 2]
    terms = case.model.loss(rows, found, Lessons(now, now, *wanted), 0.1)
    total = 0.0
    for row in now.tolist():
        costs, chances = [], [c.item() for c in found.chances[row].exp()]
        for mode in range(2):
            part = slice(8 * mode, 8 * mode + 8)
            given = [v[row, part] for v in (found.mean, found.log_var, *wanted)]
            costs.append(0.1 * gaussian_kl(*given).item())
        likely = [c * np.exp(-cost) for c, cost in zip(chances, costs, strict=True)]
        share = [value / sum(likely) for value in likely]
        for s, cost, chance in zip(share, costs, chances, strict=True):
            total += (0.95 * s + 0.05 / 2) * cost - s * np.log(chance)
    expected = terms["am_recon"].item() + total / len(now)
    assert terms["am_loss"].item() == pytest.approx(expected, rel=1e-4)


def test_liams_loss_tells_the_others_from_the_condition(pool: Path) -> None:
    case = Case(pool, "--am_others_weight=0.5", "--liam_action_weight=2")
    played = case.update.played
    rows, now = case.mac.policy.rows.training(played), case.packing.now
    found = case.model.stored(rows, case.packing, torch.Generator())
    terms = case.model.told_loss(rows, found, now)
    acted = rows.take(now)
    known = torch.cat([case.model._embed(acted), found.condition[now]], -1)
    others = case.model.others
    assert others is not None
    assert acted.others_obs is not None
    assert acted.others_actions is not None
    seen = (others.obs_decoder(known).view_as(acted.others_obs) - acted.others_obs).square()
    does = others.action_decoder(known).view(len(now), 2, -1)
    entropy, _ = action_loss(does, acted.others_actions, None)
    expected = 0.5 * (seen.mean() + 2 * entropy)
    assert terms["am_loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_an_update_trains_everything_but_the_prior(pool: Path) -> None:
    case = Case(pool, *ALL)
    before = {k: v.clone() for k, v in case.model.state_dict().items()}
    metrics = case.learner.train(case.batch, LATER)
    changed = {k for k, v in case.model.state_dict().items() if not torch.equal(v, before[k])}
    parts = {"inference", "cond_rnn", "fc", "others", "chances"}
    assert {k.split(".")[0] for k in changed} == parts
    assert float(metrics["subgoal_ahead"]) >= 1
    assert "subgoal_k1" not in metrics
    assert parts - {"inference"} <= case.model.files().keys()


def test_rows_of_events_of_every_seat_lie_in_its_own_sequence(pool: Path) -> None:
    case = Case(pool)
    played = case.update.played
    found = rows_of_next_events(case.mac.spec, played, case.mac.policy.rows.order)
    packing = played.rows
    assert torch.equal(packing.episode[found], packing.episode[packing.now, None].expand_as(found))
    assert (packing.time[found] > packing.time[packing.now, None]).all()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--subgoal_feature=none",), "feeds the policy nothing"),
        (("--subgoal_modes=2", "--subgoal_inference=mlp"), "are modes of a distribution"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    pool: Path, flags: tuple[str, ...], message: str
) -> None:
    with pytest.raises(OmgError, match=message):
        Case(pool, *flags)


@torch.no_grad()
def test_the_condition_may_be_all_that_is_fed(pool: Path) -> None:
    case = Case(pool, "--subgoal_feature=none", "--subgoal_condition")
    found = case.model.stored(case.rows, case.packing, torch.Generator())
    fed = case.model.unroll(case.rows, case.packing, torch.Generator())
    torch.testing.assert_close(fed, found.condition)
    assert not case.model.reads_state


@pytest.mark.parametrize(("game", "actions"), [("stag_hunt", (5, 6)), ("snowdrift", (5,))])
def test_trying_for_a_target_is_an_event_of_goal_games(game: str, actions: tuple[int, ...]) -> None:
    assert make_batched(game, {}, n_copies=1).spec.event_actions == actions


@pytest.mark.long
@pytest.mark.parametrize("config", ["iql_omg", "ppo_omg_tuned"])
def test_runs_with_everything_resume_exactly(pool: Path, tmp_path: Path, config: str) -> None:
    def run(name: str, *more: str) -> Path:
        place = (f"--local_results_path={tmp_path}", f"--run_name={name}", f"--config={config}")
        short = ("--batch_size=4", "--batch_size_run=4", "--resume_interval=150")
        given = [w for w in words(pool, *place, *short, *ALL, *more) if w != "--config=iql_omg"]
        return Path(train([*given, f"--config={config}"]).folder)

    prior = f"--init_param_path={run('prior', '--learner=am_learner', '--t_max=100')}"
    whole = run("whole", "--t_max=400", prior)
    run("half", "--t_max=200", prior)
    half = run("half", "--t_max=400", "--resume", prior)
    for name in ("agent", "cvae", "cond_rnn", "chances", "others"):
        one, other = (
            load_tensors(path / "models" / "last" / config / f"{name}.th") for path in (whole, half)
        )
        assert all(torch.equal(one[key], other[key]) for key in one), name
