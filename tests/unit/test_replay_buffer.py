"""The ring of episodes, compared with a plain deque of Python lists."""

import os
import sys
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.components.episodes import EpisodeBatch, Field, Scheme
from omg.components.trajectories import ReplayBuffer
from omg.types import OmgError

SCHEME = Scheme(
    fields={
        "obs": Field(vshape=(3,), group="agents"),
        "state": Field(vshape=(2,), storage=torch.int16),
        "actions": Field(dtype=torch.int64, storage=torch.uint8, group="agents"),
        "terminated": Field(dtype=torch.bool),
        "number": Field(dtype=torch.int64, episode_const=True),
    },
    groups={"agents": 2},
)
LONGEST = 7


class Episodes:
    """Makes numbered episodes whose every value differs from zero and tells its origin."""

    def __init__(self):
        self.made = 0

    def batch(self, lengths):
        batch = EpisodeBatch(SCHEME, batch_size=len(lengths), max_seq_length=max(lengths))
        for row, length in enumerate(lengths):
            self.made += 1
            time = torch.arange(1, length + 1)
            batch.update(
                {
                    "obs": (self.made + time / 10).view(1, -1, 1, 1),
                    "state": (100 * self.made + time).view(1, -1, 1),
                    "actions": 1 + (self.made + time).view(1, -1, 1) % 3,
                    "terminated": True,
                    "number": self.made,
                },
                rows=slice(row, row + 1),
                steps=slice(0, length),
            )
        return batch


def new_buffer(capacity=5, max_seq_length=LONGEST):
    return ReplayBuffer(SCHEME, capacity=capacity, max_seq_length=max_seq_length)


def filled_buffer(*lengths, capacity=5):
    buffer, episodes = new_buffer(capacity), Episodes()
    for length in lengths:
        buffer.insert_episode_batch(episodes.batch([length]))
    return buffer


def everything(buffer):
    """All episodes of the buffer, by their number."""
    batch = buffer.sample(buffer.episodes_in_buffer, np.random.default_rng(0))
    return {int(batch["number"][i]): batch[i] for i in range(len(batch))}


def assert_same(batch, other):
    assert torch.equal(batch.filled, other.filled)
    for name in SCHEME.fields:
        assert torch.equal(batch.raw(name), other.raw(name)), name


lengths_of_batches = st.lists(
    st.lists(st.integers(1, LONGEST), min_size=1, max_size=12), min_size=1, max_size=8
)


@pytest.mark.long
@given(capacity=st.integers(1, 6), inserts=lengths_of_batches)
def test_the_ring_holds_exactly_the_newest_episodes(capacity, inserts):
    buffer, episodes = new_buffer(capacity), Episodes()
    oracle = deque(maxlen=capacity)
    for lengths in inserts:
        batch = episodes.batch(lengths)
        buffer.insert_episode_batch(batch)
        oracle.extend(batch[i].copy() for i in range(len(batch)))
        assert buffer.episodes_in_buffer == len(oracle)
        held = everything(buffer)
        assert sorted(held) == [int(episode["number"]) for episode in oracle]
        for episode in oracle:
            length = int(episode.lengths)
            found = held[int(episode["number"])]
            assert found.lengths.tolist() == [length]
            assert_same(found[:, :length], episode[:, :length])


@given(capacity=st.integers(1, 4), inserts=lengths_of_batches)
def test_padding_is_zero_whatever_lay_there_before(capacity, inserts):
    buffer, episodes = new_buffer(capacity), Episodes()
    for lengths in inserts:
        buffer.insert_episode_batch(episodes.batch(lengths))
    state = buffer.state_dict()
    padding = ~state["filled"]
    assert torch.equal(state["filled"].sum(1), state["lengths"])
    for name, spec in SCHEME.fields.items():
        if not spec.episode_const:
            assert not state["data"][name][padding].any(), name
            assert state["data"][name][~padding].all(), name


def test_a_short_episode_leaves_nothing_of_the_longer_one_it_replaces():
    buffer = filled_buffer(LONGEST, 2, capacity=1)
    state = buffer.state_dict()
    assert state["filled"].tolist() == [[True] * 2 + [False] * (LONGEST - 2)]
    assert not state["data"]["obs"][:, 2:].any()
    assert (state["data"]["obs"][:, :2] > 2).all()


def test_the_rows_of_one_insert_may_straddle_the_end_of_the_ring():
    buffer, episodes = new_buffer(capacity=5), Episodes()
    buffer.insert_episode_batch(episodes.batch([3, 3, 3]))
    buffer.insert_episode_batch(episodes.batch([4, 5, 6, 7]))
    assert buffer.state_dict()["data"]["number"].tolist() == [6, 7, 3, 4, 5]
    assert buffer.state_dict()["lengths"].tolist() == [6, 7, 3, 4, 5]


def test_a_sample_is_cut_to_its_longest_episode():
    buffer = filled_buffer(2, 5, 3)
    rng = np.random.default_rng(0)
    for _ in range(20):
        sample = buffer.sample(2, rng)
        assert sample.max_seq_length == int(sample.lengths.max())
    assert buffer.sample(3, rng).max_seq_length == 5


def test_a_sample_belongs_to_the_caller():
    buffer = filled_buffer(3, 3)
    before = everything(buffer)
    sample = buffer.sample(2, np.random.default_rng(0))
    sample.update({"obs": 0.0, "number": 0})
    sample.filled[:] = False
    for number, episode in everything(buffer).items():
        assert_same(episode, before[number])


def test_the_buffer_does_not_follow_later_changes_of_what_was_inserted():
    buffer, batch = new_buffer(), Episodes().batch([3])
    buffer.insert_episode_batch(batch)
    batch.update({"obs": 0.0})
    assert everything(buffer)[1]["obs"].all()


def test_a_sample_never_holds_an_episode_twice():
    buffer = filled_buffer(*[1] * 5)
    rng = np.random.default_rng(0)
    for size in range(1, 6):
        for _ in range(50):
            assert len(set(buffer.sample(size, rng)["number"].tolist())) == size


@pytest.mark.parametrize(("inserted", "present"), [(4, range(1, 5)), (17, range(8, 18))])
def test_every_episode_present_is_sampled_equally_often(inserted, present):
    buffer = filled_buffer(*[1] * inserted, capacity=10)
    rng = np.random.default_rng(3)
    draws, size = 2000, 3
    numbers = np.concatenate([buffer.sample(size, rng)["number"].numpy() for _ in range(draws)])
    counts = np.array([(numbers == n).sum() for n in present])
    assert counts.sum() == draws * size
    expected = draws * size / len(counts)
    # 27.9 is passed once in a thousand runs by 9 degrees of freedom; without replacement, less.
    assert ((counts - expected) ** 2 / expected).sum() < 27.9


def test_the_same_random_stream_gives_the_same_samples():
    buffer = filled_buffer(1, 2, 3, 4)
    first, second = (buffer.sample(2, np.random.default_rng(5)) for _ in range(2))
    assert_same(first, second)


def test_too_few_episodes_cannot_be_sampled():
    buffer = filled_buffer(2, 2)
    assert buffer.can_sample(2)
    assert not buffer.can_sample(3)
    with pytest.raises(OmgError, match=r"3 .*holds 2"):
        buffer.sample(3, np.random.default_rng(0))


def test_episodes_longer_than_the_buffer_was_made_for_are_refused():
    buffer = new_buffer(max_seq_length=4)
    with pytest.raises(OmgError, match=r"5 slots .* 4"):
        buffer.insert_episode_batch(Episodes().batch([5]))
    assert buffer.episodes_in_buffer == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"state": Field(vshape=(1,), storage=torch.int16)},  # would be broadcast
        {"state": Field(vshape=(2,))},  # would be rounded
        {"number": Field(vshape=(2,), dtype=torch.int64, episode_const=True)},
    ],
)
def test_episodes_of_another_scheme_are_refused(changes):
    other = EpisodeBatch(SCHEME.extend(changes), batch_size=2, max_seq_length=3)
    buffer = new_buffer()
    with pytest.raises(OmgError, match=f"'{next(iter(changes))}'"):
        buffer.insert_episode_batch(other)
    assert buffer.episodes_in_buffer == 0


@given(
    capacity=st.integers(1, 9),
    steps=st.integers(1, 12),
    agents=st.integers(1, 4),
    storage=st.sampled_from([torch.int8, torch.int16, torch.float16, torch.float32]),
)
def test_the_byte_estimate_is_what_the_tensors_take(capacity, steps, agents, storage):
    fields = {**SCHEME.fields, "obs": Field(vshape=(3, 2), storage=storage, group="agents")}
    scheme = Scheme(fields, {"agents": agents})
    buffer = ReplayBuffer(scheme, capacity=capacity, max_seq_length=steps)
    buffer.insert_episode_batch(EpisodeBatch(scheme, batch_size=capacity, max_seq_length=steps))
    state = buffer.state_dict()
    assert buffer.byte_estimate() == sum(
        tensor.nbytes for tensor in (state["filled"], *state["data"].values())
    )


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/statm")
def test_memory_is_taken_only_as_episodes_arrive():
    scheme = Scheme({"obs": Field(vshape=(1024,), group="agents")}, {"agents": 8})
    before = resident_bytes()
    buffer = ReplayBuffer(scheme, capacity=660, max_seq_length=101)
    assert buffer.byte_estimate() > 2**31
    assert resident_bytes() - before < 2**25
    episode = EpisodeBatch(scheme, batch_size=4, max_seq_length=101)
    episode.update({"obs": 1.0})
    buffer.insert_episode_batch(episode)
    assert resident_bytes() - before < 2**26


@pytest.mark.long
@given(inserts=lengths_of_batches, later=lengths_of_batches, capacity=st.integers(1, 6))
def test_a_restored_buffer_continues_as_if_nothing_had_happened(inserts, later, capacity):
    first, second, episodes = new_buffer(capacity), new_buffer(capacity), Episodes()
    for lengths in inserts:
        first.insert_episode_batch(episodes.batch(lengths))
    second.insert_episode_batch(Episodes().batch([LONGEST] * capacity))  # to be forgotten
    second.load_state_dict(first.state_dict())
    streams = np.random.default_rng(1), np.random.default_rng(1)
    for lengths in [None, *later]:
        if lengths is not None:
            batch = episodes.batch(lengths)
            first.insert_episode_batch(batch)
            second.insert_episode_batch(batch)
        size = first.episodes_in_buffer
        assert second.episodes_in_buffer == size
        assert_same(first.sample(size, streams[0]), second.sample(size, streams[1]))


def test_a_saved_state_does_not_change_with_the_buffer():
    buffer, episodes = new_buffer(capacity=2), Episodes()
    buffer.insert_episode_batch(episodes.batch([3, 3]))
    state = buffer.state_dict()
    buffer.insert_episode_batch(episodes.batch([2, 2]))
    assert state["data"]["number"].tolist() == [1, 2]
    assert state["lengths"].tolist() == [3, 3]


@given(
    inserted=st.integers(1, 9),
    capacity=st.integers(1, 5),
    larger=st.integers(0, 4),
    later=st.integers(0, 12),
)
def test_a_larger_buffer_takes_over_the_episodes_and_forgets_the_oldest_first(
    inserted, capacity, larger, later
):
    small, big, episodes = new_buffer(capacity), new_buffer(capacity + larger), Episodes()
    for _ in range(inserted):
        small.insert_episode_batch(episodes.batch([2]))
    big.load_state_dict(small.state_dict())
    oracle = deque(range(1, inserted + 1)[-capacity:], maxlen=capacity + larger)
    for _ in range(later):
        big.insert_episode_batch(episodes.batch([2]))
        oracle.append(episodes.made)
    assert sorted(everything(big)) == list(oracle)


def test_a_state_that_does_not_fit_is_refused():
    state = filled_buffer(2, 2, 2).state_dict()
    with pytest.raises(OmgError, match=r"3 .* 2"):
        new_buffer(capacity=2).load_state_dict(state)
    with pytest.raises(OmgError, match=f"{LONGEST} .* 1"):
        new_buffer(max_seq_length=1).load_state_dict(state)
