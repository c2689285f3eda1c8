"""Mixed teams: team strings, seats, frozen others, the learning agent's part of a batch."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from omg.cli.train import train
from omg.components.episodes import EpisodeBatch, environment_scheme
from omg.components.seeding import SeedTree
from omg.components.trajectories import seats_part
from omg.config.loader import load_command_line
from omg.config.team import check_team_size, parse_team
from omg.controllers.team import BasicMAC, MultiModuleMAC, TeamMAC
from omg.envs.registry import make_batched
from omg.experiment.output import read_metrics
from omg.experiment.trained import load_players, read_run
from omg.modules.agents.networks import AgentNetwork
from omg.opponents.building import frozen_policy, pool_lineup
from omg.opponents.lineups import EveryoneLearns
from omg.opponents.players import ScriptGroup, SingleGroup, StackedGroup
from omg.opponents.pool import OpponentPool
from omg.policies.inputs import StepView
from omg.runners.rollout import Finished, Rollout
from omg.storage.files import load_tensors
from omg.storage.sums import write_sums
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


def unrolled(mac: TeamMAC, batch: EpisodeBatch) -> Tensor:
    """Values of the learning seats in stored episodes, [B, T, n, A]."""
    played = mac.trajectories(batch)
    with torch.no_grad():
        return played.packing.unpack(mac.policy.unroll(mac.policy.inputs.packed(played), played))


def frozen_modules(mac: TeamMAC) -> list[nn.Module]:
    """The networks of the players that do not learn."""
    assert mac.lineup.players is not None
    return mac.lineup.players.modules()


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


@pytest.mark.long
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
            q = unrolled(mac, episodes).masked_fill(~episodes["avail_actions"], -torch.inf)
            for row in range(len(episodes)):
                length = int(episodes.lengths[row]) - 1
                seat = episodes["lineup"][row].tolist().index(number)
                best = q[row, :length, seat].argmax(-1)
                assert torch.equal(best, episodes["actions"][row, :length, seat])
                checked += length
    assert checked > 100


def test_the_learning_part_is_that_seats_own_trajectory() -> None:
    env = make_batched("foraging", KEY, n_copies=1)
    from omg.components.episodes import Field
    from omg.components.trajectories import SEAT

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
    part, found = seats_part(batch)
    assert found.squeeze(1).tolist() == seats
    for row, seat in enumerate(seats):
        for name in ("obs", "actions", "avail_actions"):
            assert torch.equal(part[name][row, :, 0], batch[name][row, :, seat]), name
        assert torch.equal(part["reward"][row, :, 0], batch["reward"][row, :, seat])


def run_team(trained: Path, folder: Path, *words: str) -> Path:
    words = (*words, "--is_agent_shift=True", f"--local_results_path={folder}")
    return Path(train(team_words(trained, *words)).folder)


@pytest.mark.long
def test_a_mixed_team_trains_saves_per_algorithm_and_leaves_the_others_alone(
    trained: Path, tmp_path: Path
) -> None:
    before = make_rollout(team_words(trained)).mac
    folder = run_team(trained, tmp_path, "--run_name=team")
    after = make_rollout(team_words(trained)).mac
    assert (folder / "models" / "last" / "vdn" / "agent.th").is_file()
    assert isinstance(before, MultiModuleMAC)
    assert isinstance(after, MultiModuleMAC)
    pairs = zip(frozen_modules(before), frozen_modules(after), strict=True)
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


@pytest.mark.long
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
    assert frozen_modules(mac)
    assert all(not p.requires_grad for m in frozen_modules(mac) for p in m.parameters())


@pytest.mark.long
def test_a_mixed_team_resumes_exactly(trained: Path, tmp_path: Path) -> None:
    whole = run_team(trained, tmp_path, "--run_name=whole")
    half = run_team(trained, tmp_path, "--run_name=half", "--t_max=300")
    assert run_team(trained, tmp_path, "--run_name=half", "--resume", "--t_max=500") == half
    mine, theirs = (
        load_tensors(run / "models" / "last" / "vdn" / "agent.th") for run in (whole, half)
    )
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.mark.long
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
            drawn |= {mac.players()[member] for member in lineup if member >= 0}
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
    config = load_command_line([*SMALL, "--config=iql_am", *TASK]).config

    def build(described: dict[str, Any]) -> None:
        frozen_policy(described, config=config, spec=spec, device=CPU, who="m")

    build(policy)
    for key in policy:
        with pytest.raises(OmgError, match=f"m does not say its {key}"):
            build({k: v for k, v in policy.items() if k != key})


# --- frozen players with opponent models, and with networks of the user's ------------------------


class Homemade(AgentNetwork):
    """A policy network of the user's: nothing that shipped networks could be stacked with."""

    def __init__(self, *, input_dim: int, n_actions: int, width: int = 6) -> None:
        super().__init__()
        self.carry_dim = width
        self.body = nn.Linear(input_dim + width, width)
        self.head = nn.Linear(width, n_actions)

    def step(
        self, inputs: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        carry = torch.tanh(self.body(torch.cat([inputs, carry], -1)))
        return self.head(carry), carry

    def unroll_packed(
        self, inputs: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        steps = []
        for rows in inputs.split(sizes.tolist()):
            steps.append(self.step(rows, carry[: len(rows)]))
            carry = steps[-1][1]
        outputs, carries = zip(*steps, strict=True)
        return torch.cat(outputs), torch.cat(carries)


OWN = f"--policy_model={__name__}:Homemade"
OMG = ["--config=iql_omg", "--subgoal_dim=7", "--am_hidden_dim=36", "--prior_min_accuracy=0"]
# Settings that are not those of whoever will learn beside them: they travel with the weights.
FROZEN = {
    "iql_am": ["--config=iql_am", "--am_history", "--am_hidden_dim=20"],
    "d3qn_liam": ["--config=d3qn_liam", "--liam_embed_dim=5", "--am_feature=both"],
    "d3qn_meliba": ["--config=d3qn_meliba", "--meliba_permanent_dim=3", "--am_hidden_dim=12"],
    "d3qn_types": ["--config=d3qn_types", "--types_max=5", "--types_feature=belief"],
    "iql_omg": [*OMG, "--subgoal_posterior=mean", "--subgoal_feature=both"],
    "present": ["--config=iql_am", "--am_present", "--scale_inputs=False", "--obs_is_state"],
    "homemade": ["--config=iql", OWN, "--agent_args.width=5"],
    "plain": ["--config=iql"],
}
SAMPLED = [*OMG, "--subgoal_posterior=sample"]


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of every kind of player in FROZEN, and `sampled`."""
    root = tmp_path_factory.mktemp("company")
    OpponentPool.create(root / "scripts").add_script("nearest_food")
    pool = f"--opponent_pool={root / 'scripts'}"

    def run(name: str, *words: str) -> Path:
        places = [f"--local_results_path={root}", f"--run_name={name}"]
        return Path(train([*SMALL, "--t_max=150", *words, *places, *TASK]).folder)

    prior = f"--init_param_path={run('prior', *OMG, pool, '--learner=am_learner')}"
    for name, words in {**FROZEN, "sampled": SAMPLED}.items():
        models = "--config=iql" not in words
        more = [*([pool] if models else []), *([prior] if OMG[0] in words else [])]
        enliven(run(name, *words, *more))
    return root


def enliven(run: Path) -> None:
    """Other weights, so that what is done depends on all that is seen, inferred, remembered."""
    for path in sorted(run.glob("models/**/*.th")):
        if path.name != "opt.th":
            torch.manual_seed(len(path.name))
            torch.save({k: _noisy(v) for k, v in load_tensors(path).items()}, path)
    for folder in run.glob("models/*"):
        write_sums(folder)


def _noisy(weights: Tensor) -> Tensor:
    """Names of types are no weights."""
    return weights + 0.5 * torch.randn_like(weights) if weights.is_floating_point() else weights


def original(run: Path, spec: EnvSpec) -> TeamMAC:
    """The policy of a run with its weights, alone in every seat."""
    config = read_run(run).config
    lineup = EveryoneLearns(spec) if config.mac == "multi_module_mac" else None
    mac = load_players(read_run(run), spec, CPU, lineup=lineup)
    assert isinstance(mac, TeamMAC)
    return mac


def shown(mac: TeamMAC, batch: EpisodeBatch, *, forgets: str = "") -> Tensor:
    """What a policy does in every seat of stored episodes that are shown to it step by step,
    [B, T, N]; `forgets`: a part of its memory that is lost after every step."""
    carry = mac.initial_carry(len(batch))
    last = torch.full(batch["actions"][:, 0].shape, -1)
    found = []
    for t in range(batch.max_seq_length):
        avail = batch["avail_actions"][:, t]
        view = StepView(
            obs=batch["obs"][:, t],
            state=batch["state"][:, t],
            avail=avail | ~avail.any(-1, keepdim=True),
            last_actions=last,
        )
        with torch.no_grad():
            acted = mac.act(view, carry, env_steps=0, greedy=True, generator=torch.Generator())
        fresh = {k: v for k, v in mac.initial_carry(len(batch)).items() if k == forgets}
        carry = {**acted.carry, **fresh}
        last = batch["actions"][:, t]
        found.append(acted.actions)
    return torch.stack(found, 1)


def assert_acts_as(
    originals: dict[int, TeamMAC], episodes: list[EpisodeBatch], *, least: int = 100
) -> None:
    """Every frozen seat did at every step what the run it was taken from would have done."""
    for number, mac in originals.items():
        checked = 0
        memory = {name for name, value in mac.initial_carry(1).items() if value.shape[-1]}
        matters: set[str] = set()
        for batch in episodes:
            found = shown(mac, batch)
            steps = torch.arange(batch.max_seq_length) < (batch.lengths - 1).unsqueeze(1)
            theirs = steps.unsqueeze(2) & (batch["lineup"] == number).unsqueeze(1)
            assert torch.equal(found[theirs], batch["actions"][theirs])
            checked += int(theirs.sum())
            for part in memory - matters:
                if (shown(mac, batch, forgets=part) != found)[theirs].any():
                    matters.add(part)
        assert checked > least
        assert matters == memory, "or nothing was tested of what it remembers"


def pool_of(company: Path, folder: Path, *names: str) -> OpponentPool:
    pool = OpponentPool.create(folder / "pool")
    pool.add_runs([company / name for name in names])
    return pool


def beside(pool: OpponentPool, *words: str, learner: str = "iql_am") -> list[str]:
    learn = [f"--config={learner}", f"--opponent_pool={pool.path}", "--lineup_mode=mixed"]
    return [*SMALL, *learn, *words, *TASK]


@pytest.mark.long
@pytest.mark.parametrize("name", FROZEN)
def test_a_member_acts_as_the_agent_it_was_with_its_opponent_model_and_its_memory(
    company: Path, tmp_path: Path, name: str
) -> None:
    rollout = make_rollout(beside(pool_of(company, tmp_path, name)))
    episodes = [finished.episodes for finished in collect(rollout, 60)]
    assert_acts_as({0: original(company / name, rollout.env.spec)}, episodes)


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--obs_is_state", "--scale_inputs=False", "--obs_last_action=False", "--am_present"],
        ["--am_history", "--am_hidden_dim=12", "--rnn_hidden_dim=8", "--dueling"],
    ],
    ids=["plain", "inputs", "sizes"],
)
def test_members_of_all_kinds_play_together_each_as_itself_whatever_the_learner_is_like(
    company: Path, tmp_path: Path, words: list[str]
) -> None:
    pool = pool_of(company, tmp_path, *FROZEN)
    pool.add_script("random")
    rollout = make_rollout(beside(pool, *words), copies=12)
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    assert mac.players() == [m.id for m in pool.members()]
    assert mac.lineup.players is not None
    kinds = [type(group) for group in mac.lineup.players.groups]
    assert kinds.count(SingleGroup) == 7
    assert kinds.count(StackedGroup) == kinds.count(ScriptGroup) == 1
    episodes = [finished.episodes for finished in collect(rollout, 100)]
    spec = rollout.env.spec
    assert_acts_as({n: original(company / name, spec) for n, name in enumerate(FROZEN)}, episodes)


@pytest.mark.long
def test_a_member_that_draws_its_subgoals_acts_alike_with_the_same_draws(
    company: Path, tmp_path: Path
) -> None:
    """It takes every seat of some games, as the agent it was does."""
    pool = pool_of(company, tmp_path, "sampled")
    env = make_batched("foraging", KEY, n_copies=5)
    config = load_command_line(beside(pool)).config
    players = pool_lineup(config, env.spec, CPU, (pool, pool.members())).players
    assert players is not None
    alone = original(company / "sampled", env.spec)
    theirs, mine = players.initial_carry(5), alone.initial_carry(5)
    players.seat(theirs, torch.arange(5), np.zeros((5, 3), np.int64))
    seen, last = env.reset(3), torch.full((5, 3), -1)
    drawn = set()
    for step in range(KEY["max_episode_steps"] - 1):
        view = StepView(
            obs=torch.from_numpy(seen.obs),
            state=torch.from_numpy(seen.state),
            avail=torch.from_numpy(seen.avail),
            last_actions=last,
        )
        with torch.no_grad():
            actions = torch.full((5, 3), -1)
            players.act(view, theirs, actions, torch.Generator().manual_seed(step))
            generators = (torch.Generator().manual_seed(n) for n in (step, 99 + step))
            acted, otherwise = (
                alone.act(view, mine, env_steps=0, greedy=True, generator=generator)
                for generator in generators
            )
        assert torch.equal(actions, acted.actions)
        drawn.add(torch.equal(actions, otherwise.actions))
        mine, last = acted.carry, actions
        seen = env.step(actions.numpy())
    assert False in drawn, "other draws must make a difference, or nothing was tested"


def digests(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.long
@pytest.mark.parametrize("learner", ["iql_am", "iql_omg", "d3qn_liam"])
def test_an_agent_learns_beside_agents_with_opponent_models_and_leaves_them_alone(
    company: Path, tmp_path: Path, learner: str
) -> None:
    pool = pool_of(company, tmp_path, "sampled", *FROZEN)
    before = digests(pool.path)
    words = beside(pool, f"--local_results_path={tmp_path}", "--t_max=100", learner=learner)
    words += ["--batch_size=2"]
    if learner == "iql_omg":  # with subgoals of another width than those of the members
        words += ["--subgoal_dim=4", "--prior_min_accuracy=0"]
        prior = train([*words, "--learner=am_learner", "--run_name=prior"]).folder
        words += [f"--init_param_path={prior}"]
    whole = train([*words, "--run_name=whole"]).folder
    assert any("am_loss" in record for record in read_metrics(whole / "metrics.jsonl"))
    train([*words, "--run_name=half", "--t_max=50"])
    half = train([*words, "--run_name=half", "--resume"]).folder
    files = sorted(path.name for path in (whole / "models" / "last" / learner).glob("*.th"))
    assert len(files) > 1
    for name in files:
        mine, theirs = (
            load_tensors(run / "models" / "last" / learner / name) for run in (whole, half)
        )
        assert all(torch.equal(mine[key], theirs[key]) for key in mine), name
    assert digests(pool.path) == before


@pytest.mark.long
def test_networks_of_members_with_opponent_models_get_no_gradient(
    company: Path, tmp_path: Path
) -> None:
    rollout = make_rollout(beside(pool_of(company, tmp_path, *FROZEN)))
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    weights = [p for module in frozen_modules(mac) for p in module.parameters()]
    assert len(weights) > 40
    assert not any(p.requires_grad for p in weights)
    own = {id(p) for network in mac.networks().values() for p in network.parameters()}
    assert not own & {id(p) for p in weights}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "file"),
    [("iql_am", "base_am"), ("d3qn_liam", "liam_am"), ("iql_omg", "cvae"), ("iql_omg", "vae")],
)
def test_a_damaged_opponent_model_of_a_member_is_refused_by_name(
    company: Path, tmp_path: Path, name: str, file: str
) -> None:
    pool = pool_of(company, tmp_path, name)
    path = pool.folder(pool.members()[0]) / f"{file}.th"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(OmgError, match=f"{re.escape(str(path))} is damaged or was changed"):
        train(beside(pool, f"--local_results_path={tmp_path}"))


def frozen_team(init: Path, *words: str) -> list[str]:
    """One seat of iql_am, one of vdn, which learns, and one of iql_omg."""
    learn = ["--config=1iql_am1vdn1iql_omg", "--multi_algs", "--train_alg=vdn", "--mixer=None"]
    learn += ["--mac=multi_module_mac", "--learner=q_learner_4am", "--common_reward=False"]
    return [*SMALL, *learn, f"--init_param_path={init}", "--is_agent_shift", *words, *TASK]


@pytest.mark.long
def test_a_team_string_seats_agents_with_opponent_models(company: Path, tmp_path: Path) -> None:
    rollout = make_rollout(frozen_team(company))
    assert isinstance(rollout.mac, MultiModuleMAC)
    assert rollout.mac.players() == ["iql_am", "iql_omg"]
    episodes = [finished.episodes for finished in collect(rollout, 60)]
    spec = rollout.env.spec
    names = enumerate(("iql_am", "iql_omg"))
    assert_acts_as({n: original(company / name, spec) for n, name in names}, episodes)
    run = train(frozen_team(company, f"--local_results_path={tmp_path}", "--t_max=150")).folder
    assert (run / "models" / "last" / "vdn" / "agent.th").is_file()


@pytest.mark.long
def test_a_team_string_takes_bare_files_of_an_agent_and_its_opponent_model(
    company: Path, tmp_path: Path
) -> None:
    """Files that say nothing of themselves have the settings of their algorithm's YAML."""
    for name in ("iql_am", "iql_omg"):
        words = [*SMALL, f"--config={name}", f"--opponent_pool={company / 'scripts'}", *TASK]
        config = load_command_line(words).config
        env = make_batched("foraging", KEY, n_copies=1)
        mac = MultiModuleMAC(config=config, spec=env.spec, device=CPU)
        for file, network in mac.networks().items():
            (tmp_path / file).parent.mkdir(exist_ok=True)
            torch.save(network.state_dict(), tmp_path / f"{file}.th")
    rollout = make_rollout(frozen_team(tmp_path))
    assert isinstance(rollout.mac, MultiModuleMAC)
    found = [module.state_dict() for module in frozen_modules(rollout.mac)]
    for file in ("iql_am/agent", "iql_am/base_am", "iql_omg/agent"):
        saved = load_tensors(tmp_path / f"{file}.th")
        assert any(
            saved.keys() == state.keys() and all(torch.equal(saved[k], state[k]) for k in saved)
            for state in found
        ), file
    assert collect(rollout, 15)
    other = "--am_hidden_dim=32"
    with pytest.raises(OmgError, match=r"no meta\.json.*team_algs\.iql_am\.<key>=<value>"):
        make_rollout(frozen_team(tmp_path, other))
    both = [f"--team_algs.{name}.am_hidden_dim=128" for name in ("iql_am", "iql_omg")]
    assert collect(make_rollout(frozen_team(tmp_path, other, *both)), 15)
    (tmp_path / "iql_am" / "base_am.th").unlink()
    with pytest.raises(OmgError, match=r"iql_am/base_am\.th does not exist"):
        make_rollout(frozen_team(tmp_path))


def test_a_learning_algorithm_of_whole_teams_is_named_as_what_is_wrong(tmp_path: Path) -> None:
    words = ["--config=2iql_am1iql", "--multi_algs", f"--init_param_path={tmp_path}"]
    said = "iql is the learning algorithm of the team 2iql_am1iql, and it trains whole teams"
    with pytest.raises(OmgError, match=said):
        train([*SMALL, *words, f"--local_results_path={tmp_path}", *TASK])


@pytest.mark.long
@pytest.mark.parametrize("told", [True, False], ids=["run", "bare files"])
def test_an_agent_that_looks_ahead_in_its_own_games_has_no_seat_in_a_team_string(
    company: Path, tmp_path: Path, told: bool
) -> None:
    words = ["--config=d3qn_oracle", f"--opponent_pool={company / 'scripts'}", "--t_max=30"]
    words += [f"--local_results_path={tmp_path / 'runs'}", "--run_name=d3qn_oracle"]
    init = train([*SMALL, *words, *TASK]).folder.parent
    if not told:
        init = tmp_path / "bare"
        shutil.copytree(
            tmp_path / "runs" / "d3qn_oracle" / "models" / "last" / "d3qn_oracle",
            init / "d3qn_oracle",
        )
    learn = ["--config=2d3qn_oracle1vdn", "--multi_algs", "--train_alg=vdn", "--mixer=None"]
    learn += ["--mac=multi_module_mac", "--learner=q_learner_4am", f"--init_param_path={init}"]
    with pytest.raises(OmgError, match=r"am_model=oracle_am, which looks ahead"):
        train([*SMALL, *learn, f"--local_results_path={tmp_path}", *TASK])


@pytest.mark.parametrize(
    ("said", "key", "learners", "shipped"),
    [
        ({"agent_output_type": "pi_logits"}, "temperature", "--temperature=0.3", 1.0),
        ({"am_model": "omg_am"}, "subgoal_posterior", "--subgoal_posterior=mean", "sample"),
    ],
)
def test_what_a_member_does_not_say_is_not_taken_from_whoever_learns(
    said: dict[str, Any], key: str, learners: str, shipped: Any
) -> None:
    """Files of an earlier version say less; what they do must not depend on the learner."""
    spec = make_batched("foraging", KEY, n_copies=1).spec
    described: dict[str, Any] = {"policy_model": "rnn", "obs_is_state": False, **said}
    described |= {"obs_last_action": True, "obs_agent_id": True}
    width = spec.obs_dim + spec.n_actions + spec.n_agents
    config = load_command_line([*SMALL, "--config=iql_am", learners, *TASK]).config
    subgoals = config.subgoal_dim if "am_model" in said else 0
    described["input_dim"] = width + subgoals
    policy = frozen_policy(described, config=config, spec=spec, device=CPU, who="m")
    assert getattr(policy.config, key) == shipped


# --- every seat learns, and models the others ----------------------------------------------------


@pytest.mark.long
def test_without_others_every_seat_learns_as_a_team_of_basic_mac(tmp_path: Path) -> None:
    """Without an opponent model it is the same run, to the last digit."""
    words = [*SMALL, "--config=iql", f"--local_results_path={tmp_path}", "--t_max=300"]
    team = train([*words, "--run_name=team", *TASK]).folder
    seats = train([*words, "--run_name=seats", "--mac=multi_module_mac", *TASK]).folder
    mine = load_tensors(team / "models" / "last" / "agent.th")
    theirs = load_tensors(seats / "models" / "last" / "iql" / "agent.th")
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    logged = [
        [{k: v for k, v in record.items() if k != "wall_s"} for record in read_metrics(path)]
        for path in (team / "metrics.jsonl", seats / "metrics.jsonl")
    ]
    assert logged[0] == logged[1]


@pytest.mark.long
@pytest.mark.parametrize("alg", ["iql_am", "d3qn_liam", "iql_omg", "ppo_am"])
def test_without_others_every_seat_learns_with_its_opponent_model(tmp_path: Path, alg: str) -> None:
    words = [*SMALL, f"--config={alg}", f"--local_results_path={tmp_path}", "--t_max=300"]
    words += ["--batch_size=4", "--prior_min_accuracy=0", "--subgoal_dim=4", "--ppo_epochs=2"]
    if alg == "iql_omg":
        prior = train([*words, "--learner=am_learner", "--run_name=prior", *TASK]).folder
        words += [f"--init_param_path={prior}"]
    run = train([*words, "--run_name=seats", *TASK]).folder
    records = read_metrics(run / "metrics.jsonl")
    assert any("am_loss" in record for record in records)
    assert 300 <= records[-1]["t_env"] < 400, "an episode is one of every seat"
    last = [r for r in records if "updates" in r][-1]
    if alg != "ppo_am":
        assert last["updates"] == last["episodes"]
    meta = json.loads((run / "models" / "last" / "meta.json").read_text())
    assert meta["players"] == []
    evaluated = [*words, "--evaluate", f"--checkpoint_path={run}", *TASK]
    assert "test_return_mean" in train(evaluated).metrics
    train([*words, "--run_name=half", "--t_max=150", *TASK])
    half = train([*words, "--run_name=half", "--resume", *TASK]).folder
    for path in sorted((run / "models" / "last" / alg).glob("*.th")):
        mine, theirs = load_tensors(path), load_tensors(half / path.relative_to(run))
        assert all(torch.equal(mine[key], theirs[key]) for key in mine), path.name
    # It has learned in every seat, so it may take any.
    (member,) = OpponentPool.create(tmp_path / "pool").add_run(run)
    rollout = make_rollout(beside(OpponentPool.open(tmp_path / "pool")))
    assert rollout.mac.players() == [member.id]
    assert collect(rollout, 15)


@pytest.mark.long
def test_values_of_every_seat_are_mixed_with_an_opponent_model(tmp_path: Path) -> None:
    words = ["--config=qmix", "--mac=multi_module_mac", "--am_model=base_am", "--t_max=300"]
    run = train([*SMALL, *words, f"--local_results_path={tmp_path}", *TASK]).folder
    assert any({"loss", "am_loss"} <= set(r) for r in read_metrics(run / "metrics.jsonl"))
    saved = run / "models" / "last"
    assert {"agent.th", "base_am.th"} <= {path.name for path in (saved / "qmix").iterdir()}
    assert (saved / "mixer.th").is_file()


def test_where_every_seat_learns_nobody_knows_the_future_of_frozen_players(tmp_path: Path) -> None:
    with pytest.raises(OmgError, match=r"here every seat learns\. Give opponent_pool"):
        train([*SMALL, "--config=d3qn_oracle", f"--local_results_path={tmp_path}", *TASK])


def test_an_agent_that_learned_in_every_seat_may_be_a_member_without_having_shifted(
    tmp_path: Path,
) -> None:
    words = ["--config=iql_am", "--is_agent_shift=False", "--t_max=60"]
    run = train([*SMALL, *words, f"--local_results_path={tmp_path}", *TASK]).folder
    pool = OpponentPool.create(tmp_path / "pool")
    (member,) = pool.add_run(run)
    rollout = make_rollout(beside(pool))
    assert rollout.mac.players() == [member.id]
    assert collect(rollout, 15)


@pytest.mark.long
def test_the_batch_of_a_policy_learner_does_not_matter_to_its_frozen_opponents(
    company: Path, tmp_path: Path
) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_run(company / "plain")
    words = ["--config=ppo", f"--opponent_pool={pool.path}", "--batch_size=17", "--buffer_size=16"]
    config = load_command_line(["--env-config=foraging", *words]).config
    spec = make_batched("foraging", KEY, n_copies=1).spec
    assert pool_lineup(config, spec, CPU, (pool, pool.members())).players is not None
