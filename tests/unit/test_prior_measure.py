"""What is asked of a pre-trained prior: states decoded at once, or variance explained."""

from __future__ import annotations

import pytest
import torch

from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.envs.battle import BattleEnv
from omg.functional import explained_variance, variance_by_kind
from omg.learners.prior_training import check_accuracy
from omg.modules.opponent_models.base import SubgoalSource
from omg.modules.opponent_models.subgoal_nets import PriorVAE
from omg.types import OmgError


def config_of(*words: str) -> Config:
    return load_command_line(["--config=iql_omg", *words]).config


def places(rows: int = 400, units: int = 7) -> torch.Tensor:
    """Units whose first feature varies a hundred times as much as their second."""
    torch.manual_seed(0)
    return torch.rand(rows, units, 2) * torch.tensor([1.0, 0.1])


def test_a_perfect_guess_explains_everything_and_a_constant_one_nothing() -> None:
    wanted = places()
    assert float(explained_variance(wanted, wanted)) == 1.0
    assert float(explained_variance(wanted.mean(0).expand_as(wanted), wanted)) == pytest.approx(0)
    assert float(explained_variance(wanted + 5, wanted)) == 0.0


def test_it_is_r_squared_of_each_kind_of_feature_as_a_slow_loop_finds_it() -> None:
    wanted = places(50, 3)
    found = wanted + 0.02 * torch.randn(wanted.shape)
    kinds = []
    for w in range(2):
        error = spread = 0.0
        for j in range(3):
            column = [float(value) for value in wanted[:, j, w]]
            mean = sum(column) / len(column)
            spread += sum((value - mean) ** 2 for value in column)
            guesses = [float(value) for value in found[:, j, w]]
            error += sum((g - v) ** 2 for g, v in zip(guesses, column, strict=True))
        kinds.append(1 - error / spread)
    assert float(explained_variance(found, wanted)) == pytest.approx(sum(kinds) / 2, abs=1e-5)


def test_a_feature_that_varies_little_counts_as_much_as_one_that_varies_much() -> None:
    wanted = places()
    found = wanted.clone()
    found[..., 1] = wanted[..., 1].mean()  # where a unit stands is lost, its health is known
    assert float(explained_variance(found, wanted)) == pytest.approx(0.5, abs=0.01)


def test_it_does_not_fall_with_the_number_of_units_as_the_share_of_whole_states_does() -> None:
    shares, explained = [], []
    for units in (1, 7):
        wanted = places(2000, units)
        found = wanted + 0.02 * torch.randn(wanted.shape)
        explained.append(float(explained_variance(found, wanted)))
        shares.append(float(((found - wanted).abs() < 0.05).flatten(1).all(1).float().mean()))
    assert explained[1] == pytest.approx(explained[0], abs=0.02)
    assert shares[1] < 0.95 * shares[0]


def test_those_who_have_left_and_features_that_never_change_do_not_count() -> None:
    wanted = places()
    wanted[:, :, 0] = 1.0
    here = torch.rand(wanted.shape[:2]) < 0.5
    found = torch.where(here.unsqueeze(-1), wanted, 9.0)
    assert float(explained_variance(found, wanted, here)) == 1.0
    assert float(explained_variance(found, wanted)) == 0.0
    nothing_varies = torch.ones(5, 2, 3)
    assert float(explained_variance(nothing_varies, nothing_varies)) == 1.0


def test_errors_are_divided_by_the_variance_of_their_kind() -> None:
    # Two units with two features each, and two columns of nobody.
    rows = [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.2, 2.0, 0.4, 4.0, 0.1]]
    kinds = torch.tensor([0, 1, 0, 1, -1, -1])
    first, second = (0.25 + 1.0) / 2, (0.01 + 0.04) / 2
    expected = torch.tensor([first, second, first, second, 4.0, 0.01])  # the last: not below .01
    torch.testing.assert_close(variance_by_kind(torch.tensor(rows), kinds), expected)
    assert (variance_by_kind(torch.zeros(3, 6), kinds) > 0).all()


@pytest.mark.parametrize("part", ["state", "opponents", "places"])
def test_every_column_knows_which_of_an_agents_features_it_is(part: str) -> None:
    spec = BattleEnv(args={"map_name": "3m"}, n_copies=1).spec
    source = SubgoalSource(spec, part=part)
    state = torch.full((1, spec.state_dim), -1.0)
    for block in spec.agent_features:
        state[0, list(block)] = torch.arange(len(block)).float()
    for seat in range(spec.n_agents):
        assert torch.equal(source(state, torch.tensor([seat]))[0].long(), source.kinds)


@pytest.mark.long
def test_a_prior_trained_by_variance_learns_where_units_stand_although_health_varies_more() -> None:
    wanted = places(600, 3) * torch.tensor([1.0, 2.0])
    wanted[..., 0] = (wanted[..., 0] > 0.5).float()
    explained = []
    kinds = torch.tensor([0, 1] * 3)
    for variance in (None, variance_by_kind(wanted.flatten(1), kinds)):
        torch.manual_seed(1)
        vae, generator = PriorVAE(6, 32, 8), torch.Generator().manual_seed(0)
        optimiser = torch.optim.Adam(vae.parameters(), lr=0.003)
        for _ in range(500):
            terms = vae.loss(wanted.flatten(1), 1e-3, generator, variance)
            optimiser.zero_grad()
            terms["am_loss"].backward()
            optimiser.step()
        with torch.no_grad():
            found = vae.decode(vae.encode(wanted.flatten(1))[0]).view_as(wanted)
        explained.append(float(explained_variance(found[..., 1:], wanted[..., 1:])))
    assert explained[0] < 0.3
    assert explained[1] > 0.5


def test_a_prior_is_judged_by_the_measure_that_is_set() -> None:
    found = {"prior_accuracy": 0.001, "prior_explained": 0.8}
    cells = config_of("--env-config=foraging", "--prior_min_accuracy=0.95")
    units = config_of("--env-config=battle", "--prior_min_accuracy=0.7")
    assert (cells.prior_measure, units.prior_measure) == ("cells", "variance")
    with pytest.raises(OmgError, match=r"decodes only 0\.1% of the others' places"):
        check_accuracy(found, cells)
    check_accuracy(found, units)
    with pytest.raises(OmgError, match=r"explains only 80\.0% of how the others' features vary"):
        check_accuracy(found, config_of("--env-config=battle", "--prior_min_accuracy=0.9"))


def test_a_prior_without_the_measure_was_saved_before_it_and_is_not_refused() -> None:
    units = config_of("--env-config=battle", "--prior_min_accuracy=0.7")
    check_accuracy({"prior_accuracy": 0.99}, units, loaded=True)
    with pytest.raises(OmgError, match="explains only"):
        check_accuracy({}, units)
