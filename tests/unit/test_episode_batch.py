"""Episodes as padded tensors: what a scheme declares, what slices share, what writing checks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.components.episodes import EpisodeBatch, Field, OneHot, Scheme, environment_scheme
from omg.types import EnvSpec, OmgError

N_AGENTS, N_ACTIONS = 2, 5
SCHEME = Scheme(
    fields={
        "state": Field(vshape=(4,), storage=torch.int8),
        "obs": Field(vshape=(3,), group="agents"),
        "picture": Field(vshape=(2, 3), storage=torch.float16),
        "actions": Field(dtype=torch.int64, storage=torch.uint8, group="agents"),
        "avail_actions": Field(vshape=(N_ACTIONS,), dtype=torch.bool, group="agents"),
        "reward": Field(vshape=(1,)),
        "terminated": Field(dtype=torch.bool),
        "seat": Field(dtype=torch.int64, storage=torch.int8, episode_const=True),
        "skill": Field(vshape=(2,), group="agents", episode_const=True),
    },
    groups={"agents": N_AGENTS},
)
B, T = 4, 6


def random_values(seed=0):
    """Values of every field for B episodes of T steps, in the working dtypes."""
    rng = np.random.default_rng(seed)
    return {
        "state": rng.integers(-128, 128, (B, T, 4)).astype(np.float32),
        "obs": rng.normal(size=(B, T, N_AGENTS, 3)).astype(np.float32),
        "picture": rng.integers(-50, 50, (B, T, 2, 3)).astype(np.float32) / 4,
        "actions": rng.integers(0, N_ACTIONS, (B, T, N_AGENTS)),
        "avail_actions": rng.random((B, T, N_AGENTS, N_ACTIONS)) < 0.5,
        "reward": rng.normal(size=(B, T, 1)).astype(np.float32),
        "terminated": rng.random((B, T)) < 0.5,
        "seat": rng.integers(0, N_AGENTS, B),
        "skill": rng.normal(size=(B, N_AGENTS, 2)).astype(np.float32),
    }


def empty_batch():
    return EpisodeBatch(SCHEME, batch_size=B, max_seq_length=T)


def full_batch(seed=0):
    batch = empty_batch()
    batch.update(random_values(seed))
    return batch


def test_a_new_batch_has_the_declared_shapes_and_holds_nothing():
    batch = empty_batch()
    for name, value in random_values().items():
        assert batch[name].shape == value.shape
        assert not batch[name].any()
    assert batch.filled.shape == (B, T)
    assert not batch.filled.any()
    assert len(batch) == B


@given(st.integers(0, 2**32 - 1))
def test_every_field_comes_back_in_its_working_dtype_as_it_was_written(seed):
    batch, values = full_batch(seed), random_values(seed)
    for name, value in values.items():
        assert batch[name].dtype == SCHEME.fields[name].dtype
        np.testing.assert_array_equal(batch[name].numpy(), value)


def test_fields_are_kept_in_their_storage_dtypes():
    batch = full_batch()
    kept = {name: batch.raw(name).dtype for name in SCHEME.fields}
    assert kept == {
        "state": torch.int8,
        "obs": torch.float32,
        "picture": torch.float16,
        "actions": torch.uint8,
        "avail_actions": torch.bool,
        "reward": torch.float32,
        "terminated": torch.bool,
        "seat": torch.int8,
        "skill": torch.float32,
    }


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (torch.int8, [-128, 0, 127]),
        (torch.uint8, [0, 1, 255]),
        (torch.int16, [-32768, 0, 32767]),
        (torch.float16, [-65504.0, 0.125, 2.0**-14]),
        (torch.float32, [-1e30, 1 / 3, 1e-30]),
    ],
)
def test_storage_dtypes_keep_their_whole_range(dtype, values):
    scheme = Scheme({"x": Field(storage=dtype)}, {})
    batch = EpisodeBatch(scheme, batch_size=1, max_seq_length=3)
    batch.update({"x": torch.tensor([values])})
    assert batch["x"].dtype == torch.float32
    assert torch.equal(batch["x"], torch.tensor([values], dtype=torch.float32))


def test_writing_marks_only_the_written_part_as_filled():
    batch = empty_batch()
    batch.update({"reward": np.ones((2, 3, 1))}, rows=slice(1, 3), steps=slice(0, 3))
    expected = torch.zeros(B, T, dtype=torch.bool)
    expected[1:3, :3] = True
    assert torch.equal(batch["filled"], expected)
    assert torch.equal(batch["reward"].squeeze(-1) == 1, expected)
    assert batch.lengths.tolist() == [0, 3, 3, 0]


def test_writing_can_leave_the_filled_mask_alone():
    batch = empty_batch()
    batch.update({"reward": 1.0}, mark_filled=False)
    assert batch["reward"].all()
    assert not batch.filled.any()


def test_constants_have_no_time_axis_and_fill_nothing():
    batch = empty_batch()
    batch.update({"seat": [1, 1]}, rows=slice(2, 4), steps=slice(0, 1))
    assert batch["seat"].tolist() == [0, 0, 1, 1]
    assert not batch.filled.any()


def test_the_one_hot_actions_are_one_at_the_action_and_take_no_memory():
    batch = full_batch()
    one_hot, actions = batch["actions_onehot"], batch["actions"]
    assert one_hot.dtype == torch.float32
    for index in np.ndindex(B, T, N_AGENTS):
        expected = [float(a == actions[index]) for a in range(N_ACTIONS)]
        assert one_hot[index].tolist() == expected
    with pytest.raises(OmgError, match="actions_onehot"):
        batch.raw("actions_onehot")


def test_a_negative_action_has_no_one_hot_even_when_kept_unsigned():
    assert not OneHot(3)(torch.tensor([-1])).any()
    batch = empty_batch()
    batch.update({"actions": -1})
    assert not batch["actions_onehot"].any()


row_slices = st.slices(B)
step_slices = st.slices(T).filter(lambda s: s.step is None or s.step > 0)
forward_rows = row_slices.filter(lambda s: s.step is None or s.step > 0)


@given(rows=forward_rows, steps=step_slices)
def test_a_slice_holds_what_numpy_would_select(rows, steps):
    batch = full_batch()
    batch.filled[1, 3:] = False
    part = batch[rows, steps]
    assert np.array_equal(part.filled.numpy(), batch.filled.numpy()[rows, steps])
    assert (part.batch_size, part.max_seq_length) == part.filled.shape
    for name, spec in SCHEME.fields.items():
        whole = batch[name].numpy()
        expected = whole[rows] if spec.episode_const else whole[rows, steps]
        np.testing.assert_array_equal(part[name].numpy(), expected)


@given(rows=st.lists(st.integers(-B, B - 1), min_size=1, max_size=6), steps=step_slices)
def test_an_index_list_holds_what_numpy_would_select(rows, steps):
    batch = full_batch()
    for chosen in (rows, np.array(rows), torch.tensor(rows)):
        part = batch[chosen, steps]
        for name, spec in SCHEME.fields.items():
            whole = batch[name].numpy()
            expected = whole[rows] if spec.episode_const else whole[rows][:, steps]
            np.testing.assert_array_equal(part[name].numpy(), expected)


@pytest.mark.parametrize("number", [0, 2, -1, np.int64(1)])
def test_a_number_selects_one_episode_and_keeps_the_batch_axis(number):
    batch = full_batch()
    part = batch[number]
    assert len(part) == 1
    assert torch.equal(part["obs"][0], batch["obs"][int(number)])
    assert torch.equal(part["seat"][0], batch["seat"][int(number)])


@pytest.mark.parametrize("number", [B, -B - 1])
def test_a_number_beyond_the_batch_is_an_error_and_not_an_empty_batch(number):
    with pytest.raises(IndexError):
        full_batch()[number]


@pytest.mark.parametrize("item", [slice(1, 3), (slice(1, 3), slice(0, 4)), 1])
def test_slices_share_memory_and_cannot_be_written_through(item):
    batch = full_batch()
    part = batch[item]
    before = batch.raw("obs").clone()
    for name in SCHEME.fields:
        assert part.raw(name).data_ptr() == batch.raw(name)[1].data_ptr()
    with pytest.raises(OmgError, match="view"):
        part.update({"obs": 0.0})
    with pytest.raises(OmgError, match="view"):
        part[0:1].update({"seat": 0})
    assert torch.equal(batch.raw("obs"), before)
    batch.update({"obs": 7.0, "seat": 1}, rows=slice(1, 2), steps=slice(0, 1))
    assert (part["obs"][0, 0] == 7).all()
    assert part["seat"][0] == 1


@pytest.mark.parametrize("rows", [[1, 2], np.array([1, 2]), torch.tensor([1, 2])])
def test_index_lists_copy_and_the_copy_can_be_written(rows):
    batch = full_batch()
    part = batch[rows, 0:4]
    part.update({"obs": 7.0, "seat": 1, "skill": 7.0})
    part.filled[:] = False
    untouched = full_batch()
    for name in SCHEME.fields:
        assert torch.equal(batch[name], untouched[name])
    assert batch.filled.all()


def test_a_copy_of_a_view_is_independent_and_writable():
    batch = full_batch()
    copy = batch[0:2].copy()
    copy.update({"obs": 7.0, "seat": 1}, mark_filled=False)
    copy.filled[:] = False
    assert (copy["obs"] == 7).all()
    assert torch.equal(batch["obs"], full_batch()["obs"])
    assert batch.filled.all()


def test_moving_to_the_same_device_is_free():
    batch = full_batch()
    assert batch.to("cpu") is batch


def test_time_is_cut_by_slices_only():
    for steps in (2, [0, 1]):
        with pytest.raises(OmgError, match="slice"):
            full_batch()[0:2, steps]


def test_an_unknown_field_is_named_together_with_the_known_ones():
    batch = empty_batch()
    with pytest.raises(OmgError, match=r"'opponent'.*state.*actions_onehot"):
        batch["opponent"]
    with pytest.raises(OmgError, match="'opponent'"):
        batch.update({"opponent": 0})
    with pytest.raises(OmgError, match="'filled'"):
        batch.update({"filled": True})


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("reward", (B, T)),
        ("obs", (B, T, N_AGENTS, 4)),
        ("obs", (B, T, N_AGENTS + 1, 3)),
        ("obs", (B, T + 1, N_AGENTS, 3)),
        ("state", (1, B, T, 4)),
        ("seat", (B, 2)),
    ],
)
def test_a_wrong_shape_names_the_field_and_both_shapes(name, shape):
    batch = empty_batch()
    with pytest.raises(OmgError, match=f"'{name}' takes .* not") as caught:
        batch.update({name: np.ones(shape, np.float32)})
    assert str(shape) in str(caught.value)
    assert not batch[name].any()
    assert not batch.filled.any()


def test_a_scheme_needs_the_size_of_its_groups():
    with pytest.raises(OmgError, match="'enemies'"):
        Scheme({"obs": Field(group="enemies")}, {"agents": 2})
    with pytest.raises(OmgError, match="filled"):
        Scheme({"filled": Field()}, {})


def test_extending_a_scheme_adds_fields_and_keeps_the_rest():
    wider = SCHEME.extend({"feature": Field(vshape=(7,), group="agents")})
    assert wider.item_shape("feature") == (N_AGENTS, 7)
    assert list(wider.fields) == [*SCHEME.fields, "feature"]
    assert "feature" not in SCHEME.fields
    with pytest.raises(OmgError, match="'enemies'"):
        SCHEME.extend({"feature": Field(group="enemies")})


def spec(**changes):
    sizes = {"n_agents": 3, "n_actions": 5, "obs_dim": 7, "state_dim": 9, "episode_limit": 10}
    return EnvSpec(name="test", **(sizes | changes))


def test_an_environments_scheme_follows_its_sizes():
    scheme = environment_scheme(spec(), common_reward=True)
    shapes = {name: scheme.item_shape(name) for name in scheme.fields}
    assert shapes == {
        "state": (9,),
        "obs": (3, 7),
        "actions": (3,),
        "avail_actions": (3, 5),
        "reward": (1,),
        "terminated": (),
    }
    individual = environment_scheme(spec(), common_reward=False)
    assert individual.item_shape("reward") == (3,)


def test_observations_are_kept_as_narrow_as_the_environment_allows_unless_told_otherwise():
    narrow = spec(obs_dtype="int8", state_dtype="int16")
    for buffer_dtype, obs, state in [
        ("auto", torch.int8, torch.int16),
        ("float16", torch.float16, torch.float16),
        ("float32", torch.float32, torch.float32),
    ]:
        scheme = environment_scheme(narrow, common_reward=True, buffer_dtype=buffer_dtype)
        assert scheme.fields["obs"].kept_as == obs
        assert scheme.fields["state"].kept_as == state
        assert scheme.fields["obs"].dtype == torch.float32


@pytest.mark.parametrize("n_actions", [255, 256, 300])
def test_the_highest_action_fits_into_storage_and_no_action_into_none(n_actions):
    scheme = environment_scheme(spec(n_actions=n_actions), common_reward=True)
    batch = EpisodeBatch(scheme, batch_size=1, max_seq_length=2)
    batch.update({"actions": n_actions - 1}, steps=slice(0, 1))
    batch.update({"actions": -1}, steps=slice(1, 2))
    assert (batch["actions"][:, 0] == n_actions - 1).all()
    assert (batch["actions_onehot"][:, 0, :, -1] == 1).all()
    assert not batch["actions_onehot"][:, 1].any()


@pytest.mark.parametrize("name", ["float64", "complex64", "nonsense", "Tensor"])
def test_a_dtype_that_cannot_be_kept_is_a_sentence(name):
    with pytest.raises(OmgError, match=f"'{name}'.*float32"):
        environment_scheme(spec(obs_dtype=name), common_reward=True)
