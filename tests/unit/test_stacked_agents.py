"""Stacked networks against the same networks called one by one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.modules.agents import AGENTS
from omg.modules.agents import stacked as stacked_module
from omg.modules.agents.stacked import Grouping, StackedAgents
from omg.modules.device import load_library
from omg.modules.kernels.stacked import stacked_kernel

KINDS = [(name, dueling) for name in ("rnn", "mlp", "idv_rnn") for dueling in (False, True)]
SEATS = 3
BY_TORCH, BY_KERNEL = 5, 64  # hidden units; the compiled kernel takes whole vectors only

needs_compiler = pytest.mark.skipif(
    load_library("stacked.c")[0] is None, reason="no C compiler on this machine"
)


def new_networks(
    count, name="rnn", *, dueling=False, hidden_dim=5, input_dim=4, n_actions=3, n_agents=SEATS
):
    given = {
        "input_dim": input_dim,
        "n_actions": n_actions,
        "hidden_dim": hidden_dim,
        "mlp_hidden_dims": (7, hidden_dim),
        "dueling": dueling,
        "n_agents": n_agents,
    }
    return [AGENTS.build(name, {}, **given) for _ in range(count)]


def seats_for(rows):
    """Some seat for every row, the same in every call."""
    return torch.arange(rows) * 5 % 7 % SEATS


def random_rows(stack, rows, input_dim=4):
    return torch.randn(rows, input_dim), torch.randn(rows, stack.carry_dim)


def one_by_one(networks, inputs, members, carry):
    seats = seats_for(len(members))
    steps = [
        networks[k].step(*(value[r : r + 1] for value in (inputs, carry, seats)))
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


@pytest.mark.long
@pytest.mark.parametrize("hidden_dim", [BY_TORCH, BY_KERNEL])
@pytest.mark.parametrize(("name", "dueling"), KINDS)
@given(line_up=line_ups(), seed=st.integers(0, 2**32 - 1))
def test_every_row_is_computed_by_its_member(name, dueling, hidden_dim, line_up, seed):
    torch.manual_seed(seed)
    count, members = line_up
    networks = new_networks(count, name, dueling=dueling, hidden_dim=hidden_dim)
    stack = StackedAgents.from_networks(networks)
    inputs, carry = random_rows(stack, len(members))
    found = stack.step_rows(inputs, members, carry, seats_for(len(members)))
    expected = one_by_one(networks, inputs, members, carry)
    assert found[0].shape == (len(members), stack.n_actions)
    assert found[1].shape == (len(members), stack.carry_dim)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("dueling", [False, True])
@given(
    hidden_dim=st.sampled_from([32, 64, 96]),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    counts=st.lists(st.integers(0, 80), min_size=1, max_size=6).filter(any),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_kernel_equals_torch_for_any_sizes_and_counts(dueling, hidden_dim, sizes, counts, seed):
    torch.manual_seed(seed)
    input_dim, n_actions = sizes
    networks = new_networks(
        len(counts),
        dueling=dueling,
        hidden_dim=hidden_dim,
        input_dim=input_dim,
        n_actions=n_actions,
    )
    stack = StackedAgents.from_networks(networks)
    members = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
    members = members[torch.randperm(len(members))]
    inputs, carry = random_rows(stack, len(members), input_dim)
    found = stack.step_rows(inputs, members, carry)
    assert stack._packed is not None
    expected = stack._step(stack.group(members), inputs, carry)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-5)


@needs_compiler
def test_the_kernel_passes_its_self_test_and_takes_usual_sizes():
    kernel, _ = stacked_kernel()
    assert kernel is not None
    assert kernel.fits(torch.zeros(3, 4), 64)
    assert not kernel.fits(torch.zeros(3, 4), 20)
    assert not kernel.fits(torch.zeros(3, 4, dtype=torch.float64), 64)


@needs_compiler
def test_two_threads_give_the_same_bits_as_one():
    stack = StackedAgents.from_networks(new_networks(5, hidden_dim=BY_KERNEL))
    members = torch.arange(200) ** 2 % 5
    inputs, carry = random_rows(stack, 200)
    one = stack.step_rows(inputs, members, carry)
    torch.set_num_threads(2)
    try:
        two = stack.step_rows(inputs, members, carry)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@needs_compiler
def test_rows_that_are_no_contiguous_block_are_read_rightly():
    stack = StackedAgents.from_networks(new_networks(2, hidden_dim=BY_KERNEL))
    inputs, carry = torch.randn(4, 6).mT, torch.randn(6, 2 * BY_KERNEL)[:, ::2]
    members = torch.arange(12)[::2] % 4 // 2
    found = stack.step_rows(inputs, members, carry)
    expected = stack.step_rows(inputs.contiguous(), members.contiguous(), carry.contiguous())
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@needs_compiler
@pytest.mark.parametrize("change", ["inputs", "members", "carry", "dtype", "double"])
def test_rows_of_other_shapes_never_reach_the_kernel(change):
    stack = StackedAgents.from_networks(new_networks(2, hidden_dim=BY_KERNEL))
    inputs, carry = random_rows(stack, 6)
    members = torch.zeros(6, dtype=torch.int64)
    wrong = {
        "inputs": (inputs[:, :3], members, carry),
        "members": (inputs, members[:5], carry),
        "carry": (inputs, members, carry[:5]),
        "dtype": (inputs, members.to(torch.int32), carry),
        "double": (inputs, members, carry.double()),
    }
    with pytest.raises(ValueError, match="do not fit"):
        stack.step_rows(*wrong[change])


@needs_compiler
@given(
    rows=st.integers(1, 50),
    kinds=st.integers(1, 7),
    hidden_dim=st.sampled_from([32, 64, 96]),
    n_actions=st.integers(1, 20),
)
def test_variants_of_any_shape_equal_single_steps(rows, kinds, hidden_dim, n_actions):
    (agent,) = new_networks(1, hidden_dim=hidden_dim, input_dim=9, n_actions=n_actions)
    inputs, features = torch.randn(rows, 4), torch.randn(rows, kinds, 5)
    carry = torch.randn(rows, hidden_dim)
    with torch.no_grad():
        found = agent.variants(inputs, features, carry)
    expected = agent.variants(inputs, features, carry)  # with gradient: torch
    torch.testing.assert_close(found, expected.detach(), atol=1e-5, rtol=1e-5)


@needs_compiler
def test_new_weights_are_used_by_the_kernel_too():
    first, second = (
        StackedAgents.from_networks(new_networks(2, hidden_dim=BY_KERNEL)) for _ in range(2)
    )
    inputs, carry = random_rows(first, 5)
    members = torch.tensor([0, 1, 1, 0, 1])
    before, wanted = (stack.step_rows(inputs, members, carry)[0] for stack in (first, second))
    first.load_state_dict(second.state_dict())
    assert not torch.equal(before, wanted)
    assert torch.equal(first.step_rows(inputs, members, carry)[0], wanted)
    doubled = first.to(torch.float64).to(torch.float32).step_rows(inputs, members, carry)[0]
    assert torch.equal(doubled, wanted)


@pytest.mark.parametrize("hidden_dim", [BY_TORCH, BY_KERNEL])
def test_gradients_of_inputs_pass_through_a_frozen_stack(hidden_dim):
    networks = new_networks(2, hidden_dim=hidden_dim)
    stack = StackedAgents.from_networks(networks)
    members = torch.tensor([1, 0, 1])
    inputs, carry = random_rows(stack, 3)
    inputs.requires_grad_()
    found = torch.autograd.grad(stack.step_rows(inputs, members, carry)[0].sum(), inputs)[0]
    wanted = torch.autograd.grad(one_by_one(networks, inputs, members, carry)[0].sum(), inputs)[0]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("width", [0, 1, 3, 9])
@pytest.mark.parametrize(("name", "dueling"), KINDS)
def test_the_width_of_the_grid_changes_no_value(monkeypatch, name, dueling, width):
    monkeypatch.setattr(stacked_module, "_grid_width", lambda counts: width)
    networks = new_networks(4, name, dueling=dueling)
    stack = StackedAgents.from_networks(networks)
    members = torch.tensor([3, 0, 3, 3, 1, 0, 3, 3, 3, 3])
    inputs, carry = random_rows(stack, 10)
    for mine, theirs in zip(
        stack.step_rows(inputs, members, carry, seats_for(10)),
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
    stack.step_rows(
        torch.ones(6, 4), torch.arange(6) % 3, torch.ones(6, stack.carry_dim), seats_for(6)
    )
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
        stack.step_rows(inputs, members, carry, seats_for(7)),
        one_by_one(networks, inputs, members, carry),
    ):
        (outputs.square().sum() + hidden.square().sum()).backward()
    agents = [agent for network in networks for agent in getattr(network, "agents", [network])]
    for key, parameter in stack.named_parameters():
        for network, found in zip(agents, parameter.grad, strict=True):
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
    outputs, after = stack.step_rows(inputs, nobody, carry, nobody)
    assert outputs.shape == (0, 3)
    assert after.shape == (0, stack.carry_dim)


@pytest.mark.long
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


def test_rows_are_sorted_anew_only_when_the_line_up_changes(monkeypatch):
    sorted_anew = []
    of = Grouping.of
    monkeypatch.setattr(
        Grouping, "of", lambda members, count: sorted_anew.append(1) or of(members, count)
    )
    networks = new_networks(3)
    stack = StackedAgents.from_networks(networks)
    members = torch.tensor([0, 2, 1, 2, 0])
    inputs, carry = random_rows(stack, 5)
    for expected_sorts, change in ((1, None), (1, None), (2, 0), (2, None), (3, slice(0, 4))):
        if isinstance(change, slice):
            members, inputs, carry = members[change], inputs[change], carry[change]
        elif change is not None:
            members[change] = 1  # the same tensor with other members
        outputs, after = stack.step_rows(inputs, members, carry)
        for mine, theirs in zip(
            (outputs, after), one_by_one(networks, inputs, members, carry), strict=True
        ):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
        assert len(sorted_anew) == expected_sorts


def test_a_kept_grouping_made_while_acting_serves_a_pass_with_gradients():
    stack = StackedAgents.from_networks(new_networks(2), trainable=True)
    inputs, carry = random_rows(stack, 3)
    members = torch.tensor([1, 0, 1])
    with torch.inference_mode():
        stack.step_rows(inputs, members, carry)
    stack.step_rows(inputs, members, carry)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in stack.parameters())


def test_members_that_differ_by_seat_need_seats():
    stack = StackedAgents.from_networks(new_networks(2, "idv_rnn"))
    inputs, carry = random_rows(stack, 3)
    with pytest.raises(ValueError, match="seat"):
        stack.step_rows(inputs, torch.tensor([1, 0, 1]), carry)


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
        [*new_networks(1, "idv_rnn"), *new_networks(1, "idv_rnn", n_agents=2)],
    ],
    ids=["none", "classes", "widths", "heads", "seats"],
)
def test_networks_that_differ_are_refused(networks):
    with pytest.raises(ValueError, match="stacked"):
        StackedAgents.from_networks(networks)


@pytest.mark.parametrize("hidden_dim", [BY_TORCH, BY_KERNEL])
@pytest.mark.parametrize("member", [2, -1])
def test_a_member_that_does_not_exist_is_refused(hidden_dim, member):
    stack = StackedAgents.from_networks(new_networks(2, hidden_dim=hidden_dim))
    inputs, carry = random_rows(stack, 1)
    with pytest.raises(IndexError, match="none of the 2 members"):
        stack.step_rows(inputs, torch.tensor([member]), carry)
