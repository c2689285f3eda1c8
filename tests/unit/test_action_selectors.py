"""Selectors: what may be chosen, and how often. Schedules: where they start and end."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.components.action_selectors import SELECTORS, DecayThenFlat, SoftPolicies
from omg.types import OmgError

NAMES = sorted(SELECTORS)
DRAWS = 40_000


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def selector(name, epsilon=0.0, temperature=1.0):
    flat = DecayThenFlat(start=epsilon, finish=epsilon, time_length=1)
    return SELECTORS[name](epsilon=flat, temperature=temperature)


def choose(chooser, outputs, avail, *, greedy=False, generator=None, env_steps=0):
    return chooser.select(
        outputs, avail, env_steps=env_steps, greedy=greedy, generator=generator or seeded()
    )


def frequencies(chooser, outputs, avail):
    """How often each action is chosen when the same row is offered many times."""
    shape = (DRAWS, len(outputs))
    actions = choose(
        chooser, torch.tensor(outputs).expand(shape), torch.tensor(avail).expand(shape)
    )
    return torch.bincount(actions, minlength=len(outputs)) / DRAWS


def assert_close(found, expected):
    # Five standard deviations of a frequency near 1/2.
    torch.testing.assert_close(found, torch.as_tensor(expected), atol=5 * 0.5 / DRAWS**0.5, rtol=0)


@st.composite
def offers(draw):
    """Outputs and masks of a few rows, with at least one action available in each."""
    rows, actions = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    generator = seeded(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 1.0, 1e4, 1e30]))
    outputs = scale * torch.randn(2, rows, actions, generator=generator)
    avail = torch.rand(2, rows, actions, generator=generator) < draw(st.floats(0, 1))
    one = torch.randint(actions, (2, rows, 1), generator=generator)
    return outputs, avail.scatter(-1, one, True), generator


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("name", NAMES)
@given(offer=offers(), epsilon=st.floats(0, 1), temperature=st.sampled_from([0.1, 1.0, 10.0]))
def test_an_unavailable_action_is_never_chosen(name, greedy, offer, epsilon, temperature):
    outputs, avail, generator = offer
    chooser = selector(name, epsilon, temperature)
    for _ in range(20):
        actions = choose(chooser, outputs, avail, greedy=greedy, generator=generator)
        assert actions.shape == avail.shape[:-1]
        assert actions.dtype == torch.int64
        assert avail.gather(-1, actions.unsqueeze(-1)).all()


@pytest.mark.parametrize("name", NAMES)
@given(offer=offers(), epsilon=st.floats(0, 1))
def test_a_greedy_choice_is_the_best_available_action(name, offer, epsilon):
    outputs, avail, generator = offer
    actions = choose(selector(name, epsilon), outputs, avail, greedy=True, generator=generator)
    for row in torch.cartesian_prod(torch.arange(2), torch.arange(outputs.shape[1])).tolist():
        values = outputs[tuple(row)].tolist()
        best = max(v for v, ok in zip(values, avail[tuple(row)].tolist(), strict=True) if ok)
        assert values[int(actions[tuple(row)])] == best


@given(offers())
def test_epsilon_zero_is_greedy(offer):
    outputs, avail, generator = offer
    chooser = selector("epsilon_greedy", 0.0)
    greedy = choose(chooser, outputs, avail, greedy=True)
    for _ in range(5):
        assert torch.equal(choose(chooser, outputs, avail, generator=generator), greedy)


@pytest.mark.long
@pytest.mark.parametrize("name", ["epsilon_greedy", "multinomial"])
def test_epsilon_one_is_uniform_over_the_available_actions(name):
    found = frequencies(selector(name, 1.0), [5.0, 1.0, 9.0, -3.0], [True, True, False, True])
    assert_close(found, [1 / 3, 1 / 3, 0, 1 / 3])


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.8])
def test_epsilon_greedy_gives_every_available_action_its_share_and_the_best_the_rest(epsilon):
    chooser = selector("epsilon_greedy", epsilon)
    found = frequencies(chooser, [5.0, 1.0, 9.0, -3.0], [True, True, False, True])
    share = epsilon / 3
    assert_close(found, [1 - epsilon + share, share, 0, share])


def test_epsilon_greedy_explores_in_every_row_by_itself():
    chooser = selector("epsilon_greedy", 0.5)
    outputs = torch.tensor([1.0, 0.0]).expand(DRAWS, 2, 2)
    avail = torch.ones_like(outputs, dtype=torch.bool)
    actions = choose(chooser, outputs, avail)
    both, one = (actions.sum(1) == 2).float().mean(), (actions.sum(1) == 1).float().mean()
    assert_close(both, 0.25**2)
    assert_close(one, 2 * 0.25 * 0.75)


@pytest.mark.parametrize(("epsilon", "temperature"), [(0.0, 1.0), (0.3, 1.0), (0.3, 2.0)])
def test_multinomial_draws_the_softmax_mixed_with_the_uniform_choice(epsilon, temperature):
    chooser = selector("multinomial", epsilon, temperature)
    found = frequencies(chooser, [1.0, 0.0, 5.0, -1.0], [True, True, False, True])
    weights = torch.exp(torch.tensor([1.0, 0.0, -torch.inf, -1.0]) / temperature)
    uniform = torch.tensor([1 / 3, 1 / 3, 0, 1 / 3])
    expected = (1 - epsilon) * weights / weights.sum() + epsilon * uniform
    assert_close(found, expected)
    offered = torch.tensor([[1.0, 0.0, 5.0, -1.0]]), torch.tensor([[True, True, False, True]])
    torch.testing.assert_close(chooser.probabilities(*offered, env_steps=0)[0], expected)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_soft_policies_draw_the_softmax_without_a_floor(temperature):
    chooser = selector("soft_policies", 1.0, temperature)
    found = frequencies(chooser, [1.0, 0.0, 5.0, -1.0], [True, True, False, True])
    weights = torch.exp(torch.tensor([1.0, 0.0, -torch.inf, -1.0]) / temperature)
    assert_close(found, weights / weights.sum())
    assert chooser.metrics(0) == {}


def test_soft_policies_never_choose_what_the_policy_rules_out():
    chooser = selector("soft_policies", 1.0)
    assert isinstance(chooser, SoftPolicies)
    found = frequencies(chooser, [0.0, -1000.0], [True, True])
    assert found.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("name", NAMES)
def test_equal_generators_give_equal_actions_and_others_differ(name):
    outputs = torch.randn(50, 3, 6, generator=seeded(1))
    avail = torch.rand(50, 3, 6, generator=seeded(2)) < 0.7
    avail[..., 0] = True
    chooser = selector(name, 0.9)
    first, again, other = (
        choose(chooser, outputs, avail, generator=seeded(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", NAMES)
def test_selecting_leaves_the_global_random_stream_alone(name):
    before = torch.get_rng_state()
    choose(selector(name, 0.5), torch.zeros(4, 3), torch.ones(4, 3, dtype=torch.bool))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["epsilon_greedy", "multinomial"])
def test_the_schedule_drives_exploration_and_is_reported(name):
    schedule = DecayThenFlat(start=1.0, finish=0.0, time_length=100)
    chooser = SELECTORS[name](epsilon=schedule, temperature=0.01)
    outputs = torch.tensor([1.0, 0.0]).expand(DRAWS, 2)
    avail = torch.ones_like(outputs, dtype=torch.bool)
    for env_steps, epsilon in ((0, 1.0), (50, 0.5), (100, 0.0), (1000, 0.0)):
        actions = choose(chooser, outputs, avail, env_steps=env_steps)
        assert_close(actions.float().mean(), epsilon / 2)
        assert chooser.metrics(env_steps) == {"epsilon": epsilon}


def test_an_unknown_selector_names_the_nearest():
    with pytest.raises(OmgError, match="epsilon_greedy"):
        SELECTORS["epsilon-greedy"]


units = st.floats(0, 1)


@given(a=units, b=units, length=st.integers(1, 10**6), decay=st.sampled_from(["linear", "exp"]))
def test_a_schedule_falls_from_start_to_finish_and_stays_there(a, b, length, decay):
    start, finish = max(a, b), min(a, b)
    schedule = DecayThenFlat(start=start, finish=finish, time_length=length, decay=decay)
    assert schedule(0) == pytest.approx(start)
    for later in (length, length + 1, 10 * length):
        assert schedule(later) == pytest.approx(finish, abs=1e-9)
    values = [schedule(length * i // 20) for i in range(30)]
    for earlier, later in itertools.pairwise(values):
        assert later <= earlier + 1e-12
    assert all(finish - 1e-12 <= value <= start + 1e-12 for value in values)


def test_a_linear_schedule_is_half_way_at_half_time():
    schedule = DecayThenFlat(start=1.0, finish=0.05, time_length=50_000)
    assert schedule(25_000) == pytest.approx(0.525)
    assert schedule(10_000) == pytest.approx(0.81)


def test_an_exponential_schedule_loses_the_same_share_in_the_same_time():
    schedule = DecayThenFlat(start=0.8, finish=0.05, time_length=400, decay="exp")
    assert schedule(200) == pytest.approx((0.8 * 0.05) ** 0.5)
    assert schedule(100) / schedule(0) == pytest.approx(schedule(300) / schedule(200))
