"""OMG: prior, inference, selector and targets against brute force; the stages in a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.cli.train import train
from omg.components.episodes import EpisodeBatch
from omg.controllers.team import MultiModuleMAC
from omg.experiment.output import read_metrics
from omg.functional import (
    Packing,
    gather_actions,
    gaussian_kl,
    hit_ratio,
    max_over_available,
    mean_over_available,
    sample_gaussian,
    select_subgoal,
)
from omg.learners.base import Progress
from omg.learners.model_training import Alternatives
from omg.learners.q_learner import OMGLearner, Update
from omg.learners.subgoal_training import SubgoalTraining
from omg.modules.opponent_models.base import SubgoalSource
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.storage.files import load_tensors
from omg.types import EnvSpec, OmgError

from .test_mixed_teams import CPU, SMALL, TASK, collect, make_rollout

H = 4
START = Progress(0, 0, 0)


@pytest.fixture(scope="module")
def pool(scripted_pool: Callable[..., Path]) -> Path:
    return scripted_pool("nearest_food", "highest_level", "random")


def words(pool: Path, *more: str) -> list[str]:
    learn = ["--config=iql_omg", f"--opponent_pool={pool}", f"--subgoal_horizon={H}"]
    learn += ["--subgoal_dim=8", "--am_hidden_dim=64", "--prior_min_accuracy=0"]
    return [*SMALL, *learn, *more, *TASK]


class Case:
    """A learner, a batch of real episodes and everything an update derives from them."""

    def __init__(self, pool: Path, *more: str) -> None:
        rollout = make_rollout(words(pool, "--subgoal_posterior=mean", *more), copies=6)
        mac = rollout.mac
        assert isinstance(mac, MultiModuleMAC)
        assert isinstance(mac.model, SubgoalModel)
        self.mac, self.model = mac, mac.model
        self.config = mac._config
        self.learner = OMGLearner(config=self.config, spec=rollout.env.spec, mac=mac, device=CPU)
        training = self.learner._model
        assert isinstance(training, SubgoalTraining)
        self.training = training
        found = [f.episodes for f in collect(rollout, 40) if len(f.episodes) >= 2]
        self.batch: EpisodeBatch = max(found, key=len)
        played = mac.trajectories(self.batch)
        self.part, self.packing = played.own, played.packing
        self.rows = mac.policy.rows.stored(played)
        self.update = Update(mac.policy, played)
        with torch.no_grad():
            self.inferred, _, _ = self.model.posterior(self.rows, self.packing)
            encoded = self.model.source(self.rows.state, self.rows.seats)
            self.prior, _ = self.model.vae.encode(encoded)

    def values(self, alternatives: Alternatives) -> torch.Tensor:
        """The learner's, which selects by them."""
        self.told = self.learner._values(self.update, alternatives)
        return self.told

    def slot(self, b: int, t: int) -> int:
        match = (self.packing.episode == b) & (self.packing.time == t)
        return int(match.nonzero()[0])

    def walk(
        self, network: torch.nn.Module, subgoals: torch.Tensor, b: int, until: int
    ) -> torch.Tensor:
        """The hidden state before step `until`, one network step at a time."""
        hidden = torch.zeros(1, network.carry_dim)
        for t in range(until):
            p = torch.tensor([self.slot(b, t)])
            _, hidden = network.step(self.fed(p, subgoals[p]), hidden)
        return hidden

    def fed(self, slots: torch.Tensor, subgoal: torch.Tensor) -> torch.Tensor:
        feature = self.model.features(subgoal, self.rows.take(slots))
        return torch.cat([self.update.plain[slots].squeeze(1), feature], -1)


def test_kl_equals_that_of_torch_distributions() -> None:
    torch.manual_seed(0)
    mean, log_var, other, other_log_var = (torch.randn(5, 7) for _ in range(4))
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(
        normal(mean, (0.5 * log_var).exp()), normal(other, (0.5 * other_log_var).exp())
    ).sum(-1)
    torch.testing.assert_close(gaussian_kl(mean, log_var, other, other_log_var), expected)


def test_samples_have_the_mean_and_deviation_of_their_gaussian() -> None:
    mean, log_var = torch.full((20000, 1), 3.0), torch.full((20000, 1), 0.5)
    drawn = sample_gaussian(mean, log_var, torch.Generator().manual_seed(0))
    assert drawn.mean().item() == pytest.approx(3.0, abs=0.03)
    assert drawn.std().item() == pytest.approx(2.718281828**0.25, abs=0.03)


def test_hit_ratio_of_the_worked_example_is_two_fifths() -> None:
    trajectory = ["s1", "s2", "s3", "s4", "s5"]
    assert hit_ratio(["s3", "s1", "s5", "s5"], trajectory) == pytest.approx(0.4)


def test_values_are_taken_over_available_actions_only() -> None:
    q = torch.tensor([[1.0, 5.0, 100.0]])
    avail = torch.tensor([[True, True, False]])
    assert mean_over_available(q, avail).item() == 3.0
    assert max_over_available(q, avail).item() == 5.0


@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    horizon=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_candidates_are_the_next_steps_of_the_same_episode_and_never_past_its_end(
    lengths: list[int], horizon: int, seed: int
) -> None:
    filled = torch.arange(8) < torch.tensor(lengths).unsqueeze(1)
    packing = Packing.of(filled, torch.zeros_like(filled))
    slots, exists = packing.future(packing.now, horizon)
    for row, p in enumerate(packing.now.tolist()):
        b, t = int(packing.episode[p]), int(packing.time[p])
        for k in range(1, horizon + 1):
            real = t + k < lengths[b]
            assert bool(exists[row, k - 1]) is real
            q = int(slots[row, k - 1])
            assert int(packing.episode[q]) == b
            assert int(packing.time[q]) == min(t + k, lengths[b] - 1)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("optimistic", [1, 0]), ("conservative", [2, 0]), ("fixed", [1, 0])],
)
def test_the_selector_picks_by_its_mode_and_only_what_exists(
    mode: str, expected: list[int]
) -> None:
    values = torch.tensor([[1.0, 3.0, 0.0, 9.0], [2.0, 9.0, -9.0, 9.0]])
    exists = torch.tensor([[True, True, True, False], [True, False, False, False]])
    found = select_subgoal(values, exists, mode=mode, fixed_k=2)
    assert found.tolist() == expected


def test_the_random_selector_covers_all_that_exists() -> None:
    exists = torch.tensor([[True, True, False]]).expand(300, 3)
    generator = torch.Generator().manual_seed(0)
    found = select_subgoal(torch.zeros(300, 3), exists, mode="random", generator=generator)
    assert set(found.tolist()) == {0, 1}


@pytest.mark.long
@pytest.mark.parametrize("value", ["mean", "max"])
@pytest.mark.parametrize("mode", ["optimistic", "conservative"])
@pytest.mark.parametrize("feature", ["latent", "both"])
def test_selection_equals_a_brute_force_loop_over_steps_and_candidates(
    pool: Path, mode: str, value: str, feature: str
) -> None:
    flags = (f"--subgoal_mode={mode}", f"--subgoal_value={value}", f"--subgoal_feature={feature}")
    case = Case(pool, *flags)
    with torch.no_grad():
        lesson = case.training.prepare(case.update.played, START, case.values)
        chosen, ahead = lesson.chosen, lesson.steps_ahead
        network = case.mac.policy.network
        for row, p in enumerate(case.packing.now.tolist()):
            b, t = int(case.packing.episode[p]), int(case.packing.time[p])
            last = int(case.batch.lengths[b]) - 1
            hidden = case.walk(network, case.inferred, b, t)
            here = torch.tensor([p])
            avail = case.part["avail_actions"][b, t, 0]
            values = []
            for k in range(1, min(H, last - t) + 1):
                goal = case.prior[case.slot(b, t + k)].unsqueeze(0)
                q = network.step(case.fed(here, goal), hidden)[0][0][avail]
                values.append(float(q.mean() if value == "mean" else q.max()))
            assert case.told[row, : len(values)].tolist() == pytest.approx(values, abs=1e-5)
            best = max(values) if mode == "optimistic" else min(values)
            assert values[int(ahead[row])] == pytest.approx(best, abs=1e-5)
            assert int(chosen[row]) == case.slot(b, t + 1 + int(ahead[row]))


@pytest.mark.long
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("target", ["same", "next"])
@pytest.mark.parametrize("feature", ["latent", "both"])
def test_targets_equal_a_brute_force_loop(
    pool: Path, target: str, double: bool, feature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = (f"--subgoal_target={target}", f"--double_q={double}", f"--subgoal_feature={feature}")
    case = Case(pool, *flags)
    network, frozen = case.mac.policy.network, case.learner._target_network
    with torch.no_grad():
        for parameter in frozen.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        subgoal = torch.randn_like(case.inferred)
        monkeypatch.setattr(case.training, "mixed", lambda *given: subgoal)
        lesson = case.training.prepare(case.update.played, START, case.values)
        online = case.update.unroll(lesson.feature)
        targets = case.learner.targets(case.update, online, lesson)
        taken = gather_actions(online.q[case.packing.now], case.update.played.now("actions"))
        for row, p in enumerate(case.packing.now.tolist()):
            b, t = int(case.packing.episode[p]), int(case.packing.time[p])
            here = torch.tensor([p])
            q = network.step(case.fed(here, subgoal[here]), case.walk(network, subgoal, b, t))[0]
            action = int(case.part["actions"][b, t, 0])
            assert taken[row].item() == pytest.approx(q[0, action].item(), abs=1e-5)
            after = torch.tensor([case.slot(b, t + 1)])
            goal = subgoal[here] if target == "same" else subgoal[after]
            inputs = case.fed(after, goal)
            online = network.step(inputs, case.walk(network, subgoal, b, t + 1))[0][0]
            value = frozen.step(inputs, case.walk(frozen, subgoal, b, t + 1))[0][0]
            allowed = case.part["avail_actions"][b, t + 1, 0].nonzero().flatten().tolist()
            chooser = online if double else value
            best = max(allowed, key=lambda a: float(chooser[a]))
            ends = bool(case.part["terminated"][b, t])
            expected = float(case.part["reward"][b, t, 0])
            expected += 0.0 if ends else case.config.gamma * float(value[best])
            assert targets[row].item() == pytest.approx(expected, abs=1e-5)


def test_gradient_reaches_the_first_step_of_the_condition_from_the_last(pool: Path) -> None:
    case = Case(pool)
    b = int(case.batch.lengths.argmax())
    length = int(case.batch.lengths[b])
    assert length >= 5
    own = case.rows.own.clone().requires_grad_()
    rows = replace(case.rows, own=own)
    mean, _, _ = case.model.posterior(rows, case.packing)
    mean[case.slot(b, length - 1)].sum().backward()
    assert own.grad is not None
    assert own.grad[case.slot(b, 0)].abs().sum() > 0


def test_inference_at_every_step_equals_acting_step_by_step(pool: Path) -> None:
    case = Case(pool)
    b = int(case.batch.lengths.argmax())
    carry = torch.zeros(1, case.model.carry_dim)
    generator = torch.Generator()
    with torch.no_grad():
        for t in range(int(case.batch.lengths[b])):
            p = torch.tensor([case.slot(b, t)])
            inferred = case.model.infer(case.rows.take(p), carry, generator)
            feature, carry = inferred.feature, inferred.carry
            torch.testing.assert_close(feature, case.inferred[p], atol=1e-5, rtol=1e-5)


def test_the_opponents_part_is_ordered_from_the_own_seat_and_leaves_it_out() -> None:
    spec = EnvSpec(
        name="x",
        n_agents=3,
        n_actions=2,
        obs_dim=1,
        state_dim=8,
        episode_limit=5,
        agent_features=((2, 3), (4, 5), (6, 7)),
    )
    state = torch.arange(8.0).repeat(3, 1)
    seats = torch.tensor([0, 1, 2])
    part = SubgoalSource(spec, part="opponents")
    assert part(state, seats).tolist() == [
        [4, 5, 6, 7, 0, 1],
        [6, 7, 2, 3, 0, 1],
        [2, 3, 4, 5, 0, 1],
    ]
    for source in (part, SubgoalSource(spec)):
        place = source.place(source(state, seats), state, seats)
        assert place.tolist() == [[2, 2, 4, 4], [2, 2, -2, -2], [-4, -4, -2, -2]]


def test_where_nobody_says_whose_features_are_whose_a_subgoal_encodes_the_whole_state() -> None:
    spec = EnvSpec(name="x", n_agents=2, n_actions=2, obs_dim=1, state_dim=4, episode_limit=5)
    source = SubgoalSource(spec, part="opponents")
    state, seats = torch.arange(8.0).view(2, 4), torch.tensor([0, 1])
    assert torch.equal(source(state, seats), state)
    assert torch.equal(source.place(state + 1, state, seats), state + 1)


def test_an_update_trains_policy_and_inference_and_leaves_the_prior_alone(pool: Path) -> None:
    case = Case(pool)
    before = {k: v.clone() for k, v in case.model.state_dict().items()}
    metrics = case.learner.train(case.batch, START)
    changed = {k for k, v in case.model.state_dict().items() if not torch.equal(v, before[k])}
    assert {k.split(".")[0] for k in changed} == {"inference", "cond_rnn", "fc"}
    shares = [float(metrics[f"subgoal_k{k}"]) for k in range(1, H + 1)]
    assert sum(shares) == pytest.approx(1.0)
    assert float(metrics["subgoal_epsilon"]) == 0.5


@pytest.mark.parametrize(
    ("flag", "mode"), [("True", "optimistic"), ("False", "conservative"), ("random", "random")]
)
def test_the_original_flag_and_words_name_the_selector(pool: Path, flag: str, mode: str) -> None:
    assert Case(pool, f"--subgoal_mode={flag}").config.subgoal_mode == mode


def run(pool: Path, folder: Path, *more: str) -> Path:
    return Path(train(words(pool, f"--local_results_path={folder}", *more)).folder)


@pytest.fixture(scope="module")
def prior(pool: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prior")
    return run(pool, folder, "--learner=am_learner", "--run_name=prior")


@pytest.mark.long
def test_pretraining_saves_a_prior_that_has_learned(prior: Path) -> None:
    assert (prior / "models" / "last" / "iql_omg" / "vae.th").is_file()
    records = [r for r in read_metrics(prior / "metrics.jsonl") if "prior_recon" in r]
    assert records[-1]["prior_recon"] < records[0]["prior_recon"]


@pytest.mark.long
@pytest.mark.parametrize("feature", ["latent", "decoded", "both"])
def test_the_stages_run_one_after_the_other_and_resume_exactly(
    pool: Path, prior: Path, tmp_path: Path, feature: str
) -> None:
    more = [f"--init_param_path={prior}", f"--subgoal_feature={feature}"]
    whole = run(pool, tmp_path, *more, "--run_name=whole", "--t_max=250")
    run(pool, tmp_path, *more, "--run_name=half", "--t_max=150")
    half = run(pool, tmp_path, *more, "--run_name=half", "--resume", "--t_max=250")
    for name in ("agent", "vae", "cvae", "cond_rnn", "fc"):
        mine, theirs = (
            load_tensors(path / "models" / "last" / "iql_omg" / f"{name}.th")
            for path in (whole, half)
        )
        assert all(torch.equal(mine[key], theirs[key]) for key in mine), name
    first = load_tensors(prior / "models" / "last" / "iql_omg" / "vae.th")
    assert all(torch.equal(first[k], v) for k, v in theirs_prior(whole).items())
    assert any("am_kl" in record for record in read_metrics(whole / "metrics.jsonl"))


def theirs_prior(run_folder: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = load_tensors(
        run_folder / "models" / "last" / "iql_omg" / "vae.th"
    )
    return state


@pytest.mark.long
def test_the_three_original_commands_work_one_after_the_other(tmp_path: Path) -> None:
    common = [*SMALL, f"--local_results_path={tmp_path}", *TASK]
    common += ["--subgoal_dim=8", "--am_hidden_dim=64", "--prior_min_accuracy=0"]
    team = ["--config=2iql1iql_omg", "--multi_algs", "--mac=multi_module_mac"]
    team += ["--train_alg=iql_omg", f"--init_param_path={tmp_path}"]
    train([*common, "--config=iql", "--run_name=iql"])
    prior = ["--am_model=omg_am", "--learner=am_learner", "--run_name=iql_omg"]
    train([*common, *team, *prior])
    last = ["--learner=omg_learner", "--is_agent_shift=True", "--subgoal_mode=True"]
    made = train([*common, *team, *last, "--run_name=omg"]).folder
    saved = made / "models" / "last" / "iql_omg"
    names = {"agent.th", "vae.th", "cvae.th", "cond_rnn.th", "fc.th"}
    assert names <= {path.name for path in saved.iterdir()}


@pytest.mark.long
@pytest.mark.parametrize("alg", ["d3qn_omg", "iql_omg_tuned"])
def test_the_presets_run_through_both_stages(pool: Path, tmp_path: Path, alg: str) -> None:
    common = [*SMALL, f"--config={alg}", f"--opponent_pool={pool}", "--prior_min_accuracy=0"]
    common += [f"--local_results_path={tmp_path}", *TASK]
    made = train([*common, "--learner=am_learner", "--run_name=prior"]).folder
    result = train([*common, f"--init_param_path={made}", "--run_name=agent"])
    assert any("am_kl" in r for r in read_metrics(result.folder / "metrics.jsonl"))


def test_without_a_prior_the_agent_says_how_to_get_one(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(OmgError, match="am_learner"):
        run(pool, tmp_path)


def test_a_prior_of_another_width_is_explained(pool: Path, prior: Path, tmp_path: Path) -> None:
    with pytest.raises(OmgError, match=r"subgoal_dim|shape"):
        run(pool, tmp_path, f"--init_param_path={prior}", "--subgoal_dim=12")


def test_a_prior_fed_with_the_state_where_the_agent_sees_observations_is_explained(
    pool: Path, prior: Path, tmp_path: Path
) -> None:
    with pytest.raises(OmgError, match="obs_is_state"):
        run(pool, tmp_path, f"--init_param_path={prior}", "--obs_is_state=True")


def test_a_fixed_step_beyond_the_horizon_is_refused(pool: Path) -> None:
    with pytest.raises(OmgError, match="subgoal_horizon=4"):
        make_rollout(words(pool, "--subgoal_mode=fixed", "--subgoal_fixed_k=5"))


@pytest.mark.long
def test_a_refused_prior_cannot_be_loaded_by_the_agent(pool: Path, tmp_path: Path) -> None:
    common = [f"--local_results_path={tmp_path}", "--prior_min_accuracy=0.99"]
    with pytest.raises(OmgError, match="decodes only"):
        train([*words(pool, *common, "--learner=am_learner", "--run_name=prior")])
    with pytest.raises(OmgError, match=r"prior.* decodes only"):
        train([*words(pool, *common, f"--init_param_path={tmp_path / 'prior'}")])


def test_a_prior_that_has_learned_nothing_is_refused(pool: Path, tmp_path: Path) -> None:
    common = [f"--local_results_path={tmp_path}", "--prior_min_accuracy=0.5", "--t_max=8"]
    with pytest.raises(OmgError, match=r"decodes only 0\.0%"):
        train([*words(pool, *common, "--learner=am_learner", "--run_name=prior")])


@pytest.mark.long
def test_a_collapsed_prior_is_refused_with_the_weight_to_lower(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(OmgError, match="prior_kl_weight=10"):
        run(
            pool,
            tmp_path,
            *("--learner=am_learner", "--prior_kl_weight=10", "--prior_min_accuracy=0.95"),
        )
