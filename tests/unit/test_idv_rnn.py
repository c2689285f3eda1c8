"""`idv_rnn`: weights per seat, in the whole team, as learning agent and as frozen member."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from omg.cli.train import train
from omg.components.action_selectors import SeedTree
from omg.components.episodes import environment_scheme
from omg.components.trajectories import Sequences
from omg.config.loader import load_command_line
from omg.controllers.team import BasicMAC, MultiModuleMAC
from omg.envs.registry import make_batched
from omg.experiment.output import read_metrics
from omg.functional import Packing
from omg.learners.base import Progress
from omg.learners.q_learner import OMGLearner, QLearner
from omg.modules.agents.networks import IndividualRNNAgent
from omg.opponents.pool import OpponentPool
from omg.runners.rollout import Rollout
from omg.storage.files import load_tensors
from omg.types import OmgError
from tests.unit.small_learners import unroll_equal

from . import mdps
from .test_mixed_teams import CPU, KEY, SMALL, TASK, collect, make_rollout, unrolled
from .test_q_learner import learned_values, make

SEATS = 3


def network(**changes: int) -> IndividualRNNAgent:
    return IndividualRNNAgent(
        **{"input_dim": 4, "n_actions": 3, "hidden_dim": 16, "n_agents": SEATS, **changes}
    )


def shift(agent: IndividualRNNAgent, seat: int) -> None:
    """Change every weight of one seat."""
    with torch.no_grad():
        for parameter in agent.agents[seat].parameters():
            parameter.add_(0.3)


@st.composite
def packed(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """(sizes, seat of every sequence)."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=7).map(sorted))[::-1]
    seats = draw(st.lists(st.integers(0, SEATS - 1), min_size=sizes[0], max_size=sizes[0]))
    return torch.tensor(sizes), torch.tensor(seats)


@pytest.mark.long
@given(case=packed(), seed=st.integers(0, 1000))
def test_unrolling_sequences_of_any_length_equals_stepping_each_with_its_seats_network(
    case: tuple[Tensor, Tensor], seed: int
) -> None:
    torch.manual_seed(seed)
    agent, (sizes, seats) = network(), case
    inputs, carry = torch.randn(int(sizes.sum()), 4), torch.randn(int(sizes[0]), 16)
    outputs, hidden = agent.unroll_packed(inputs, sizes, carry, seats)
    offsets = torch.cumsum(sizes, 0) - sizes
    for sequence, seat in enumerate(seats.tolist()):
        single, state = agent.agents[seat], carry[sequence : sequence + 1]
        for size, offset in zip(sizes.tolist(), offsets.tolist(), strict=True):
            if sequence < size:
                row = offset + sequence
                q, state = single.step(inputs[row : row + 1], state)
                torch.testing.assert_close(outputs[row], q[0], atol=1e-5, rtol=1e-4)
                torch.testing.assert_close(hidden[row], state[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("seat", range(SEATS))
def test_other_weights_of_one_seat_change_that_seats_values_only(seat: int) -> None:
    agent, seats = network(), torch.tensor([0, 1, 2, 2, 1, 0])
    inputs, carry = torch.randn(6, 4), torch.randn(6, 16)
    sequence = torch.randn(5, 6, 4)
    with torch.no_grad():
        before = agent.step(inputs, carry, seats)[0], unroll_equal(agent, sequence, carry, seats)
        shift(agent, seat)
        after = agent.step(inputs, carry, seats)[0], unroll_equal(agent, sequence, carry, seats)
    changed = (before[0] != after[0]).any(-1), (before[1] != after[1]).any(-1).any(0)
    assert torch.equal(changed[0], seats == seat)
    assert torch.equal(changed[1], seats == seat)


@pytest.mark.parametrize("seat", range(SEATS))
def test_the_loss_of_one_seat_reaches_that_seats_weights_only(seat: int) -> None:
    agent, seats = network(), torch.tensor([2, 0, 1, 1])
    outputs = unroll_equal(agent, torch.randn(5, 4, 4), torch.zeros(4, 16), seats)
    outputs[:, seats == seat].square().sum().backward()
    for number, single in enumerate(agent.agents):
        touched = [p.grad is not None and bool(p.grad.any()) for p in single.parameters()]
        assert all(touched) if number == seat else not any(touched)


def test_rows_without_a_seat_are_refused() -> None:
    with pytest.raises(ValueError, match="seat"):
        network().step(torch.zeros(2, 4), torch.zeros(2, 16))
    with pytest.raises(ValueError, match="seat"):
        unroll_equal(network(), torch.zeros(2, 2, 4), torch.zeros(2, 16))


def team_rollout(copies: int = 4) -> Rollout:
    words = ["--config=iql_idv", "--env-config=foraging", "--rnn_hidden_dim=16"]
    env = make_batched("foraging", KEY, n_copies=copies)
    torch.manual_seed(0)
    return Rollout(
        env=env,
        mac=BasicMAC(config=load_command_line(words).config, spec=env.spec, device=CPU),
        scheme=environment_scheme(env.spec, common_reward=False),
        seeds=SeedTree(1),
        stream="train",
        device=CPU,
        common_reward=False,
        reward_scalarisation="sum",
        greedy=True,
    )


def test_every_seat_of_a_whole_team_acts_by_its_own_weights() -> None:
    rollout = team_rollout()
    mac = rollout.mac
    assert isinstance(mac, BasicMAC)
    agent = mac.policy.network
    assert isinstance(agent, IndividualRNNAgent)
    episodes = collect(rollout, 30)[0].episodes
    q = unrolled(mac, episodes)
    greedy = q.masked_fill(~episodes["avail_actions"], -torch.inf).argmax(-1)
    played = torch.arange(episodes.filled.shape[1] - 1) < episodes.lengths[:, None] - 1
    assert torch.equal(greedy[:, :-1][played], episodes["actions"][:, :-1][played])
    shift(agent, 1)
    changed = (unrolled(mac, episodes) != q).flatten(0, 1).any(0).any(-1)
    assert changed.tolist() == [False, True, False]


@pytest.mark.long
def test_independent_weights_learn_the_two_state_game_solved_by_hand() -> None:
    _, mac, learner = make(
        *("--optimizer=adam", "--lr=0.005", "--target_update_interval=10"),
        *("--obs_last_action=False", "--obs_agent_id=False", "--rnn_hidden_dim=32"),
        alg="iql_idv",
    )
    rng = np.random.default_rng(1)
    for update in range(300):
        batch = mdps.episodes(rng, 16, ending="truncated", common=False, padded=True)
        if update == 220:
            for group in learner._optimiser.param_groups:
                group["lr"] = 0.001
        learner.train(batch, Progress(update, update, update))
    expected = np.broadcast_to(mdps.own_values("truncated"), (2, 2, 2))
    np.testing.assert_allclose(learned_values(mac, learner), expected, atol=0.06)


@pytest.mark.long
def test_agents_that_see_the_same_learn_different_things() -> None:
    """One agent is rewarded for the opposite; without a seat in the input only own weights can."""
    _, mac, learner = make(
        *("--optimizer=adam", "--lr=0.005", "--target_update_interval=10"),
        *("--obs_last_action=False", "--obs_agent_id=False", "--rnn_hidden_dim=32"),
        alg="iql_idv",
    )
    rng = np.random.default_rng(1)
    for update in range(150):
        batch = mdps.episodes(rng, 16, ending="truncated", common=False, padded=True)
        reward = batch.raw("reward")
        reward[:, :, 1] = -reward[:, :, 1]
        learner.train(batch, Progress(update, update, update))
    values = learned_values(mac, learner)  # [agent, state, action]
    assert (values[0, :, 0] > values[0, :, 1] + 0.2).all()
    assert (values[1, :, 0] < values[1, :, 1] - 0.2).all()


def test_episodes_of_different_lengths_keep_their_seats() -> None:
    mac = team_rollout().mac
    assert isinstance(mac, BasicMAC)
    lengths, seats = torch.tensor([2, 5, 3, 4]), torch.tensor([[2], [0], [1], [0]])
    filled = torch.arange(5) < lengths[:, None]
    inputs = torch.randn(4, 5, 1, mac.policy.inputs.dim)
    never = torch.zeros_like(filled)
    together = Packing.of(filled, never)
    arranged = Sequences(packing=together, n_seats=1, seats=seats)
    with torch.no_grad():
        found = together.unpack(mac.policy.unroll(together.pack(inputs), arranged))
        for b, length in enumerate(lengths.tolist()):
            one = slice(b, b + 1)
            alone = Packing.of(filled[one, :length], never[one, :length])
            rows = alone.pack(inputs[one, :length])
            own = Sequences(packing=alone, n_seats=1, seats=seats[one])
            wanted = mac.policy.unroll(rows, own)
            torch.testing.assert_close(found[b, :length], wanted, atol=1e-5, rtol=1e-4)


def test_seats_in_view_must_be_named() -> None:
    mac = team_rollout().mac
    assert isinstance(mac, BasicMAC)
    packing = Packing.of(torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.bool))
    arranged = Sequences(packing=packing, n_seats=1)
    with pytest.raises(ValueError, match="seats that are in view"):
        mac.policy.unroll(torch.zeros(2, 1, mac.policy.inputs.dim), arranged)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with <alg>/ runs of iql and iql_idv by the whole team."""
    root = tmp_path_factory.mktemp("trained")
    for alg in ("iql", "iql_idv"):
        words = [f"--config={alg}", f"--local_results_path={root}", f"--run_name={alg}"]
        train([*SMALL, *words, *TASK])
    return root


@pytest.mark.long
def test_a_saved_team_comes_back_with_its_weights(trained: Path, tmp_path: Path) -> None:
    run = trained / "iql_idv"
    assert any("loss" in record for record in read_metrics(run / "metrics.jsonl"))
    saved = load_tensors(run / "models" / "last" / "agent.th")
    assert {key.split(".")[1] for key in saved} == {"0", "1", "2"}
    assert not torch.equal(saved["agents.0.fc1.weight"], saved["agents.1.fc1.weight"])
    # Nothing is learned: no batch is ever full.
    words = [*SMALL, "--config=iql_idv", f"--checkpoint_path={run}", "--batch_size=1000"]
    again = train([*words, f"--local_results_path={tmp_path}", "--run_name=again", *TASK])
    loaded = load_tensors(again.folder / "models" / "last" / "agent.th")
    assert all(torch.equal(saved[key], loaded[key]) for key in saved)


@pytest.mark.long
def test_a_run_resumes_exactly(tmp_path: Path) -> None:
    words = [*SMALL, "--config=iql_idv", f"--local_results_path={tmp_path}"]
    whole = train([*words, "--run_name=whole", "--t_max=400", *TASK]).folder
    train([*words, "--run_name=half", "--t_max=200", *TASK])
    half = train([*words, "--run_name=half", "--resume", "--t_max=400", *TASK]).folder
    mine, theirs = (load_tensors(run / "models" / "last" / "agent.th") for run in (whole, half))
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


MIXED = ["--mac=multi_module_mac", "--learner=q_learner_4am", "--is_agent_shift"]


def test_the_learning_agent_of_a_mixed_team_has_weights_per_seat(trained: Path) -> None:
    words = [*SMALL, "--config=2iql1iql_idv", "--multi_algs", *MIXED]
    rollout = make_rollout([*words, f"--init_param_path={trained}", *TASK], greedy=True)
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    agent = mac.policy.network
    assert isinstance(agent, IndividualRNNAgent)
    config = load_command_line([*words, *TASK]).config
    learner = QLearner(config=config, spec=rollout.env.spec, mac=mac, device=CPU)
    seen = set()
    for finished in collect(rollout, 40):
        part = mac.trajectories(finished.episodes).own
        q = unrolled(mac, finished.episodes).masked_fill(~part["avail_actions"], -torch.inf)
        for row, seat in enumerate(finished.episodes["agent_idx"].tolist()):
            steps = int(part.lengths[row]) - 1
            assert torch.equal(q[row, :steps].argmax(-1), part["actions"][row, :steps])
            seen.add(seat)
            before = {key: value.clone() for key, value in agent.state_dict().items()}
            learner.train(finished.episodes[row : row + 1], Progress(0, 0, 0))
            moved = {
                int(key.split(".")[1])
                for key, value in agent.state_dict().items()
                if not torch.equal(value, before[key])
            }
            assert moved == {seat}
            agent.load_state_dict(before)
    assert seen == {0, 1, 2}


def test_subgoal_learning_moves_the_weights_of_the_seats_it_saw(
    trained: Path, tmp_path: Path
) -> None:
    OpponentPool.create(tmp_path / "pool").add_run(trained / "iql")
    words = [*SMALL, "--config=iql_omg", "--policy_model=idv_rnn", "--agent_shift=1"]
    words += [f"--opponent_pool={tmp_path / 'pool'}", "--is_agent_shift=False", *TASK]
    rollout = make_rollout(words)
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    config = load_command_line(words).config
    learner = OMGLearner(config=config, spec=rollout.env.spec, mac=mac, device=CPU)
    before = {key: value.clone() for key, value in mac.policy.network.state_dict().items()}
    learner.train(collect(rollout, 20)[0].episodes, Progress(0, 0, 0))
    after = mac.policy.network.state_dict()
    moved = {key.split(".")[1] for key in after if not torch.equal(after[key], before[key])}
    assert moved == {"1"}


@pytest.mark.long
def test_a_frozen_member_plays_each_seat_as_it_did_in_its_own_team(
    trained: Path, tmp_path: Path
) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_run(trained / "iql_idv")
    words = [*SMALL, "--config=iql", *MIXED, f"--opponent_pool={tmp_path / 'pool'}", *TASK]
    rollout = make_rollout(words)
    team = team_rollout().mac
    assert isinstance(team, BasicMAC)
    state = load_tensors(trained / "iql_idv" / "models" / "last" / "agent.th")
    team.policy.network.load_state_dict(state)
    played = set()
    for finished in collect(rollout, 40):
        episodes = finished.episodes
        q = unrolled(team, episodes).masked_fill(~episodes["avail_actions"], -torch.inf)
        for row, learning in enumerate(episodes["agent_idx"].tolist()):
            steps = int(episodes.lengths[row]) - 1
            for seat in {0, 1, 2} - {learning}:
                wanted = q[row, :steps, seat].argmax(-1)
                assert torch.equal(episodes["actions"][row, :steps, seat], wanted)
                played.add(seat)
    assert played == {0, 1, 2}


@pytest.mark.long
def test_it_trains_in_mixed_teams_by_name_and_from_a_pool(trained: Path, tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_run(trained / "iql_idv")
    pool.add_run(trained / "iql")
    idv = ["--config=iql_idv", *MIXED, f"--opponent_pool={tmp_path / 'pool'}"]
    team = ["--config=1iql_idv1iql1iql_am", "--multi_algs", f"--init_param_path={trained}"]
    for number, words in enumerate((idv, team)):
        out = [f"--local_results_path={tmp_path}", f"--run_name=run{number}"]
        result = train([*SMALL, *words, *out, *TASK])
        assert any("loss" in r for r in read_metrics(result.folder / "metrics.jsonl"))


def test_a_member_for_another_number_of_seats_is_refused(trained: Path, tmp_path: Path) -> None:
    words = [*SMALL, "--config=iql_idv", "--obs_agent_id=False", "--obs_is_state=False"]
    words += [f"--local_results_path={tmp_path}", "--run_name=iql_idv"]
    size = ["with", "env_args.key=Foraging-6x6-2p-3f-v3"]  # the same width as 3 players, 2 foods
    train([*words, "--t_max=100", *size])
    with pytest.raises(OmgError, match="weights for 2 seats, this environment has 3"):
        make_rollout(
            [
                *(*SMALL, "--config=2iql_idv1iql", "--multi_algs"),
                *(*MIXED, f"--init_param_path={tmp_path}", *TASK),
            ]
        )
