"""Single steps from the states of whole sequences, in the kernel: against torch's own layers, step
by step, and with what a pass over the sequences already found against without."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from omg.functional import Packing
from omg.modules.agents.networks import RNNAgent
from omg.modules.device import use_kernels
from omg.modules.kernels.branches import Branches, BranchKernel, branch_kernel

pytestmark = pytest.mark.skipif(branch_kernel()[0] is None, reason="no C compiler here")


def passed(
    sizes: list[int],
    *,
    kinds: int,
    inputs: int = 5,
    features: int = 3,
    hidden: int = 32,
    n_actions: int = 4,
    seed: int = 0,
    dueling: bool = False,
) -> tuple[RNNAgent, Branches]:
    """An agent after a pass over sequences, and steps from rows that others follow, some from no
    row at all; some alternatives are not wanted."""
    torch.manual_seed(seed)
    agent = RNNAgent(
        input_dim=inputs + features, n_actions=n_actions, hidden_dim=hidden, dueling=dueling
    )
    rows, steps = sum(sizes), torch.tensor(sizes)
    plain, fed = torch.randn(rows, inputs), torch.randn(rows, features)
    start = torch.zeros(sizes[0], hidden)
    _, states, products = agent.unroll_branching(torch.cat([plain, fed], -1), steps, start)
    assert products is not None
    followed = [torch.arange(n) + sum(sizes[:t]) for t, n in enumerate(sizes[1:])]
    before = torch.cat([*followed, torch.tensor([-1, -1])])
    places = torch.randint(-1, 6, (len(before), kinds))
    branches = Branches(
        inputs=plain,
        hidden=states.detach(),
        products=products,
        seats=torch.zeros(rows, dtype=torch.int64),
        table=torch.randn(6, features),
        at=torch.randint(rows, (len(before),)),
        before=before,
        places=places,
    )
    return agent, branches


def one_by_one(agent: RNNAgent, of: Branches) -> Tensor:
    """A loop over the alternatives, each a step by torch; zeros where none is wanted."""
    found = torch.zeros(*of.places.shape, agent.fc2.out_features)
    for row, (at, before) in enumerate(zip(of.at.tolist(), of.before.tolist(), strict=True)):
        state = of.hidden[before] if before >= 0 else torch.zeros(agent.carry_dim)
        for kind, place in enumerate(of.places[row].tolist()):
            if place >= 0:
                seen = torch.cat([of.inputs[at], of.table[place]]).unsqueeze(0)
                core = agent.rnn(torch.relu(agent.fc1(seen)), state.unsqueeze(0))
                found[row, kind] = agent.fc2(core)[0].detach()
    return found


@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    kinds=st.integers(1, 6),
    inputs=st.integers(1, 20),
    features=st.integers(0, 20),
    hidden=st.sampled_from([16, 48, 64]),
    n_actions=st.integers(1, 20),
    dueling=st.booleans(),
    threads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_every_step_is_the_one_torch_makes(sizes: list[int], threads: int, **given: int) -> None:
    agent, of = passed(sorted(sizes, reverse=True), **given)
    expected, before = one_by_one(agent, of), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            for branches in (of, replace(of, products=None)):
                found = agent.branches(branches)
                torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-4)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kinds", [81, 200])
def test_more_alternatives_than_a_block_holds(kinds: int) -> None:
    agent, of = passed([3, 2], kinds=kinds)
    with torch.no_grad():
        found = agent.branches(of)
    torch.testing.assert_close(found, one_by_one(agent, of), atol=2e-5, rtol=2e-4)


def test_steps_without_alternatives_never_reach_the_kernel() -> None:
    agent, of = passed([4, 2], kinds=1)
    kernel, weights = branch_kernel()[0], list(agent.parameters())
    assert isinstance(kernel, BranchKernel)
    with pytest.raises(ValueError, match="do not fit together"):
        kernel.outputs(replace(of, places=of.places[:, :0]), weights)


def test_threads_change_no_bit() -> None:
    agent, of = passed([40, 31, 8], kinds=5)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        with torch.no_grad():
            found.append(agent.branches(of))
    torch.set_num_threads(1)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_pass_before_branches_is_the_same_pass() -> None:
    torch.manual_seed(0)
    agent, sizes = RNNAgent(input_dim=7, n_actions=5, hidden_dim=48), torch.tensor([37, 20, 20, 1])
    inputs, start = torch.randn(int(sizes.sum()), 7), torch.randn(37, 48)
    results = []
    for unroll in (agent.unroll_packed, agent.unroll_branching):
        outputs, hidden, *_ = unroll(inputs, sizes, start)
        slopes = torch.autograd.grad(outputs.square().sum(), list(agent.parameters()))
        results.append([outputs, hidden, *slopes])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def test_without_kernels_nothing_is_known_and_the_values_are_the_same() -> None:
    agent, of = passed([9, 5], kinds=3)
    wanted = (of.places >= 0).unsqueeze(-1)
    use_kernels(False)
    try:
        with torch.no_grad():
            _, _, products = agent.unroll_branching(
                torch.randn(4, 8), torch.tensor([4]), of.hidden[:4]
            )
            slow = agent.branches(replace(of, products=None))
    finally:
        use_kernels(True)
    assert products is None
    torch.testing.assert_close(slow * wanted, one_by_one(agent, of), atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("name", ["at", "before", "places"])
@pytest.mark.parametrize("value", [-2, 1000])
def test_a_row_that_is_not_there_is_refused(name: str, value: int) -> None:
    agent, of = passed([5, 4], kinds=2)
    wrong = getattr(of, name).clone()
    wrong.view(-1)[0] = value
    with torch.no_grad(), pytest.raises(IndexError, match="not there"):
        agent.branches(replace(of, **{name: wrong}))


def test_shapes_that_do_not_fit_are_refused() -> None:
    agent, of = passed([5, 4], kinds=2)
    kernel, _ = branch_kernel()
    assert isinstance(kernel, BranchKernel)
    assert of.products is not None
    for wrong in (
        replace(of, table=of.table[:, :-1]),
        replace(of, before=of.before[1:]),
        replace(of, products=of.products[1:]),
        replace(of, places=of.places.int()),
    ):
        with torch.no_grad(), pytest.raises(ValueError, match="do not fit"):
            agent.branches(wrong)


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_the_slot_before_a_slot_is_one_step_earlier_in_its_episode(
    lengths: list[int], seed: int
) -> None:
    filled = torch.arange(6) < torch.tensor(lengths).unsqueeze(1)
    packing = Packing.of(filled, torch.zeros_like(filled))
    slots = torch.randint(len(packing.time), (20,), generator=torch.Generator().manual_seed(seed))
    places = {
        (e, t): p
        for p, (e, t) in enumerate(
            zip(packing.episode.tolist(), packing.time.tolist(), strict=True)
        )
    }
    of = {p: place for place, p in places.items()}
    expected = [places.get((of[s][0], of[s][1] - 1), -1) for s in slots.tolist()]
    assert packing.earlier(slots).tolist() == expected
