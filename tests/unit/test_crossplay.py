"""Learning agents against opponents: which cells, which episodes, which numbers."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from omg.components.episodes import EpisodeBatch
from omg.evaluation import agent_runs
from omg.evaluation.agent_runs import SeatedAgent, read_agent_run
from omg.evaluation.crossplay import CPU, CrossplayPlan, open_pool, read_agents, run_crossplay
from omg.evaluation.crossplay_files import heat_map_values
from omg.evaluation.crossplay_table import Crossplay, cell_metrics
from omg.evaluation.finetune import Finetuner
from omg.evaluation.statistics import summarise
from omg.evaluation.subgoal_replay import write_subgoal_replays
from omg.learners.base import Metrics, Progress
from omg.learners.q_learner import QLearner
from omg.modules.opponent_models.subgoal_nets import PriorVAE
from omg.opponents.pool import OpponentPool
from omg.opponents.pool_members import write_manifest
from omg.runners.rollout import EpisodeStats, Finished, play_episodes
from omg.storage.files import load_tensors
from omg.storage.sums import write_sums
from omg.types import OmgError

from .studies import EASY, MEMBERS, TASK, TASK3, make_run, make_study

BOTH = CrossplayPlan(splits=("train", "heldout"), episodes=9)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("study"))


def runs(study: Path, *names: str) -> list[Path]:
    return [study / name for name in names or ("naive-s1", "naive-s2", "omg-s1")]


@pytest.fixture(scope="module")
def table(study: Path) -> Crossplay:
    return run_crossplay(runs(study), "", BOTH)


def seated(study: Path, name: str, *, episodes: int, seed: int = 0) -> SeatedAgent:
    agent = read_agent_run(study / name)
    pool = open_pool("", agent)
    return SeatedAgent(agent, pool, pool.members()[:1], episodes=episodes, seed=seed, device=CPU)


def played(agent: SeatedAgent, member: str, episodes: int) -> list[Finished]:
    lineup = agent.lineup([agent.pool.member(member)])
    rollout = agent.rollout(lineup, stream="test")
    return play_episodes(rollout, episodes, round_number=0, env_steps=0)


def changed(study: Path, tmp_path: Path, name: str = "naive-s1", **config: Any) -> Path:
    """A copy of a run with other values in its config.yaml; None removes a key."""
    run = tmp_path / "changed"
    shutil.copytree(study / name, run)
    values = yaml.safe_load((run / "config.yaml").read_text()) | config
    kept = {key: value for key, value in values.items() if value is not None or key == "mixer"}
    (run / "config.yaml").write_text(yaml.safe_dump(kept))
    return run


# --- cells --------------------------------------------------------------------------------------


@pytest.mark.long
def test_every_agent_plays_every_member_as_often_as_asked(table: Crossplay) -> None:
    assert [c.agent for c in table.cells] == [a.id for a in table.agents for _ in range(4)]
    assert [a.id for a in table.agents] == ["naive-s1", "naive-s2", "iql_omg-s1"]
    assert table.methods() == {"Naive": ["naive-s1", "naive-s2"], "iql_omg": ["iql_omg-s1"]}
    for cell in table.cells:
        assert cell.opponent in MEMBERS[cell.split]
        assert cell.episodes == 9
        usual = {"own_return", "discounted_return", "return", "ep_length", "food_collected"}
        assert usual <= set(cell.metrics)
        assert ("hit_ratio" in cell.metrics) == (cell.agent == "iql_omg-s1")
    assert [m.id for m in table.opponents] == MEMBERS["train"] + MEMBERS["heldout"]


@pytest.mark.long
@pytest.mark.parametrize("finetune", [0, 6])
def test_a_cell_does_not_depend_on_who_else_is_evaluated(study: Path, finetune: int) -> None:
    """Noisy scripts and sampled subgoals are among them: their random streams are the cell's."""
    plan = replace(BOTH, finetune_episodes=finetune)
    whole = run_crossplay(runs(study, "naive-s1", "omg-s1"), "", plan)
    alone = run_crossplay(runs(study, "omg-s1"), "", replace(plan, splits=("heldout",)))
    expected = [c for c in whole.cells if c.agent == "iql_omg-s1" and c.split == "heldout"]
    assert list(alone.cells) == expected


@pytest.mark.long
def test_another_seed_plays_other_episodes(study: Path, table: Crossplay) -> None:
    other = run_crossplay(runs(study, "naive-s1"), "", replace(BOTH, seed=1))
    assert list(other.cells) != [c for c in table.cells if c.agent == "naive-s1"]


def test_every_agent_begins_the_same_episodes(study: Path) -> None:
    starts = []
    for name in ("naive-s1", "omg-s1"):
        with seated(study, name, episodes=6) as agent:
            found = played(agent, "script-random-0", 6)
        copies = np.concatenate([f.stats.copies for f in found])
        first = np.concatenate([f.episodes["state"][:, 0].numpy() for f in found])
        starts.append(first[np.argsort(copies)])
    assert np.array_equal(*starts)
    assert len(np.unique(starts[0], axis=0)) > 1


@pytest.mark.parametrize("most", [512, 5])
def test_the_learning_seat_goes_round(
    study: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(agent_runs, "NATIVE_COPIES", most)
    with seated(study, "naive-s1", episodes=11) as agent:
        assert agent.env.n_copies == (11 if most == 512 else 4)
        found = played(agent, "script-nearest_food-0.1", 11)
    seats = np.concatenate([f.episodes["agent_idx"].numpy() for f in found])
    assert sorted(np.bincount(seats)) == [5, 6]


def test_the_agent_plays_greedily_with_its_saved_weights(study: Path) -> None:
    with seated(study, "naive-s1", episodes=5) as agent:
        saved = load_tensors(study / "naive-s1" / "models" / "last" / "iql_am" / "agent.th")
        mine = agent.mac.policy.network.state_dict()
        assert all(torch.equal(mine[key], saved[key]) for key in saved)
        lineup = agent.lineup([agent.pool.member("iql-200")])
        assert agent.rollout(lineup, stream="test").greedy


def set_preferences(run: Path, values: dict[int, float]) -> None:
    """Make the agent prefer some actions to the others, whatever it sees."""
    weights = run / "models" / "last" / "iql_am" / "agent.th"
    state = {key: torch.zeros_like(value) for key, value in load_tensors(weights).items()}
    (bias,) = [key for key, value in state.items() if value.shape == (6,)]
    for action, value in values.items():
        state[bias][action] = value
    torch.save(state, weights)
    write_sums(weights.parents[1])


def test_the_numbers_of_a_cell_are_means_over_its_episodes(study: Path, tmp_path: Path) -> None:
    run = changed(study, tmp_path)
    set_preferences(run, {5: 2.0, 1: 1.0})  # loads if it can, else goes north
    cells = run_crossplay([run], "", CrossplayPlan(splits=("heldout",), episodes=60)).cells
    with seated(run, "", episodes=60) as agent:
        lineup = agent.lineup([agent.pool.member("script-random-0")])
        rollout = agent.rollout(lineup, stream="evaluation.homologue.script-random-0")
        found = play_episodes(rollout, 60, round_number=0, env_steps=0)
    own, discounted, team, lengths = [], [], [], []
    for finished in found:
        for row in range(len(finished.episodes)):
            episode: EpisodeBatch = finished.episodes[row]
            steps, seat = int(episode.lengths[0]) - 1, int(episode["agent_idx"][0])
            rewards = episode["reward"][0, :steps].double().numpy()
            own.append(rewards[:, seat].sum())
            discounted.append((0.95 ** np.arange(steps) * rewards[:, seat]).sum())
            team.append(rewards.sum())
            lengths.append(steps)
    metrics = cells[0].metrics
    assert cells[0].opponent == "script-random-0"
    assert metrics["own_return"] == pytest.approx(np.mean(own))
    assert metrics["discounted_return"] == pytest.approx(np.mean(discounted))
    assert metrics["return"] == pytest.approx(np.mean(team))
    assert metrics["ep_length"] == pytest.approx(np.mean(lengths))
    assert 0 < np.mean(discounted) < np.mean(own) < np.mean(team)


def test_won_battles_are_a_win_rate_and_what_was_not_reported_does_not_count() -> None:
    result = EpisodeStats(
        copies=np.arange(4),
        returns=np.zeros((4, 2), np.float32),
        team_returns=np.array([1, 2, 3, 6], np.float32),
        lengths=np.array([1, 1, 2, 4]),
        truncated=np.array([True, False, False, False]),
        info={
            "battle_won": np.array([1, 0, np.nan, 1], np.float32),
            "kills": np.full(4, np.nan, np.float32),
        },
    )
    expected = {"return": 3.0, "ep_length": 2.0, "win_rate": pytest.approx(2 / 3)}
    assert cell_metrics(result) == {**expected, "truncated": 0.25}


@pytest.mark.long
def test_a_game_against_a_forager_who_needs_nobody_ends_as_expected(tmp_path: Path) -> None:
    """The agent's network is changed to stand still whatever it sees; food of level 1 is then
    taken by the scripted player alone, by the straightest way."""
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_script("nearest_food", split="heldout")
    pool.add_script("random")
    words = ["--config=iql_am", "--am_model=none_am", f"--opponent_pool={tmp_path / 'pool'}"]
    run = make_run(tmp_path, "still", *words, task=[*TASK, *EASY])
    set_preferences(run, {0: 1.0})
    cell = run_crossplay([run], "", CrossplayPlan(episodes=40)).cells[0]
    assert cell.metrics["own_return"] == cell.metrics["discounted_return"] == 0.0
    assert cell.metrics["return"] == cell.metrics["food_collected"] == 1.0
    assert cell.metrics["truncated"] == 0.0
    with SeatedAgent(
        read_agent_run(run), pool, pool.members("heldout"), episodes=40, seed=0, device=CPU
    ) as agent:
        rollout = agent.rollout(
            agent.lineup(pool.members("heldout")),
            stream="evaluation.homologue.script-nearest_food-0",
        )
        found = play_episodes(rollout, 40, round_number=0, env_steps=0)
    shortest = []
    for finished in found:
        for row, seat in enumerate(finished.episodes["agent_idx"].tolist()):
            food, *players = finished.episodes["state"][row, 0].view(-1, 3)[:, :2].tolist()
            there = players[1 - seat]
            # As many steps as lie between, minus the last, plus the loading.
            shortest.append(abs(food[0] - there[0]) + abs(food[1] - there[1]))
    # The one who stands still may be in the way, for two steps at most.
    assert np.mean(shortest) <= cell.metrics["ep_length"] <= np.mean(shortest) + 0.3


# --- line-ups -----------------------------------------------------------------------------------


@pytest.mark.long
def test_mixed_line_ups_are_played_with_three_players_or_when_asked(
    study: Path, tmp_path: Path
) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    for name in ("nearest_food", "highest_level", "random"):
        pool.add_script(name)
    words = ["--config=iql_am", f"--opponent_pool={tmp_path / 'pool'}"]
    run = make_run(tmp_path, "three", *words, task=TASK3)
    cells = run_crossplay([run], "", CrossplayPlan(splits=("train",), episodes=6)).cells
    assert [(c.opponent, c.lineup) for c in cells] == [
        *((m.id, "homologue") for m in pool.members()),
        ("mixed", "mixed"),
    ]
    agent = read_agent_run(run)
    with SeatedAgent(agent, pool, pool.members(), episodes=20, seed=0, device=CPU) as table:
        for mode, kinds in (("homologue", {1}), ("mixed", {1, 2})):
            members = pool.members() if mode == "mixed" else pool.members()[:1]
            rollout = table.rollout(table.lineup(members, mode), stream="test")  # type: ignore[arg-type]
            found = play_episodes(rollout, 20, round_number=0, env_steps=0)
            lineups = [x for f in found for x in f.episodes["lineup"].tolist()]
            assert {len({m for m in lineup if m >= 0}) for lineup in lineups} == kinds
            assert all(lineup.count(-1) == 1 for lineup in lineups)
    # Two players: left out unless asked for, and both sides keep their own column.
    asked = run_crossplay(runs(study, "naive-s1"), "", replace(BOTH, lineup="both"))
    assert [c.opponent for c in asked.cells if c.lineup == "mixed"] == ["mixed", "mixed"]
    values = [asked.matrix(["naive-s1"], s, "mixed", "ep_length") for s in ("train", "heldout")]  # type: ignore[arg-type]
    assert values[0].shape == values[1].shape == (1, 1)
    assert values[0] != values[1]


@pytest.mark.long
@pytest.mark.parametrize("finetune", [0, 6])
def test_agents_are_played_with_agents_that_have_opponent_models(
    study: Path, tmp_path: Path, finetune: int
) -> None:
    """A cell does not depend on who else is in the pool, whatever the members draw."""
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_runs([study / "omg-s1", study / "naive-s2"], split="heldout")
    plan = CrossplayPlan(splits=("heldout",), episodes=8, finetune_episodes=finetune)
    table = run_crossplay(runs(study, "naive-s1", "omg-s1"), pool.path, plan)
    names = [m.id for m in pool.members()]
    assert [(c.agent, c.opponent) for c in table.cells] == [
        (agent, name) for agent in ("naive-s1", "iql_omg-s1") for name in names
    ]
    alone = OpponentPool.create(tmp_path / "alone")
    alone.add_run(study / "omg-s1", split="heldout")
    again = run_crossplay(runs(study, "naive-s1"), alone.path, plan)
    assert list(again.cells) == [table.cells[0]]


# --- fine-tuning --------------------------------------------------------------------------------


def digest(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.long
def test_finetuning_learns_from_what_is_there_and_leaves_the_files_alone(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(study / "naive-s1")
    seen: list[tuple[int, Progress]] = []
    original = QLearner.train

    def train(self: QLearner, batch: EpisodeBatch, progress: Progress) -> Metrics:
        seen.append((len(batch), progress))
        return original(self, batch, progress)

    monkeypatch.setattr(QLearner, "train", train)
    with seated(study, "naive-s1", episodes=4) as agent:
        tuner = Finetuner(agent)
        network = agent.mac.policy.network
        saved = [p.detach().clone() for p in network.parameters()]
        lineup = agent.lineup([agent.pool.member("script-random-0")])
        assert tuner.train(lineup, episodes=20, stream="a") == len(seen) == 10
        tuned = [p.detach().clone() for p in network.parameters()]
        assert any(not torch.equal(a, b) for a, b in zip(saved, tuned, strict=True))
        # A batch is 4 episodes for each of 2 seats, or what is there; ε has reached its end.
        assert [size for size, _ in seen] == [min(8, progress.episodes) for _, progress in seen]
        assert seen[0][0] < 8 == seen[-1][0]
        epsilon = agent.mac.metrics(seen[0][1].env_steps)["epsilon"]
        assert epsilon == pytest.approx(agent.config.epsilon_finish)
        # For the next opponent it begins again, with equal episodes equally.
        tuner.train(lineup, episodes=20, stream="a")
        for mine, theirs in zip(network.parameters(), tuned, strict=True):
            assert torch.equal(mine, theirs)
        tuner.restore()
        for mine, theirs in zip(network.parameters(), saved, strict=True):
            assert torch.equal(mine, theirs)
    assert digest(study / "naive-s1") == before


@pytest.mark.long
def test_finetuning_changes_what_is_tested(study: Path, table: Crossplay) -> None:
    tuned = run_crossplay(runs(study, "naive-s1"), "", replace(BOTH, finetune_episodes=40))
    assert list(tuned.cells) != [c for c in table.cells if c.agent == "naive-s1"]


# --- what follows from the cells ----------------------------------------------------------------


def test_the_summary_is_that_of_seeds_times_opponents(table: Crossplay) -> None:
    rows = {(r["method"], r["split"], r["metric"]): r for r in table.summary()}
    row = rows["Naive", "heldout", "own_return"]
    assert (row["agents"], row["opponents"], row["lineup"]) == (2, 2, "homologue")
    known = {(c.agent, c.opponent): c.metrics["own_return"] for c in table.cells}
    values = np.array([[known[f"naive-s{s}", o] for o in MEMBERS["heldout"]] for s in (1, 2)])
    found = summarise(values)
    assert (row["mean"], row["iqm"]) == (found.mean.value, found.iqm)
    assert row["seeds"] == pytest.approx(values.mean(1))
    assert (row["mean_low"], row["mean_high"]) == (None, None)  # two seeds have no interval
    assert ("iql_omg", "heldout", "hit_ratio") in rows
    assert ("Naive", "heldout", "hit_ratio") not in rows


def test_differences_are_taken_to_the_baseline(study: Path, table: Crossplay) -> None:
    assert {r["baseline"] for r in table.paired()} == {"Naive"}  # the first, unless named
    other = replace(table, baseline="iql_omg")
    pairs = {(r["method"], r["split"], r["metric"]): r for r in other.paired()}
    means = {(r["method"], r["split"], r["metric"]): r["mean"] for r in other.summary()}
    row = pairs["Naive", "train", "return"]
    expected = means["Naive", "train", "return"] - means["iql_omg", "train", "return"]
    assert row["difference"] == pytest.approx(expected)
    assert (row["low"], row["high"]) == (None, None)
    assert not any(key[2] == "hit_ratio" for key in pairs)


def test_the_scores_and_profiles_are_those_of_the_cells(table: Crossplay) -> None:
    known = {(c.agent, c.opponent): c.metrics["own_return"] for c in table.cells}
    scores = table.scores()["own_return"]["heldout homologue"]
    assert scores["Naive"] == [
        [known[f"naive-s{s}", o] for o in MEMBERS["heldout"]] for s in (1, 2)
    ]
    assert np.array(scores["iql_omg"]).shape == (1, 2)
    rows = [
        (r["threshold"], r["share"])
        for r in table.profiles()
        if (r["method"], r["split"], r["metric"]) == ("Naive", "heldout", "own_return")
    ]
    every = np.array(scores["Naive"]).ravel()
    assert all(share == np.mean([x > t for x in every]) for t, share in rows)
    both = [*every, *np.array(scores["iql_omg"]).ravel()]
    assert (rows[0][0], rows[-1][0]) == pytest.approx((min(both), max(both)))


def test_the_permutation_test_compares_every_agent_with_itself(table: Crossplay) -> None:
    """Losses 0.1, 0.2, 0.3 over the seeds: deviation 0.1, so -0.2 ± 4.303 · 0.1 / √3."""
    first = table.agents[0]
    cells = [
        replace(
            table.cells[0],
            agent=f"a{seed}",
            metrics={"own_return": 10.0 * seed, "permuted_own_return": 9.9 * seed + 0.0},
        )
        for seed in (1, 2, 3)
    ]
    agents = tuple(replace(first, id=f"a{seed}", seed=seed) for seed in (1, 2, 3))
    (row,) = replace(table, agents=agents, cells=tuple(cells)).permutations()
    assert (row.mean, row.permuted) == pytest.approx((20.0, 19.8))
    assert row.seeds == pytest.approx((-0.1, -0.2, -0.3))
    assert row.high is not None
    assert row.high == pytest.approx(-0.2 + 4.30265 * 0.1 / np.sqrt(3), abs=1e-4)
    assert row.high > 0  # an interval over the returns themselves would be 50 wide


def test_the_heat_map_shows_means_over_seeds_with_the_sides_apart(table: Crossplay) -> None:
    rows, sides = heat_map_values(table, "ep_length")
    assert rows == ["Naive", "iql_omg"]
    assert [columns for _, columns, _ in sides] == [MEMBERS["train"], MEMBERS["heldout"]]
    known = {(c.agent, c.opponent): c.metrics["ep_length"] for c in table.cells}
    expected = (known["naive-s1", "iql-200"] + known["naive-s2", "iql-200"]) / 2
    assert sides[0][2][0, 0] == pytest.approx(expected)


def test_the_content_of_the_file_has_the_agreed_keys(study: Path, table: Crossplay) -> None:
    content = json.loads(json.dumps(table.as_dict(), allow_nan=False))
    assert {"format", "env", "env_args", "episodes", "finetune_episodes", "seed"} <= set(content)
    agent = content["agents"][2]
    assert agent["id"] == "iql_omg-s1"
    assert agent["am_model"] == "omg_am"
    assert agent["run"] == str(study / "omg-s1")
    assert agent["env_steps"] >= 400
    prior = json.loads((study / "prior/models/last/meta.json").read_text())["env_steps"]
    assert [a["prior_steps"] for a in content["agents"]] == [0, 0, prior]
    assert table.steps()[2]["total_steps"] == agent["env_steps"] + prior
    script = content["opponents"][1]
    assert script["algorithm"] == "script"
    assert script["seed"] is None
    assert set(content["cells"][0]) == {
        *("agent", "opponent", "lineup", "split", "episodes", "metrics")
    }


# --- replays ------------------------------------------------------------------------------------


def replays(study: Path, name: str, folder: Path, count: int) -> list[dict[str, Any]]:
    agent = read_agent_run(study / name)
    pool = open_pool("", agent)
    members = pool.members("heldout")
    paths = write_subgoal_replays("me", agent, pool, members, folder, count=count)
    assert len(paths) == count
    found = [json.loads(path.read_text()) for path in paths]
    return sorted(found, key=lambda r: MEMBERS["heldout"].index(r["opponent"]))


def test_replays_hold_whole_episodes_with_decoded_subgoals(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(self: PriorVAE, subgoal: torch.Tensor) -> torch.Tensor:
        # A food, and players in the cells (1, 2) and (3, 0). The scale of a 5 x 5 field is 1/5.
        state = torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 3.0, 0.0, 1.0]) / 5
        return state.expand(len(subgoal), -1)

    monkeypatch.setattr(PriorVAE, "decode", decode)
    found = replays(study, "omg-s1", tmp_path, 3)
    assert [r["opponent"] for r in found] == [MEMBERS["heldout"][i] for i in (0, 0, 1)]
    assert sorted(r["seat"] for r in found) == [0, 0, 1]
    for replay in found:
        steps = len(replay["actions"])
        assert len(replay["frames"]) == steps + 1
        assert replay["field_size"] == [5, 5]
        other = [3.0, 0.0] if replay["seat"] == 0 else [1.0, 2.0]
        assert replay["subgoals"] == [[other]] * steps
        assert all(len(frame["players"]) == 2 for frame in replay["frames"])
        moves = {0: (0, 0), 1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1), 5: (0, 0)}
        for before, after, actions in zip(
            replay["frames"], replay["frames"][1:], replay["actions"], strict=False
        ):
            for old, new, action in zip(before["players"], after["players"], actions, strict=True):
                step = (new[0] - old[0], new[1] - old[1])
                assert step in {moves[action], (0, 0)}
        assert sum(replay["frames"][-1]["score"]) == pytest.approx(
            float(not replay["frames"][-1]["foods"])
        )


def test_replays_of_an_agent_without_subgoals_say_so(study: Path, tmp_path: Path) -> None:
    assert [r["subgoals"] for r in replays(study, "naive-s1", tmp_path, 2)] == [None, None]


# --- what is refused ----------------------------------------------------------------------------


def test_a_run_made_before_a_key_existed_has_its_default(study: Path, tmp_path: Path) -> None:
    run = changed(study, tmp_path, opponent_epsilon=None)
    assert read_agent_run(run).config.opponent_epsilon == 0.0


def test_weights_can_be_chosen(study: Path) -> None:
    steps = [p.name for p in (study / "naive-s1" / "models").iterdir() if p.name.isdecimal()]
    for which in ("last", "best", steps[-1]):
        assert read_agent_run(study / "naive-s1", which).model.name == which
    with pytest.raises(OmgError, match=r"no model '17'. It has: last, best, "):
        read_agent_run(study / "naive-s1", "17")


@pytest.mark.long
def test_an_agent_stopped_early_has_cost_all_its_steps(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = CrossplayPlan(splits=("train",), episodes=2)
    monkeypatch.setattr("omg.evaluation.crossplay.read_meta", lambda folder: {"env_steps": 999})
    for which, steps in (("best", 999), ("last", 400)):
        (agent,) = run_crossplay(runs(study, "naive-s1"), "", replace(plan, which=which)).agents
        assert (agent.model, agent.env_steps) == (which, steps)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("pool", "is not a run"),
        ("iql", r"trained a whole team \(mac=basic_mac\)"),
        ("prior", "trained an opponent model"),
    ],
)
def test_what_is_no_learning_agent_is_refused(study: Path, name: str, sentence: str) -> None:
    with pytest.raises(OmgError, match=sentence):
        read_agents([study / name])


def test_a_run_without_models_is_refused(study: Path, tmp_path: Path) -> None:
    run = changed(study, tmp_path)
    shutil.rmtree(run / "models")
    with pytest.raises(OmgError, match="has no saved model"):
        read_agents([run])


def test_weights_that_do_not_fit_are_explained(study: Path, tmp_path: Path) -> None:
    run = changed(study, tmp_path, rnn_hidden_dim=8)
    with pytest.raises(OmgError, match="rnn_hidden_dim=16 there, 8 here"):
        run_crossplay([run], "", BOTH)


def test_two_runs_that_would_be_one_seed_are_refused(study: Path, tmp_path: Path) -> None:
    run = changed(study, tmp_path, lr=0.1)
    with pytest.raises(OmgError, match="both 'Naive' with seed 1"):
        read_agents([study / "naive-s1", run])


def test_runs_of_one_label_that_differ_in_a_setting_are_no_seeds_of_one_method(
    study: Path, tmp_path: Path
) -> None:
    run = changed(study, tmp_path, lr=0.1, seed=9)
    with pytest.raises(OmgError, match="'Naive' differ in lr, so they are not seeds"):
        read_agents([study / "naive-s1", run])


def test_agents_of_different_games_are_refused(study: Path, tmp_path: Path) -> None:
    run = changed(study, tmp_path, env_args={"key": "Foraging-5x5-2p-2f-v3"})
    with pytest.raises(OmgError, match="Compare agents of one environment"):
        read_agents([study / "naive-s2", run])


def test_a_pool_of_another_environment_is_refused(study: Path, tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    member = replace(pool.add_script("random"), env="other")
    write_manifest(tmp_path / "pool", [member])
    with pytest.raises(OmgError, match=r"plays env=foraging, .* for env=other"):
        run_crossplay(runs(study, "naive-s1"), tmp_path / "pool", BOTH)


def test_a_side_without_members_is_refused(study: Path, tmp_path: Path) -> None:
    OpponentPool.create(tmp_path / "pool").add_script("random")
    with pytest.raises(OmgError, match="has no heldout members"):
        run_crossplay(runs(study, "naive-s1"), tmp_path / "pool", BOTH)


def test_opponents_met_in_training_cannot_pass_for_unseen(study: Path, tmp_path: Path) -> None:
    moved = tmp_path / "pool"
    shutil.copytree(study / "pool", moved)
    OpponentPool.open(moved).split(["iql"])
    with pytest.raises(OmgError, match=r"was trained with iql-200, which .* holds out now"):
        run_crossplay([study / "naive-s1"], moved, CrossplayPlan(splits=("heldout",), episodes=2))


@pytest.mark.long
def test_agents_explore_where_asked_to(study: Path, tmp_path: Path) -> None:
    """Greedy, ε makes no difference; sampling, an agent that only explores plays another game."""
    plan = CrossplayPlan(splits=("train",), episodes=8)
    noisy = changed(study, tmp_path, epsilon_finish=1.0)
    greedy, explored = (
        run_crossplay([noisy], study / "pool", replace(plan, greedy=choice))
        for choice in (True, False)
    )
    usual = run_crossplay([study / "naive-s1"], study / "pool", plan)
    assert [c.metrics for c in greedy.cells] == [c.metrics for c in usual.cells]
    assert [c.metrics for c in explored.cells] != [c.metrics for c in usual.cells]
    assert (greedy.as_dict()["greedy"], explored.as_dict()["greedy"]) == (True, False)


@pytest.mark.long
def test_agents_act_as_they_are_tested_in_training_unless_told_otherwise(
    study: Path, tmp_path: Path
) -> None:
    plan = CrossplayPlan(splits=("train",), episodes=8)
    noisy = changed(study, tmp_path, epsilon_finish=1.0, test_greedy=False)
    played = run_crossplay([noisy], study / "pool", plan)
    explored = run_crossplay([noisy], study / "pool", replace(plan, greedy=False))
    usual = run_crossplay([study / "naive-s1"], study / "pool", plan)
    assert [c.metrics for c in played.cells] == [c.metrics for c in explored.cells]
    assert [c.metrics for c in played.cells] != [c.metrics for c in usual.cells]
    assert (played.agents[0].greedy, usual.agents[0].greedy) == (False, True)
    assert (played.acting(), usual.acting()) == (
        "Agents acted as in training (sampled or exploring).",
        "Agents acted greedily.",
    )
    both = replace(usual, agents=(*usual.agents, replace(played.agents[0], method="PPO")))
    assert both.acting().endswith("as in training (sampled or exploring): PPO.")
    old = replace(usual, greedy=True, agents=(replace(usual.agents[0], greedy=None),))
    assert old.acting() == "Agents acted greedily."


@pytest.mark.long
def test_a_permuted_agent_is_measured_beside_the_real_one(study: Path) -> None:
    plan = CrossplayPlan(splits=("train",), episodes=8, permute=True)
    table = run_crossplay([study / "omg-s1", study / "naive-s1"], study / "pool", plan)
    for cell in table.cells:
        assert {"permuted_own_return", "permuted_discounted_return"} <= set(cell.metrics)
    plain = run_crossplay(
        [study / "omg-s1"], study / "pool", CrossplayPlan(splits=("train",), episodes=8)
    )
    assert "permuted_own_return" not in plain.cells[0].metrics
    assert plain.cells[0].metrics["own_return"] == table.cells[0].metrics["own_return"]
    assert {row.method for row in table.permutations()} == {"iql_omg", "Naive"}
    assert table.as_dict()["permutation"][0]["permuted"] == pytest.approx(
        np.mean([c.metrics["permuted_own_return"] for c in table.cells[:2]])
    )


def test_an_agent_without_a_pool_needs_one(study: Path, tmp_path: Path) -> None:
    agent = read_agent_run(changed(study, tmp_path, opponent_pool=""))
    with pytest.raises(OmgError, match="Give --pool"):
        open_pool("", agent)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"episodes": 0}, "episodes=0"),
        ({"finetune_episodes": -1}, "finetune-episodes=-1"),
        ({"lineup": "twins"}, "lineup=twins"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OmgError, match=sentence):
        CrossplayPlan(**changes)
