"""The ring of running episodes, compared with one plain list per copy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.components.episodes import EpisodeStaging, Field, Scheme

SCHEME = Scheme(
    fields={
        "obs": Field(vshape=(3,), group="agents"),
        "state": Field(vshape=(2,), storage=torch.int16),
        "actions": Field(dtype=torch.int64, storage=torch.uint8, group="agents"),
        "terminated": Field(dtype=torch.bool),
        "feature": Field(vshape=(2,), storage=torch.float16),  # what a controller records
        "seat": Field(dtype=torch.int64, storage=torch.int8, episode_const=True),
        "goal": Field(vshape=(2,), group="agents", episode_const=True),
    },
    groups={"agents": 2},
)
STEP_FIELDS = [name for name, field in SCHEME.fields.items() if not field.episode_const]
CONSTANTS = [name for name, field in SCHEME.fields.items() if field.episode_const]
LAST = ["obs", "state"]


class ListRecorder:
    """Keeps every running episode as a list of steps; slow and obvious."""

    def __init__(self, n_copies):
        self.steps = [[] for _ in range(n_copies)]
        self.constants = [{} for _ in range(n_copies)]

    def begin(self, copies, constants):
        for row, copy in enumerate(copies):
            self.steps[copy] = []
            self.constants[copy] = {name: value[row] for name, value in constants.items()}

    def write(self, values):
        for copy, steps in enumerate(self.steps):
            steps.append({name: value[copy].copy() for name, value in values.items()})

    def assert_equal(self, episodes, copies, last):
        lengths = [len(self.steps[copy]) for copy in copies]
        assert episodes.max_seq_length == max(lengths) + 1
        assert episodes.lengths.tolist() == [length + 1 for length in lengths]
        for row, copy in enumerate(copies):
            for name in CONSTANTS:
                np.testing.assert_array_equal(episodes[name][row], self.constants[copy][name])
            for t in range(episodes.max_seq_length):
                assert bool(episodes.filled[row, t]) == (t <= lengths[row])
                for name in STEP_FIELDS:
                    expected = np.zeros(SCHEME.item_shape(name))
                    if t < lengths[row]:
                        expected = self.steps[copy][t][name]
                    elif t == lengths[row] and name in last:
                        expected = last[name][row]
                    np.testing.assert_array_equal(episodes[name][row, t], expected)


class Stream:
    """Random steps, ends and drops of some copies; never a zero, so that padding shows."""

    def __init__(self, seed, n_copies, limit, p_end, p_drop):
        self.rng = np.random.default_rng(seed)
        self.n_copies, self.limit, self.p_end, self.p_drop = n_copies, limit, p_end, p_drop
        self.ages = np.zeros(n_copies, np.int64)

    def values(self, names, count):
        draw = {name: (count, *SCHEME.item_shape(name)) for name in names}
        values = {name: self.rng.integers(1, 100, shape) for name, shape in draw.items()}
        if "terminated" in values:
            values["terminated"] = self.rng.random(count) < 0.5
        return values

    def step(self):
        """Values of a step, copies that end with it, copies that are lost."""
        values = self.values(STEP_FIELDS, self.n_copies)
        self.ages += 1
        dropped = self.rng.random(self.n_copies) < self.p_drop
        ended = (self.rng.random(self.n_copies) < self.p_end) | (self.ages >= self.limit)
        ended &= ~dropped
        self.ages[ended | dropped] = 0
        return values, np.flatnonzero(ended), np.flatnonzero(dropped)


def drive(staging, recorder, stream, steps):
    """Feed both for some steps and compare all that ends; how many episodes ended."""
    finished = 0
    for _ in range(steps):
        values, ended, dropped = stream.step()
        staging.write(values)
        recorder.write(values)
        everyone = np.arange(stream.n_copies)
        assert staging.lengths(everyone).tolist() == [len(s) for s in recorder.steps]
        if len(ended):
            last = stream.values(LAST, len(ended))
            recorder.assert_equal(staging.finish(ended, last), ended, last)
            finished += len(ended)
        restarted = np.union1d(ended, dropped)
        if len(restarted):
            constants = stream.values(CONSTANTS, len(restarted))
            staging.begin(restarted, constants)
            recorder.begin(restarted, constants)
    return finished


def new_pair(stream):
    staging = EpisodeStaging(SCHEME, n_copies=stream.n_copies, episode_limit=stream.limit)
    recorder = ListRecorder(stream.n_copies)
    constants = stream.values(CONSTANTS, stream.n_copies)
    staging.begin(np.arange(stream.n_copies), constants)
    recorder.begin(np.arange(stream.n_copies), constants)
    return staging, recorder


streams = st.builds(
    Stream,
    seed=st.integers(0, 2**32 - 1),
    n_copies=st.integers(1, 4),
    limit=st.integers(1, 7),
    p_end=st.sampled_from([0.0, 0.2, 0.6]),
    p_drop=st.sampled_from([0.0, 0.1]),
)


@pytest.mark.long
@given(streams)
def test_finished_episodes_are_those_a_plain_list_would_hold(stream):
    staging, recorder = new_pair(stream)
    finished = drive(staging, recorder, stream, steps=5 * (stream.limit + 1))
    assert finished or stream.p_drop > 0


@pytest.mark.long
@given(streams, st.integers(0, 20))
def test_a_restored_staging_continues_in_the_middle_of_its_episodes(stream, steps):
    staging, recorder = new_pair(stream)
    drive(staging, recorder, stream, steps)
    restored = EpisodeStaging(SCHEME, n_copies=stream.n_copies, episode_limit=stream.limit)
    snapshot = staging.snapshot()
    for _ in range(stream.limit + 1):  # must not reach the snapshot
        staging.write(stream.values(STEP_FIELDS, stream.n_copies))
    staging.begin(np.arange(stream.n_copies), stream.values(CONSTANTS, stream.n_copies))
    restored.restore(snapshot)
    for value in snapshot.values():
        value[...] = 0
    drive(restored, recorder, stream, steps=2 * (stream.limit + 1))


def test_handed_out_episodes_do_not_change_when_the_ring_goes_on():
    stream = Stream(0, n_copies=2, limit=2, p_end=0.0, p_drop=0.0)
    staging, _ = new_pair(stream)
    for _ in range(2):
        staging.write(stream.values(STEP_FIELDS, 2))
    episodes = staging.finish(np.arange(2), stream.values(LAST, 2))
    before = episodes.copy()
    staging.begin(np.arange(2), stream.values(CONSTANTS, 2))
    for _ in range(6):
        staging.write(stream.values(STEP_FIELDS, 2))
    for name in SCHEME.fields:
        assert torch.equal(episodes.raw(name), before.raw(name))


def test_a_dropped_copy_begins_anew_and_keeps_nothing_of_its_lost_episode():
    stream = Stream(0, n_copies=2, limit=5, p_end=0.0, p_drop=0.0)
    staging, recorder = new_pair(stream)
    for step in range(4):
        values = stream.values(STEP_FIELDS, 2)
        staging.write(values)
        recorder.write(values)
        if step == 1:
            constants = stream.values(CONSTANTS, 1)
            staging.begin(np.array([1]), constants)
            recorder.begin([1], constants)
    assert staging.lengths(np.array([0, 1])).tolist() == [4, 2]
    last = stream.values(LAST, 2)
    recorder.assert_equal(staging.finish(np.array([0, 1]), last), [0, 1], last)


@pytest.mark.parametrize("name", list(SCHEME.fields))
def test_episodes_come_in_the_storage_dtypes_of_the_scheme(name):
    stream = Stream(0, n_copies=1, limit=2, p_end=0.0, p_drop=0.0)
    staging, _ = new_pair(stream)
    staging.write(stream.values(STEP_FIELDS, 1))
    episodes = staging.finish(np.array([0]), stream.values(LAST, 1))
    assert episodes.raw(name).dtype == SCHEME.fields[name].kept_as
    assert episodes[name].dtype == SCHEME.fields[name].dtype
