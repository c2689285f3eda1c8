"""What a policy is fed while acting is what it is fed while learning."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.components.episodes import EpisodeBatch, Field, environment_scheme
from omg.components.trajectories import SEAT, Trajectories, seats_part
from omg.config.loader import load_command_line
from omg.controllers import CONTROLLERS
from omg.policies.inputs import InputBuilder, InputSettings, StepView
from omg.types import EnvSpec

SPEC = EnvSpec(name="test", n_agents=3, n_actions=4, obs_dim=5, state_dim=7, episode_limit=10)
CPU = torch.device("cpu")
EVERY_SETTING = [
    InputSettings(obs_is_state=state, obs_last_action=action, obs_agent_id=seat)
    for state, action, seat in itertools.product([False, True], repeat=3)
]


def random_episodes(*, batch=2, steps=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scheme = environment_scheme(SPEC, common_reward=True)
    episodes = EpisodeBatch(scheme, batch_size=batch, max_seq_length=steps)
    lead = (batch, steps, SPEC.n_agents)
    avail = torch.rand(*lead, SPEC.n_actions, generator=generator) < 0.6
    avail[..., 0] = True
    episodes.update(
        {
            "obs": torch.randn(*lead, SPEC.obs_dim, generator=generator),
            "state": torch.randn(batch, steps, SPEC.state_dim, generator=generator),
            "actions": torch.randint(SPEC.n_actions, lead, generator=generator),
            "avail_actions": avail,
        }
    )
    return episodes


def view(episodes, t, last_actions=None):
    """What would be seen when acting at step t of stored episodes."""
    if last_actions is None:
        actions = episodes["actions"]
        last_actions = actions[:, t - 1] if t else torch.full_like(actions[:, 0], -1)
    return StepView(
        obs=episodes["obs"][:, t],
        state=episodes["state"][:, t],
        avail=episodes["avail_actions"][:, t],
        last_actions=last_actions,
    )


def sequence(builder, episodes):
    """Inputs of full-length episodes, [T, B, N, I]."""
    packed = builder.packed(Trajectories.of(episodes))
    return packed.view(episodes.max_seq_length, len(episodes), *packed.shape[1:])


@pytest.mark.parametrize("settings", EVERY_SETTING)
def test_inputs_have_the_declared_width_and_keep_the_agent_axis(settings):
    builder = InputBuilder(SPEC, settings, device=CPU)
    expected = SPEC.state_dim if settings.obs_is_state else SPEC.obs_dim
    expected += SPEC.n_actions * settings.obs_last_action + SPEC.n_agents * settings.obs_agent_id
    assert builder.dim == expected
    episodes = random_episodes()
    assert builder.step(view(episodes, 0)).shape == (2, SPEC.n_agents, expected)
    assert sequence(builder, episodes).shape == (6, 2, SPEC.n_agents, expected)


@pytest.mark.parametrize("settings", EVERY_SETTING)
@given(batch=st.integers(1, 4), steps=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_inputs_of_a_stored_episode_are_those_seen_while_acting(settings, batch, steps, seed):
    builder = InputBuilder(SPEC, settings, device=CPU)
    episodes = random_episodes(batch=batch, steps=steps, seed=seed)
    acting = torch.stack([builder.step(view(episodes, t)) for t in range(steps)])
    assert torch.equal(sequence(builder, episodes), acting)


@pytest.mark.parametrize("settings", EVERY_SETTING)
@given(seed=st.integers(0, 2**32 - 1))
def test_inputs_of_some_seats_are_theirs_among_those_of_all(settings, seed):
    builder = InputBuilder(SPEC, settings, device=CPU, feature_dim=2)
    episodes = random_episodes(batch=3, seed=seed)
    episodes.filled[1, 4:] = False
    seat = torch.randint(SPEC.n_agents, (3,), generator=torch.Generator().manual_seed(seed))
    team = Trajectories.of(episodes)
    whole = builder.packed(team)
    feature = torch.randn(len(whole), 1, 2)
    alone = Trajectories.of(*one_seat(episodes, seat))
    rows = torch.arange(len(whole))
    own = whole[rows, seat[team.packing.episode]]
    expected = torch.cat([own, feature.squeeze(1)], -1)
    assert torch.equal(builder.packed(alone, feature).squeeze(1), expected)
    pair = Trajectories.of(episodes, *seats_part(episodes, (2, 0)))
    assert torch.equal(builder.packed(pair), whole[:, [2, 0]])
    for t in range(4):
        seen = view(episodes, t)
        both = torch.tensor([[2, 0]] * 3)
        acting = builder.step(seen.of_seats(both), both)
        assert torch.equal(acting, builder.step(seen)[:, [2, 0]])


def one_seat(episodes, seat):
    """The episodes, and their part of one seat each, as a learner gets them."""
    field = Field(dtype=torch.int64, episode_const=True)
    scheme = episodes.scheme.extend({SEAT: field})
    data = {name: episodes.raw(name) for name in episodes.scheme.fields}
    batch = EpisodeBatch.from_data(scheme, {**data, SEAT: seat}, episodes.filled)
    return batch, *seats_part(batch)


def test_what_was_played_is_told_at_every_slot_and_at_every_transition():
    episodes = random_episodes(batch=3, steps=5)
    episodes.filled[1, 3:] = False
    episodes.raw("terminated")[2, 3] = True
    played = Trajectories.of(*one_seat(episodes, torch.tensor([2, 0, 1])))
    packing = played.packing
    assert played.n_seats == 1
    assert played.rows is packing
    assert played.seats_PN.squeeze(1).tolist() == [[2, 0, 1][b] for b in packing.episode.tolist()]
    slots = list(zip(packing.episode.tolist(), packing.time.tolist(), strict=True))
    assert len(slots) == 5 + 3 + 5
    acted = [(b, t) for b, t in slots if t + 1 < [5, 3, 5][b]]
    for name in ("obs", "actions", "avail_actions"):
        mine = [episodes[name][b, t, [2, 0, 1][b]] for b, t in slots]
        assert torch.equal(played.pack(name).squeeze(1), torch.stack(mine)), name
        now = [episodes[name][b, t, [2, 0, 1][b]] for b, t in acted]
        assert torch.equal(played.now(name).squeeze(1), torch.stack(now)), name
        following = [episodes[name][b, t + 1, [2, 0, 1][b]] for b, t in acted]
        assert torch.equal(played.next(name).squeeze(1), torch.stack(following)), name
    for row, (b, t) in enumerate(slots):
        before = episodes["actions"][b, t - 1] if t else torch.full((SPEC.n_agents,), -1)
        assert played.last_actions(everybody=True)[row].tolist() == before.tolist()
        assert played.last_actions()[row].tolist() == [before[[2, 0, 1][b]].item()]


def test_inputs_are_features_then_last_action_then_seat():
    settings = InputSettings(obs_is_state=False, obs_last_action=True, obs_agent_id=True)
    episodes = random_episodes()
    inputs = sequence(InputBuilder(SPEC, settings, device=CPU), episodes)
    obs, last, seat = inputs.split([SPEC.obs_dim, SPEC.n_actions, SPEC.n_agents], -1)
    assert torch.equal(obs, episodes["obs"].transpose(0, 1))
    assert not last[0].any()
    assert torch.equal(last[1:], episodes["actions_onehot"].transpose(0, 1)[:-1])
    assert torch.equal(seat, torch.eye(SPEC.n_agents).expand(6, 2, -1, -1))


def test_every_agent_is_fed_the_state_where_the_state_is_the_observation():
    settings = InputSettings(obs_is_state=True, obs_last_action=False, obs_agent_id=False)
    episodes = random_episodes()
    inputs = sequence(InputBuilder(SPEC, settings, device=CPU), episodes)
    for n in range(SPEC.n_agents):
        assert torch.equal(inputs[:, :, n], episodes["state"].transpose(0, 1))


@pytest.mark.parametrize("settings", EVERY_SETTING)
def test_settings_survive_being_stored_beside_the_weights(settings):
    assert InputSettings(**settings.as_dict()) == settings


def new_mac(*options, seed=0):
    torch.manual_seed(seed)
    config = load_command_line(["--config=qmix", "--rnn_hidden_dim=8", *options]).config
    return CONTROLLERS["basic_mac"](config=config, spec=SPEC, device=CPU)


def unrolled(mac, episodes):
    """Values of whole episodes, [B, T, N, A]; zeros in the padding."""
    played = mac.trajectories(episodes)
    return played.packing.unpack(mac.policy.unroll(mac.policy.inputs.packed(played), played))


def act(mac, seen, carry, *, greedy=True):
    generator = torch.Generator().manual_seed(0)
    return mac.act(seen, carry, env_steps=0, greedy=greedy, generator=generator)


OPTIONS = [
    (),
    ("--policy_model=mlp",),
    ("--dueling=True",),
    ("--obs_is_state=True", "--obs_last_action=False"),
    ("--obs_agent_id=False",),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_acting_step_by_step_gives_the_values_of_unrolling_the_stored_episode(options):
    mac, episodes = new_mac(*options), random_episodes(batch=3)
    carry, values = mac.initial_carry(3), []
    last = torch.full((3, SPEC.n_agents), -1)
    for t in range(episodes.max_seq_length):
        seen = view(episodes, t, last)
        values.append(mac.policy.step(seen, carry["hidden"])[0])
        acted = act(mac, seen, carry)
        carry, last = acted.carry, acted.actions
        episodes.update({"actions": last.unsqueeze(1)}, steps=slice(t, t + 1))
    whole = unrolled(mac, episodes)
    torch.testing.assert_close(torch.stack(values, 1), whole, atol=1e-5, rtol=1e-5)
    best = whole.masked_fill(~episodes["avail_actions"], -torch.inf).argmax(-1)
    assert torch.equal(episodes["actions"], best)


def test_what_lies_behind_an_episode_does_not_change_its_values():
    mac, episodes = new_mac(), random_episodes(steps=8)
    torch.testing.assert_close(unrolled(mac, episodes)[:, :5], unrolled(mac, episodes[:, :5]))


def test_acting_does_not_change_the_carry_it_was_given():
    mac, episodes = new_mac(), random_episodes()
    carry = act(mac, view(episodes, 0), mac.initial_carry(2)).carry
    before = carry["hidden"].clone()
    after = act(mac, view(episodes, 1), carry).carry
    assert torch.equal(carry["hidden"], before)
    assert not torch.equal(after["hidden"], before)


def test_beginning_an_episode_resets_the_carry_of_that_copy_only():
    mac, episodes = new_mac(), random_episodes(batch=4)
    carry = act(mac, view(episodes, 0), mac.initial_carry(4)).carry
    before = carry["hidden"].clone()
    constants = mac.begin_episodes(carry, np.array([1, 3]), np.random.default_rng(0))
    assert constants == {}
    assert torch.equal(carry["hidden"][[0, 2]], before[[0, 2]])
    assert before[[0, 2]].all(-1).all()
    assert torch.equal(carry["hidden"][[1, 3]], mac.initial_carry(2)["hidden"])


@pytest.mark.parametrize("restart", [1, 3, 5])
def test_a_copy_that_restarts_plays_as_if_it_had_just_begun_and_others_go_on(restart):
    mac, episodes = new_mac(), random_episodes(batch=2)
    carry, values = mac.initial_carry(2), []
    for t in range(episodes.max_seq_length):
        seen = view(episodes, t)
        if t == restart:
            mac.begin_episodes(carry, np.array([1]), np.random.default_rng(0))
            seen.last_actions[1] = -1
        outputs, hidden = mac.policy.step(seen, carry["hidden"])
        values.append(outputs)
        carry = {"hidden": hidden}
    found = torch.stack(values, 1)
    torch.testing.assert_close(found[0], unrolled(mac, episodes)[0])
    torch.testing.assert_close(found[1, :restart], unrolled(mac, episodes[1, :restart])[0])
    torch.testing.assert_close(found[1, restart:], unrolled(mac, episodes[1, restart:])[0])


@pytest.mark.long
@given(seed=st.integers(0, 2**32 - 1))
def test_agents_that_share_inputs_share_values_and_swapping_them_swaps_the_values(seed):
    mac = new_mac("--obs_agent_id=False")
    episodes = random_episodes(seed=seed)
    order = torch.randperm(SPEC.n_agents, generator=torch.Generator().manual_seed(seed))
    swapped = episodes.copy()
    for name in ("obs", "actions", "avail_actions"):
        swapped.update({name: episodes[name][:, :, order]})
    torch.testing.assert_close(unrolled(mac, swapped), unrolled(mac, episodes)[:, :, order])


def test_the_controller_describes_what_its_weights_need():
    mac = new_mac("--obs_agent_id=False")
    described = mac.describe()
    assert described["input_dim"] == SPEC.obs_dim + SPEC.n_actions
    assert described["obs_last_action"] is True
    assert described["obs_agent_id"] is False
    assert [*mac.networks()] == ["agent"]
    assert mac.metrics(0) == {"epsilon": 1.0}
