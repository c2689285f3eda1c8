"""Packing and targets, by hand and by slow loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.functional import Packing, gather_actions, next_action_values, td_targets

sizes = st.integers(1, 5)
seeds = st.integers(0, 2**32 - 1)


def bools(text):
    """'110' -> [True, True, False]"""
    return torch.tensor([[c == "1" for c in text]])


def transitions(filled, terminated):
    """1 where a slot is a transition, [B, T - 1]."""
    packing = Packing.of(filled, terminated)
    mask = torch.zeros(filled.shape[0], max(filled.shape[1] - 1, 0), dtype=torch.int64)
    mask[packing.episode[packing.now], packing.time[packing.now]] = 1
    return mask


@pytest.mark.parametrize(
    ("case", "filled", "terminated", "expected"),
    [
        ("terminated early", "11100", "01000", [1, 1, 0, 0]),
        ("truncated early", "11100", "00000", [1, 1, 0, 0]),
        ("full length, terminated with the last step", "11111", "00010", [1, 1, 1, 1]),
        ("full length, truncated", "11111", "00000", [1, 1, 1, 1]),
        ("terminated with the first step", "11000", "10000", [1, 0, 0, 0]),
        ("steps recorded after the end", "11111", "01000", [1, 1, 0, 1]),
        ("nothing but the first observation", "10000", "00000", [0, 0, 0, 0]),
        ("nothing at all", "00000", "00000", [0, 0, 0, 0]),
        ("two slots, terminated", "11", "10", [1]),
        ("two slots, truncated", "11", "00", [1]),
        ("two slots, one filled", "10", "00", [0]),
        ("one slot", "1", "0", []),
    ],
)
def test_transitions_are_the_steps_with_a_successor_that_no_end_precedes(
    case, filled, terminated, expected
):
    assert transitions(bools(filled), bools(terminated)).tolist() == [expected], case


@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=6), seed=seeds)
def test_every_step_made_is_a_transition_whether_its_episode_terminated_or_was_cut(lengths, seed):
    torch.manual_seed(seed)
    time, steps = torch.arange(8), torch.tensor(lengths).unsqueeze(1)
    ends = (time == steps - 1) & (torch.rand(len(lengths), 1) < 0.5)
    assert transitions(time <= steps, ends).sum(1).tolist() == lengths


lengths_lists = st.lists(st.integers(1, 7), min_size=1, max_size=6)


@given(lengths=lengths_lists, seed=seeds)
def test_packing_lists_every_filled_slot_once_by_time_and_unpacks_to_where_it_was(lengths, seed):
    torch.manual_seed(seed)
    filled = torch.arange(8) < torch.tensor(lengths).unsqueeze(1)
    values = torch.randn(len(lengths), 8, 3) * filled.unsqueeze(-1)
    packing = Packing.of(filled, torch.zeros_like(filled))
    slots = list(zip(packing.episode.tolist(), packing.time.tolist(), strict=True))
    assert sorted(slots) == [(b, t) for b, n in enumerate(lengths) for t in range(n)]
    assert packing.time.tolist() == sorted(packing.time.tolist())
    assert packing.sizes.tolist() == [sum(n > t for n in lengths) for t in range(max(lengths))]
    assert torch.equal(packing.unpack(packing.pack(values)), values)


@given(lengths=lengths_lists, seed=seeds)
def test_packed_neighbours_are_the_steps_before_and_after_in_the_same_episode(lengths, seed):
    torch.manual_seed(seed)
    filled = torch.arange(8) < torch.tensor(lengths).unsqueeze(1)
    packing = Packing.of(filled, torch.zeros_like(filled))
    assert torch.equal(packing.episode[packing.next], packing.episode[packing.now])
    assert torch.equal(packing.time[packing.next], packing.time[packing.now] + 1)
    values = torch.randn(len(lengths), 8)
    earlier = packing.pack_previous(values, -1.0)
    for slot, (b, t) in enumerate(zip(packing.episode, packing.time, strict=True)):
        assert earlier[slot] == (values[b, t - 1] if t > 0 else -1.0)
    assert torch.equal(packing.take(values, packing.now), packing.pack(values)[packing.now])


@st.composite
def action_values(draw):
    """Online and target values [B, T, N, A] with at least one action available everywhere."""
    shape = tuple(draw(sizes) for _ in range(4))
    torch.manual_seed(draw(seeds))
    online, target = 100 * torch.randn(shape), 100 * torch.randn(shape)
    avail = torch.rand(shape) < 0.5
    return online, target, avail.scatter(-1, torch.randint(shape[-1], (*shape[:-1], 1)), True)


def cells(tensor):
    """All index tuples over [B, T, N]."""
    return torch.cartesian_prod(*(torch.arange(n) for n in tensor.shape[:3])).tolist()


@given(action_values())
def test_plain_targets_take_the_best_available_target_value(values):
    online, target, avail = values
    found = next_action_values(online, target, avail, double=False)
    for b, t, n in cells(avail):
        allowed = [q for q, ok in zip(target[b, t, n], avail[b, t, n], strict=True) if ok]
        assert found[b, t, n] == max(allowed)


@given(action_values())
def test_double_targets_value_the_online_networks_choice_by_the_target_network(values):
    online, target, avail = values
    found = next_action_values(online, target, avail, double=True)
    for b, t, n in cells(avail):
        allowed = [a for a in range(avail.shape[-1]) if avail[b, t, n, a]]
        best = max(allowed, key=lambda a: online[b, t, n, a].item())
        assert found[b, t, n] == target[b, t, n, best]


@given(values=action_values(), double=st.booleans())
def test_unavailable_actions_are_never_bootstrapped_from(values, double):
    online, target, avail = values
    found = next_action_values(online, target, avail, double=double)
    tempting = 1e6 * (~avail)
    again = next_action_values(online + tempting, target + tempting, avail, double=double)
    assert torch.equal(found, again)


def test_double_and_plain_targets_differ_where_the_networks_disagree():
    online, target = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[[2.0, 5.0]]]])
    avail = torch.ones_like(online, dtype=torch.bool)
    assert next_action_values(online, target, avail, double=True).item() == 2.0
    assert next_action_values(online, target, avail, double=False).item() == 5.0


@pytest.mark.parametrize("double", [False, True])
def test_padding_without_any_available_action_stays_finite(double):
    zeros = torch.zeros(1, 1, 2, 3)
    assert next_action_values(zeros, zeros, zeros.bool(), double=double).isfinite().all()


def test_no_gradient_reaches_the_network_that_chooses():
    online, target = torch.randn(1, 2, 2, 3, requires_grad=True), torch.randn(1, 2, 2, 3)
    avail = torch.ones_like(target, dtype=torch.bool)
    assert not next_action_values(online, target, avail, double=True).requires_grad


@given(action_values())
def test_gathering_picks_the_values_of_the_actions_taken(values):
    online, _, avail = values
    actions = torch.randint(online.shape[-1], online.shape[:-1])
    found = gather_actions(online, actions)
    for b, t, n in cells(avail):
        assert found[b, t, n] == online[b, t, n, actions[b, t, n]]


@pytest.mark.long
@given(
    batch=sizes, steps=sizes, agents=sizes, common=st.booleans(), gamma=st.floats(0, 1), seed=seeds
)
def test_targets_are_the_reward_plus_the_discounted_next_value_unless_terminated(
    batch, steps, agents, common, gamma, seed
):
    torch.manual_seed(seed)
    reward = torch.randn(batch, steps, 1 if common else agents)
    terminated = torch.rand(batch, steps) < 0.4
    next_values = torch.randn(batch, steps, agents)
    found = td_targets(reward, terminated, next_values, gamma=gamma)
    assert found.shape == next_values.shape
    for b, t, n in cells(next_values):
        expected = reward[b, t, 0 if common else n]
        if not terminated[b, t]:
            expected = expected + gamma * next_values[b, t, n]
        torch.testing.assert_close(found[b, t, n], expected)


def test_a_packing_first_made_while_acting_serves_a_later_update():
    filled, terminated = torch.ones(3, 7, dtype=torch.bool), torch.zeros(3, 7, dtype=torch.bool)
    with torch.inference_mode():
        Packing.of(filled.clone(), terminated.clone())
    values = torch.randn(21, 2, requires_grad=True)
    packing = Packing.of(filled, terminated)
    values.index_select(0, packing.now).sum().backward()
    assert values.grad is not None
