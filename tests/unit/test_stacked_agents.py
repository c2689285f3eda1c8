"""Stacked networks against the same networks called one by one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.modules.agents import AGENTS
from omg.modules.agents import stacked as stacked_module
from omg.modules.agents.stacked import Grouping, StackedAgents

KINDS = [(name, dueling) for name in ("rnn", "mlp") for dueling in (False, True)]


def new_networks(count, name="rnn", *, dueling=False, hidden_dim=5, input_dim=4):
    return [
        AGENTS[name](
            input_dim=input_dim,
            n_actions=3,
            hidden_dim=hidden_dim,
            mlp_hidden_dims=(7, hidden_dim),
            dueling=dueling,
        )
        for _ in range(count)
    ]


def random_rows(stack, rows, input_dim=4):
    return torch.randn(rows, input_dim), torch.randn(rows, stack.carry_dim)


def one_by_one(networks, inputs, members, carry):
    steps = [
        networks[k].step(inputs[r : r + 1], carry[r : r + 1])
        for r, k in enumerate(members.tolist())
    ]
    outputs, carries = zip(*steps, strict=True)
    return torch.cat(outputs), torch.cat(carries)


@st.composite
def line_ups(draw):
    """How many members, and who computes each row: even, uneven, or one member nearly alone."""
    count = draw(st.integers(1, 12))
    rows = draw(st.integers(1, 60))
    members = st.integers(0, count - 1)
    if draw(st.booleans()):
        favourite = draw(members)
        members = st.one_of(*[st.just(favourite)] * 8, members)
    return count, torch.tensor(draw(st.lists(members, min_size=rows, max_size=rows)))


@pytest.mark.parametrize(("name", "dueling"), KINDS)
@given(line_up=line_ups(), seed=st.integers(0, 2**32 - 1))
def test_every_row_is_computed_by_its_member(name, dueling, line_up, seed):
    torch.manual_seed(seed)
    count, members = line_up
    networks = new_networks(count, name, dueling=dueling)
    stack = StackedAgents.from_networks(networks)
    inputs, carry = random_rows(stack, len(members))
    found, expected = (
        step(*rest, inputs, members, carry)
        for step, *rest in [(stack.step_rows,), (one_by_one, networks)]
    )
    assert found[0].shape == (len(members), stack.n_actions)
    assert found[1].shape == (len(members), stack.carry_dim)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [0, 1, 3, 9])
@pytest.mark.parametrize(("name", "dueling"), KINDS)
def test_the_width_of_the_grid_changes_no_value(monkeypatch, name, dueling, width):
    monkeypatch.setattr(stacked_module, "_grid_width", lambda counts: width)
    networks = new_networks(4, name, dueling=dueling)
    stack = StackedAgents.from_networks(networks)
    members = torch.tensor([3, 0, 3, 3, 1, 0, 3, 3, 3, 3])
    inputs, carry = random_rows(stack, 10)
    for mine, theirs in zip(
        stack.step_rows(inputs, members, carry),
        one_by_one(networks, inputs, members, carry),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@given(
    counts=st.lists(st.integers(0, 400), min_size=1, max_size=80).filter(any),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_row_has_one_place_and_padding_is_bounded(counts, seed):
    members = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    group = Grouping.of(torch.from_numpy(members), len(counts))
    if group.only is not None:
        assert (members == group.only).all()
        return
    assert torch.equal(group.rows[group.places], torch.arange(len(members)))
    assert torch.equal(group.members[group.places], torch.from_numpy(members))
    present = np.count_nonzero(counts)
    assert len(group.rows) <= len(members) + stacked_module._LOOP_COST * present
    for member, start, end in group.spans:
        assert (group.members[start:end] == member).all()


def test_a_busy_member_does_not_widen_the_grid_for_all():
    members = torch.cat([torch.zeros(10_000, dtype=torch.int64), torch.arange(64)])
    assert len(Grouping.of(members, 64).rows) < 11_000


def test_rows_of_one_member_are_left_as_they_are():
    group = Grouping.of(torch.full((20,), 5), 64)
    assert group.only == 5
    assert len(group.rows) == 0


def test_an_even_pool_is_one_batched_product():
    group = Grouping.of(torch.arange(512) % 64, 64)
    assert group.width == 8
    assert group.spans == ()


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize(("name", "dueling"), KINDS)
def test_members_state_gives_the_weights_back_bit_by_bit(name, dueling, trainable):
    networks = new_networks(3, name, dueling=dueling)
    stack = StackedAgents.from_networks(networks, trainable=trainable)
    stack.step_rows(*(torch.ones(6, 4), torch.arange(6) % 3, torch.ones(6, stack.carry_dim)))
    for k, network in enumerate(networks):
        state, original = stack.members_state(k), network.state_dict()
        assert list(state) == list(original)
        for key, value in original.items():
            assert torch.equal(state[key], value)
            assert state[key].is_contiguous()
            state[key].zero_()
        for key, value in stack.members_state(k).items():
            assert torch.equal(value, original[key])  # the zeroes went into a copy
        network.load_state_dict(stack.members_state(k))


def test_later_changes_of_a_network_do_not_reach_the_stack():
    networks = new_networks(2)
    stack = StackedAgents.from_networks(networks)
    before = stack.members_state(1)
    with torch.no_grad():
        for parameter in networks[1].parameters():
            parameter.add_(1)
    assert all(torch.equal(value, before[key]) for key, value in stack.members_state(1).items())


@pytest.mark.parametrize("name", ["rnn", "mlp"])
def test_a_frozen_stack_has_no_parameters_and_no_gradient(name):
    stack = StackedAgents.from_networks(new_networks(2, name))
    inputs, carry = random_rows(stack, 5)
    outputs, carry = stack.step_rows(inputs, torch.tensor([0, 1, 1, 0, 1]), carry)
    assert not list(stack.parameters())
    assert not outputs.requires_grad
    assert not carry.requires_grad


@pytest.mark.parametrize("width", [0, 2, 5])
@pytest.mark.parametrize(("name", "dueling"), KINDS)
def test_a_trainable_stack_has_the_networks_gradients(monkeypatch, name, dueling, width):
    monkeypatch.setattr(stacked_module, "_grid_width", lambda counts: width)
    networks = new_networks(3, name, dueling=dueling)
    stack = StackedAgents.from_networks(networks, trainable=True)
    members = torch.tensor([2, 0, 2, 2, 0, 2, 2])
    inputs, carry = random_rows(stack, 7)
    for outputs, hidden in (
        stack.step_rows(inputs, members, carry),
        one_by_one(networks, inputs, members, carry),
    ):
        (outputs.square().sum() + hidden.square().sum()).backward()
    for key, parameter in stack.named_parameters():
        for network, found in zip(networks, parameter.grad, strict=True):
            expected = network.get_parameter(key.replace("__", ".")).grad
            expected = (
                torch.zeros_like(found.mT if found.ndim == 2 else found)
                if expected is None
                else expected
            )
            torch.testing.assert_close(found.mT if found.ndim == 2 else found, expected)


@pytest.mark.parametrize(("name", "dueling"), KINDS)
def test_no_rows_give_no_rows(name, dueling):
    stack = StackedAgents.from_networks(new_networks(3, name, dueling=dueling))
    inputs, carry = random_rows(stack, 0)
    nobody = torch.empty(0, dtype=torch.int64)
    for members in (nobody, stack.group(nobody)):
        outputs, after = stack.step_rows(inputs, members, carry)
        assert outputs.shape == (0, 3)
        assert after.shape == (0, stack.carry_dim)


@pytest.mark.parametrize("name", ["rnn", "mlp"])
@given(line_up=line_ups(), seed=st.integers(0, 2**32 - 1))
def test_permuted_rows_give_permuted_outputs(name, line_up, seed):
    torch.manual_seed(seed)
    count, members = line_up
    stack = StackedAgents.from_networks(new_networks(count, name))
    inputs, carry = random_rows(stack, len(members))
    order = torch.randperm(len(members))
    plain = stack.step_rows(inputs, members, carry)
    shuffled = stack.step_rows(inputs[order], members[order], carry[order])
    for a, b in zip(plain, shuffled, strict=True):
        torch.testing.assert_close(a[order], b, atol=1e-5, rtol=1e-5)


@given(line_up=line_ups())
def test_a_grouping_can_be_kept_for_the_next_step(line_up):
    count, members = line_up
    stack = StackedAgents.from_networks(new_networks(count))
    inputs, carry = random_rows(stack, len(members))
    group = stack.group(members)
    for _ in range(2):
        fresh = stack.step_rows(inputs, members, carry)
        outputs, carry = stack.step_rows(inputs, group, carry)
        assert torch.equal(outputs, fresh[0])
        assert torch.equal(carry, fresh[1])


def test_a_stack_saves_and_loads_its_own_state():
    first, second = (StackedAgents.from_networks(new_networks(2)) for _ in range(2))
    second.load_state_dict(first.state_dict())
    for key, value in first.members_state(1).items():
        assert torch.equal(value, second.members_state(1)[key])


@pytest.mark.parametrize(
    "networks",
    [
        [],
        [*new_networks(1, "rnn"), *new_networks(1, "mlp")],
        [*new_networks(1), *new_networks(1, hidden_dim=6)],
        [*new_networks(1), *new_networks(1, dueling=True)],
    ],
    ids=["none", "classes", "widths", "heads"],
)
def test_networks_that_differ_are_refused(networks):
    with pytest.raises(ValueError, match="stacked"):
        StackedAgents.from_networks(networks)


def test_a_member_that_does_not_exist_is_refused():
    stack = StackedAgents.from_networks(new_networks(2))
    inputs, carry = random_rows(stack, 1)
    for member, error in ((2, IndexError), (-1, ValueError)):
        with pytest.raises(error):
            stack.step_rows(inputs, torch.tensor([member]), carry)
