"""Mixed teams: team strings, seats, frozen others, the learning agent's part of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from omg.components.episode_batch import EpisodeBatch
from omg.components.learning_agent import learning_agent_part
from omg.components.scheme import environment_scheme
from omg.components.seeding import SeedTree
from omg.config.loader import load_command_line
from omg.config.team import check_team_size, parse_team
from omg.controllers.basic import BasicMAC
from omg.controllers.multi_module import MultiModuleMAC
from omg.controllers.roster import _check_fits, frozen_modules
from omg.envs.registry import make_batched
from omg.main import train
from omg.opponents.pool import OpponentPool
from omg.runners.rollout import Finished, Rollout
from omg.storage.files import load_tensors
from omg.telemetry.logger import read_metrics
from omg.types import EnvSpec, OmgError

CPU = torch.device("cpu")
KEY = {"key": "Foraging-6x6-3p-2f-v3", "max_episode_steps": 12}
TASK = ["with", "env_args.key=Foraging-6x6-3p-2f-v3", "env_args.max_episode_steps=12"]
SMALL = [
    *("--env-config=foraging", "--t_max=500", "--batch_size=4", "--test_nepisode=4", "--quiet"),
    *("--test_interval=100000", "--batch_size_run=4", "--use_tensorboard=False"),
    *("--use_sacred=False", "--rnn_hidden_dim=16", "--runner_log_interval=200"),
    *("--learner_log_interval=200", "--resume_interval=600"),
]
ALGS = ["iql", "qmix", "vdn", "iql_omg", "d3qn_omg"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with <alg>/ runs of IQL and QMIX."""
    root = tmp_path_factory.mktemp("trained")
    for alg in ("iql", "qmix"):
        words = [f"--config={alg}", f"--local_results_path={root}", f"--run_name={alg}"]
        train([*SMALL, *words, *TASK])
    return root


def team_words(trained: Path, *words: str) -> list[str]:
    learn = ["--config=1iql1qmix1vdn", "--multi_algs", "--train_alg=vdn", "--mac=multi_module_mac"]
    learn += ["--learner=q_learner_4am", "--mixer=None", "--common_reward=False"]
    return [*SMALL, *learn, f"--init_param_path={trained}", *words, *TASK]


def make_rollout(words: list[str], *, copies: int = 4, **options: Any) -> Rollout:
    config = load_command_line(words).config
    env = make_batched("foraging", KEY, n_copies=copies)
    torch.manual_seed(0)
    mac = MultiModuleMAC(config=config, spec=env.spec, device=CPU)
    scheme = environment_scheme(env.spec, common_reward=False).extend(mac.record_fields())
    return Rollout(
        env=env,
        mac=mac,
        scheme=scheme,
        seeds=SeedTree(1),
        stream="train",
        device=CPU,
        common_reward=False,
        reward_scalarisation="sum",
        **options,
    )


def collect(rollout: Rollout, steps: int) -> list[Finished]:
    found = (rollout.step(0) for _ in range(steps))
    return [finished for finished in found if finished is not None]


@pytest.mark.parametrize(
    ("text", "seats"),
    [
        ("7iql1iql_omg", ["iql"] * 7 + ["iql_omg"]),
        ("4iql3qmix1iql_omg", ["iql"] * 4 + ["qmix"] * 3 + ["iql_omg"]),
        ("1iql1d3qn_omg", ["iql", "d3qn_omg"]),
        ("12vdn", ["vdn"] * 12),
    ],
)
def test_a_team_string_names_the_algorithm_of_every_seat(text: str, seats: list[str]) -> None:
    assert list(parse_team(text, ALGS)) == seats


@pytest.mark.parametrize("text", ["iql", "2iq", "0iql", "1iql-1qmix", "", "iql1"])
def test_a_wrong_team_string_is_explained(text: str) -> None:
    with pytest.raises(OmgError, match="iql"):
        parse_team(text, ALGS)


def test_a_team_of_the_wrong_size_is_refused_with_both_numbers() -> None:
    with pytest.raises(OmgError, match=r"2 seats.*3 agents"):
        check_team_size("2iql", ("iql", "iql"), 3)


def test_each_algorithm_of_a_team_keeps_its_own_yaml() -> None:
    words = ["--config=1iql1qmix1vdn", "--multi_algs", "--train_alg=vdn", "--env-config=foraging"]
    config = load_command_line(words).config
    assert config.name == "vdn"
    assert set(config.team_algs) == {"iql", "qmix"}
    assert config.team_algs["qmix"]["mixer"] == "qmix"


def test_the_rotating_seat_covers_all_seats_and_the_others_keep_their_order(trained: Path) -> None:
    rollout = make_rollout(team_words(trained, "--is_agent_shift=True"))
    seen: set[int] = set()
    for finished in collect(rollout, 60):
        for row in range(len(finished.episodes)):
            seat = int(finished.episodes["agent_idx"][row])
            lineup = finished.episodes["lineup"][row].tolist()
            # The team is iql, qmix, learner: behind the learner, cyclically, come iql and qmix.
            assert lineup[seat] == -1
            assert [lineup[(seat + k) % 3] for k in (1, 2)] == [0, 1]
            seen.add(seat)
    assert seen == {0, 1, 2}


def test_without_shifting_the_team_string_fixes_every_seat(trained: Path) -> None:
    rollout = make_rollout(team_words(trained))
    for finished in collect(rollout, 30):
        assert set(finished.episodes["agent_idx"].tolist()) == {2}


def test_frozen_seats_act_as_the_policy_that_was_saved(trained: Path) -> None:
    rollout = make_rollout(team_words(trained, "--is_agent_shift=True"))
    agents = {}
    for number, alg in enumerate(("iql", "qmix")):
        config = load_command_line([*SMALL, f"--config={alg}", *TASK]).config
        mac = BasicMAC(config=config, spec=rollout.env.spec, device=CPU)
        state = load_tensors(trained / alg / "models" / "last" / "agent.th")
        mac.policy.network.load_state_dict(state)
        agents[number] = mac
    checked = 0
    for finished in collect(rollout, 40):
        episodes = finished.episodes
        for number, mac in agents.items():
            with torch.no_grad():
                q = mac.unroll(episodes).masked_fill(~episodes["avail_actions"], -torch.inf)
            for row in range(len(episodes)):
                length = int(episodes.lengths[row]) - 1
                seat = episodes["lineup"][row].tolist().index(number)
                best = q[row, :length, seat].argmax(-1)
                assert torch.equal(best, episodes["actions"][row, :length, seat])
                checked += length
    assert checked > 100


def test_the_learning_part_is_that_seats_own_trajectory() -> None:
    env = make_batched("foraging", KEY, n_copies=1)
    from omg.components.learning_agent import SEAT
    from omg.components.scheme import Field

    scheme = environment_scheme(env.spec, common_reward=False).extend(
        {SEAT: Field(dtype=torch.int64, storage=torch.int16, episode_const=True)}
    )
    batch = EpisodeBatch(scheme, batch_size=5, max_seq_length=4)
    rng = np.random.default_rng(0)
    seats = [0, 2, 1, 2, 0]
    batch.update(
        {
            "obs": rng.integers(-1, 7, (5, 4, 3, env.spec.obs_dim)),
            "actions": rng.integers(0, 6, (5, 4, 3)),
            "reward": rng.random((5, 4, 3)),
            "avail_actions": rng.random((5, 4, 3, 6)) < 0.5,
            "agent_idx": seats,
        }
    )
    part, found = learning_agent_part(batch)
    assert found.squeeze(1).tolist() == seats
    for row, seat in enumerate(seats):
        for name in ("obs", "actions", "avail_actions"):
            assert torch.equal(part[name][row, :, 0], batch[name][row, :, seat]), name
        assert torch.equal(part["reward"][row, :, 0], batch["reward"][row, :, seat])


def run_team(trained: Path, folder: Path, *words: str) -> Path:
    words = (*words, "--is_agent_shift=True", f"--local_results_path={folder}")
    return Path(train(team_words(trained, *words)).folder)


def test_a_mixed_team_trains_saves_per_algorithm_and_leaves_the_others_alone(
    trained: Path, tmp_path: Path
) -> None:
    before = make_rollout(team_words(trained)).mac
    folder = run_team(trained, tmp_path, "--run_name=team")
    after = make_rollout(team_words(trained)).mac
    assert (folder / "models" / "last" / "vdn" / "agent.th").is_file()
    assert isinstance(before, MultiModuleMAC)
    assert isinstance(after, MultiModuleMAC)
    pairs = zip(frozen_modules(before.roster), frozen_modules(after.roster), strict=True)
    for old, new in pairs:
        for mine, theirs in zip(old.state_dict().values(), new.state_dict().values(), strict=True):
            assert torch.equal(mine, theirs)
    records = read_metrics(folder / "metrics.jsonl")
    # t_max, batch and updates are those of one seat out of three.
    assert records[-1]["t_env"] >= 1500
    last = [r for r in records if "updates" in r][-1]
    assert last["updates"] == pytest.approx((last["episodes"] - 12) / 3, rel=0.1)
    # A saved team is loaded for evaluation from the run's folder.
    words = ["--evaluate", f"--checkpoint_path={folder}", f"--local_results_path={tmp_path}"]
    assert "test_return_mean" in train(team_words(trained, *words)).metrics


def test_the_learning_agents_own_return_is_logged_wherever_it_sat(trained: Path) -> None:
    rollout = make_rollout(team_words(trained, "--is_agent_shift=True"))
    for finished in collect(rollout, 40):
        own = finished.stats.info["own_return"]
        for row, seat in enumerate(finished.episodes["agent_idx"].tolist()):
            assert own[row] == finished.stats.returns[row, seat]


def test_a_pool_that_changed_is_refused_on_resume(trained: Path, tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_script("nearest_food")
    words = [*SMALL, "--config=iql_am", f"--opponent_pool={tmp_path / 'pool'}", "--run_name=a"]
    words += [f"--local_results_path={tmp_path}", *TASK]
    train([*words, "--t_max=200"])
    pool.add_script("random")
    with pytest.raises(OmgError, match="players changed"):
        train([*words, "--resume", "--t_max=300"])


def test_team_and_pool_at_once_are_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(OmgError, match="not both"):
        make_rollout(team_words(trained, f"--opponent_pool={tmp_path}"))


def test_frozen_networks_get_no_gradient_and_stay_bit_identical_in_memory(trained: Path) -> None:
    rollout = make_rollout(team_words(trained))
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    assert all(not p.requires_grad for m in frozen_modules(mac.roster) for p in m.parameters())


def test_a_mixed_team_resumes_exactly(trained: Path, tmp_path: Path) -> None:
    whole = run_team(trained, tmp_path, "--run_name=whole")
    half = run_team(trained, tmp_path, "--run_name=half", "--t_max=300")
    assert run_team(trained, tmp_path, "--run_name=half", "--resume", "--t_max=500") == half
    mine, theirs = (
        load_tensors(run / "models" / "last" / "vdn" / "agent.th") for run in (whole, half)
    )
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.mark.parametrize("mode", ["mixed", "homologue"])
def test_a_pool_of_checkpoints_and_scripts_is_played_against(
    trained: Path, tmp_path: Path, mode: str
) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_run(trained / "iql")
    pool.add_run(trained / "qmix")
    pool.add_script("nearest_food", noise=0.1)
    pool.add_script("random", split="heldout")
    words = [*SMALL, "--config=iql", "--mac=multi_module_mac", "--learner=q_learner_4am"]
    words += [f"--opponent_pool={tmp_path / 'pool'}", f"--lineup_mode={mode}", "--is_agent_shift"]
    rollout = make_rollout([*words, *TASK])
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    held_out = {m.id for m in pool.members(split="heldout")}
    drawn: set[str] = set()
    for finished in collect(rollout, 60):
        for lineup in finished.episodes["lineup"].tolist():
            drawn |= {mac.roster.names[member] for member in lineup if member >= 0}
    assert drawn == {m.id for m in pool.members(split="train")}
    assert not drawn & held_out
    result = train([*words, f"--local_results_path={tmp_path}", *TASK])
    assert any("loss" in r for r in read_metrics(result.folder / "metrics.jsonl"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--config=1iql1vdn"], r"2 seats.*3 agents"),
        (["--config=1iql1qmix1vdn", "--init_param_path="], "init_param_path"),
        (["--config=1iql1qmix1vdn", "--init_param_path=/nowhere"], "nowhere"),
    ],
)
def test_what_a_team_lacks_is_said(
    trained: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    common = ["--multi_algs", "--train_alg=vdn", "--mac=multi_module_mac", "--mixer=None"]
    common += ["--learner=q_learner_4am", f"--local_results_path={tmp_path}"]
    with pytest.raises(OmgError, match=sentence):
        train([*SMALL, f"--init_param_path={trained}", *common, *words, *TASK])


def test_a_team_that_was_fed_the_state_is_refused_where_the_widths_differ(
    trained: Path, tmp_path: Path
) -> None:
    task = ["with", "env_args.key=Foraging-6x6-3p-3f-v3"]
    words = [w for w in team_words(trained, f"--local_results_path={tmp_path}") if w not in TASK]
    with pytest.raises(OmgError, match="was trained with inputs of width"):
        train([*words, *task])


def test_a_member_that_does_not_say_what_it_sees_is_refused() -> None:
    spec = EnvSpec(name="x", n_agents=2, n_actions=3, obs_dim=4, state_dim=5, episode_limit=9)
    seen = {"obs_is_state": False, "obs_last_action": True, "obs_agent_id": True}
    policy: dict[str, Any] = {"input_dim": 4 + 3 + 2, "policy_model": "rnn", **seen}
    _check_fits("m", policy, spec)
    for key in policy:
        with pytest.raises(OmgError, match=f"m does not say its {key}"):
            _check_fits("m", {k: v for k, v in policy.items() if k != key}, spec)
