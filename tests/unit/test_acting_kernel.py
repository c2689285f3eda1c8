"""Acting in one call beside inputs, network and selector in torch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from omg.compiled import use_kernels
from omg.components.action_selectors import (
    Choice,
    EpsilonGreedy,
    Exploring,
    Mixture,
    Multinomial,
    SoftPolicies,
)
from omg.components.action_selectors import DecayThenFlat as Decay
from omg.config.loader import load_command_line
from omg.modules.agents.networks import RNNAgent
from omg.modules.kernels.acting import Shown, acting_kernel
from omg.policies.inputs import StepView
from omg.policies.policy import Policy
from omg.types import EnvSpec

kernel, reason = acting_kernel()
pytestmark = pytest.mark.skipif(kernel is None, reason=reason)

CHOICES = {
    "best": Choice("best"),
    "epsilon": Choice("epsilon", 0.4),
    "sample": Choice("sample"),
    "sample with a share": Choice("sample", mixture=Mixture(1.7, 0.3)),
    "masked after": Choice("sample", mixture=Mixture(0.6, 0.3, True)),
}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Case:
    """A network, and what rows of it are shown."""

    def __init__(
        self,
        copies: int,
        agents: int,
        obs_dim: int,
        actions: int,
        *,
        hidden: int = 32,
        shown: tuple[bool, bool] = (True, True),
        dueling: bool = False,
        some: bool = False,
    ) -> None:
        torch.manual_seed(copies + 7 * agents + 31 * actions)
        last, seat = shown
        self.shown = Shown(n_agents=agents, last_action=last, seat=seat, scale=0.25)
        width = self.shown.width(obs_dim, actions)
        self.network = RNNAgent(
            input_dim=width, n_actions=actions, hidden_dim=hidden, dueling=dueling
        )
        n = max(agents - 1, 1) if some else agents
        self.seats = torch.rand(copies, agents).argsort(1)[:, :n] if some else None
        self.obs = torch.randn(copies, n, obs_dim)
        self.last = torch.randint(-1, actions, (copies, n))
        self.avail = torch.rand(copies, n, actions) < 0.6
        self.avail[..., -1] = True
        self.before = torch.randn(copies, n, hidden)

    @torch.no_grad()
    def act(self, choice: Choice) -> tuple[Tensor, Tensor]:
        found = self.network.act(
            *(self.shown, self.obs, self.last, self.avail, self.seats, self.before, choice),
            torch.Generator().manual_seed(3),
        )
        assert found is not None
        return found

    @torch.no_grad()
    def in_torch(self) -> tuple[Tensor, Tensor]:
        """Outputs and hidden states by torch's layers."""
        network, agents = self.network, self.shown.n_agents
        copies, n, actions = self.avail.shape
        parts = [self.obs * self.shown.scale]
        if self.shown.last_action:
            parts.append((self.last.unsqueeze(-1) == torch.arange(actions)).float())
        if self.shown.seat:
            seats = torch.arange(n).expand(copies, n) if self.seats is None else self.seats
            parts.append(torch.eye(agents)[seats])
        x = torch.relu(network.fc1(torch.cat(parts, -1).flatten(0, 1)))
        hidden = network.rnn(x, self.before.flatten(0, 1))
        return network.fc2(hidden).view(copies, n, -1), hidden.view(copies, n, -1)


def assert_chosen_alike(found: Tensor, outputs: Tensor, avail: Tensor, choice: Choice) -> None:
    """The same actions; where two are equally good up to rounding, either."""
    again = torch.Generator().manual_seed(3)
    expected = choice(outputs, avail, again)
    differ = found != expected
    assert avail.gather(-1, found.unsqueeze(-1)).all()
    if differ.any():
        chances, draws = choice.draws(avail, again.manual_seed(3))
        scores = outputs if choice.how != "sample" else choice.mixture(outputs, avail) / draws
        ours, theirs = (scores.gather(-1, a.unsqueeze(-1)).squeeze(-1) for a in (found, expected))
        torch.testing.assert_close(ours[differ], theirs[differ], rtol=1e-4, atol=1e-5)
        assert chances is None or (chances[differ] >= choice.epsilon).all()


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 5), st.integers(1, 40), st.integers(1, 19)),
    hidden=st.sampled_from([32, 64, 96]),
    shown=st.tuples(st.booleans(), st.booleans()),
    dueling=st.booleans(),
    some=st.booleans(),
    choice=st.sampled_from(sorted(CHOICES)),
    threads=st.sampled_from([1, 2]),
)
def test_actions_and_hidden_states_are_those_of_torch(
    sizes: tuple[int, int, int, int],
    hidden: int,
    shown: tuple[bool, bool],
    dueling: bool,
    some: bool,
    choice: str,
    threads: int,
) -> None:
    torch.set_num_threads(threads)
    case = Case(*sizes, hidden=hidden, shown=shown, dueling=dueling, some=some)
    found, after = case.act(CHOICES[choice])
    outputs, hidden_after = case.in_torch()
    torch.testing.assert_close(after, hidden_after, rtol=1e-4, atol=1e-5)
    assert_chosen_alike(found, outputs, case.avail, CHOICES[choice])


@pytest.mark.parametrize("choice", sorted(CHOICES))
def test_threads_change_nothing(choice: str) -> None:
    case = Case(50, 3, 18, 5, hidden=64)
    results = []
    for threads in (1, 2, 2):
        torch.set_num_threads(threads)
        results.append(case.act(CHOICES[choice]))
    for one, other in pairwise(results):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


def test_samples_have_the_mixtures_distribution() -> None:
    case = Case(4000, 1, 3, 4, shown=(False, False))
    case.obs[:], case.before[:] = case.obs[0].clone(), case.before[0].clone()
    case.avail[:] = torch.tensor([True, False, True, True])
    for name in ("sample", "sample with a share", "masked after"):
        choice = CHOICES[name]
        found, _ = case.act(choice)
        share = torch.bincount(found.flatten(), minlength=4) / 4000
        expected = choice.mixture(case.in_torch()[0][0, 0], case.avail[0, 0])
        torch.testing.assert_close(share, expected, atol=0.03, rtol=0)


def test_weights_that_change_are_packed_again() -> None:
    case = Case(5, 2, 6, 5)
    case.act(CHOICES["best"])
    with torch.no_grad():
        case.network.fc1.weight.mul_(-2.0)
        case.network.fc2.bias.add_(torch.randn(5))
    _, after = case.act(CHOICES["best"])
    torch.testing.assert_close(after, case.in_torch()[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("broken", ["last", "seats", "shape"])
def test_rows_that_do_not_fit_are_refused(broken: str) -> None:
    case = Case(3, 2, 4, 5, some=True)
    if broken == "last":
        case.last[1, 0] = 5
    elif broken == "seats":
        assert case.seats is not None
        case.seats[0, 0] = 2
    else:
        case.obs = case.obs[:, :, :3]
    with pytest.raises((IndexError, ValueError)):
        case.act(CHOICES["best"])


class _Own(EpsilonGreedy):
    """Explores in its own way."""

    def _explore(
        self, outputs: Tensor, avail: Tensor, env_steps: int, generator: torch.Generator
    ) -> Tensor:
        return avail.int().argmax(-1)


class _OwnChances(SoftPolicies):
    """Has its own probabilities."""

    def probabilities(self, outputs: Tensor, avail: Tensor, *, env_steps: int) -> Tensor:
        return avail / avail.sum(-1, keepdim=True)


@pytest.mark.parametrize("kind", [_Own, _OwnChances])
def test_a_selector_that_explores_in_its_own_way_is_asked_itself(kind: type[Exploring]) -> None:
    selector = kind(epsilon=Decay(start=0.5, finish=0.5, time_length=1))
    assert selector.choice(0, greedy=False) is None
    assert selector.choice(0, greedy=True) == Choice("best")


@pytest.mark.parametrize("kind", [EpsilonGreedy, Multinomial, SoftPolicies])
@pytest.mark.parametrize("greedy", [False, True])
def test_a_choice_in_numbers_is_what_its_selector_selects(
    kind: type[Exploring], greedy: bool
) -> None:
    selector = kind(epsilon=Decay(start=0.5, finish=0.1, time_length=10), temperature=0.7)
    generator = torch.Generator().manual_seed(0)
    outputs, avail = torch.randn(30, 2, 5), torch.rand(30, 2, 5) < 0.5
    avail[..., 0] = True
    choice = selector.choice(3, greedy=greedy)
    assert choice is not None
    found = choice(outputs, avail, generator)
    expected = selector.select(
        outputs, avail, env_steps=3, greedy=greedy, generator=generator.manual_seed(0)
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize("words", [(), ("--dueling=true",), ("--obs_last_action=false",)])
def test_a_policy_acts_with_the_kernels_as_without(words: tuple[str, ...]) -> None:
    config = load_command_line(["--config=qmix", "--env-config=spread", *words]).config
    spec = EnvSpec(name="game", n_agents=3, n_actions=5, obs_dim=7, state_dim=9, episode_limit=5)
    torch.manual_seed(0)
    policy = Policy(config=config, spec=spec, device=torch.device("cpu"))
    copies = 20
    view = StepView(
        obs=torch.randn(copies, 3, 7),
        state=torch.randn(copies, 9),
        avail=torch.ones(copies, 3, 5, dtype=torch.bool),
        last_actions=torch.randint(-1, 5, (copies, 3)),
    )
    hidden = torch.randn(copies, 3, policy.network.carry_dim)
    results = []
    for on in (True, False):
        use_kernels(on)
        try:
            with torch.no_grad():
                generator = torch.Generator().manual_seed(1)
                told = {"env_steps": 0, "greedy": False, "generator": generator}
                results.append((*policy.act(view, hidden, **told), generator.get_state()))  # type: ignore[arg-type]
        finally:
            use_kernels(True)
    (ours, after, drawn), (theirs, expected, drawn_too) = results
    assert torch.equal(ours, theirs)
    assert torch.equal(drawn, drawn_too)
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("storage", [torch.float32, torch.int8, torch.uint8])
@pytest.mark.parametrize("shown", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("some", [False, True])
def test_inputs_of_stored_episodes_are_those_of_torch(
    storage: torch.dtype, shown: tuple[bool, bool], some: bool
) -> None:
    assert kernel is not None
    torch.manual_seed(4)
    batch, steps, agents, width, actions = 5, 7, 3, 4, 6
    last, seat = shown
    n = 2 if some else agents
    told = Shown(n_agents=agents, last_action=last, seat=seat, scale=0.125)
    obs = (40 * torch.rand(batch, steps, n, width)).to(storage)
    chosen = torch.randint(0, actions, (batch, steps, n)).to(torch.uint8)
    place = torch.randperm(batch * steps)[:20]
    seats = torch.rand(batch, agents).argsort(1)[:, :n] if some else None
    found = kernel.inputs(told, obs, chosen, place, seats, actions)
    assert found is not None
    for row, at in zip(found, place.tolist(), strict=True):
        episode, time = divmod(at, steps)
        for i in range(n):
            expected = [obs[episode, time, i].float() * 0.125]
            if last:
                before = torch.zeros(actions)
                if time > 0:
                    before[int(chosen[episode, time - 1, i])] = 1.0
                expected.append(before)
            if seat:
                where = i if seats is None else int(seats[episode, i])
                expected.append(torch.eye(agents)[where])
            assert torch.equal(row[i], torch.cat(expected))


def test_stored_inputs_that_do_not_fit_are_refused() -> None:
    assert kernel is not None
    told = Shown(n_agents=2, last_action=True, seat=True)
    obs, chosen = torch.zeros(2, 3, 2, 4), torch.zeros(2, 3, 2, dtype=torch.uint8)
    with pytest.raises(IndexError, match="does not exist"):
        kernel.inputs(told, obs, chosen, torch.tensor([6]), None, 5)
    with pytest.raises(IndexError, match="does not exist"):
        kernel.inputs(told, obs, chosen, torch.tensor([0]), torch.full((2, 2), 2), 5)
    assert kernel.inputs(told, obs.half(), chosen, torch.tensor([0]), None, 5) is None
