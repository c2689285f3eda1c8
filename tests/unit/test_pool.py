"""Pools: what is added is found again unchanged, and held-out opponents stay apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.modules.agents.networks import RNNAgent
from omg.opponents import pool as pool_module
from omg.opponents.pool import OpponentPool, PoolMember, draw_heldout, draw_lineups
from omg.storage.models import save_models
from omg.storage.sums import write_sums
from omg.types import OmgError

META: dict[str, Any] = {
    "format": 1,
    "algorithm": "iql",
    "seed": 1,
    "common_reward": False,
    "env": "foraging",
    "env_args": {"key": "Foraging-5x5-2p-1f-v3"},
    "shapes": {"n_agents": 2, "n_actions": 3, "obs_dim": 4, "state_dim": 5},
    "policy": {"policy_model": "rnn", "rnn_hidden_dim": 8, "input_dim": 4},
}
STEPS = (100, 200, 300, 400, 500)


def save_step(folder: Path, env_steps: int, **meta: Any) -> RNNAgent:
    network = RNNAgent(input_dim=4, n_actions=3, hidden_dim=8)
    content = {**META, **meta, "env_steps": env_steps}
    save_models(folder, networks={"agent": network}, optimiser={"lr": 0.1}, meta=content)
    return network


def make_run(
    root: Path, name: str, *, steps: tuple[int, ...] = STEPS, best: int = 200, **meta: Any
) -> Path:
    """The folder of a run as training leaves it."""
    for step in steps:
        save_step(root / name / "models" / str(step), step, **meta)
    save_step(root / name / "models" / "best", best, **meta)
    save_step(root / name / "models" / "last", steps[-1], **meta)
    return root / name


def make_pool(tmp_path: Path, **runs: str) -> OpponentPool:
    """A pool with the final checkpoint of every run given as name=algorithm."""
    pool = OpponentPool.create(tmp_path / "pool")
    for seed, (name, algorithm) in enumerate(runs.items()):
        pool.add_run(make_run(tmp_path, name, steps=(100,), algorithm=algorithm, seed=seed))
    return pool


def member(run: str, skill: str = "final", number: int = 0) -> PoolMember:
    return PoolMember(
        id=f"{run}-{skill}-{number}",
        kind="checkpoint",
        algorithm="iql",
        run=run,
        skill=skill,
        split="train",
        seed=1,
        env_steps=1,
        common_reward=False,
        env="foraging",
    )


def refusal(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(OmgError) as caught:
        call(*args, **kwargs)
    text = str(caught.value)
    assert "\n" not in text
    return text


def edit_manifest(pool: OpponentPool, change: Any) -> None:
    path = pool.path / "pool.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


# --- adding and reading ------------------------------------------------------------------------


def test_a_reopened_pool_has_the_members_and_their_very_weights(tmp_path: Path) -> None:
    run = make_run(tmp_path, "iql-s1", common_reward=True, seed=7)
    network = save_step(run / "models" / "600", 600, common_reward=True, seed=7)
    OpponentPool.create(tmp_path / "pool").add_run(run)
    pool = OpponentPool.open(tmp_path / "pool")
    (found,) = pool.members()
    assert (found.id, found.kind, found.algorithm, found.run) == (
        *("iql-s1-600", "checkpoint", "iql", "iql-s1"),
    )
    assert (found.seed, found.env_steps, found.skill, found.split) == (7, 600, "final", "train")
    assert found.common_reward is True
    assert found.env_args == META["env_args"]
    assert found.shapes == META["shapes"]
    assert found.policy == META["policy"]
    state = pool.check_weights(found)
    assert state.keys() == network.state_dict().keys()
    assert all(torch.equal(state[key], value) for key, value in network.state_dict().items())
    files = sorted(path.name for path in pool.folder(found).iterdir())
    assert files == ["agent.th", "meta.json", "sha256.json"]
    assert not [path for path in pool.path.rglob("*") if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("final", {"final": 500}),
        ("newest", {"final": 500}),
        ("best", {"best": 200}),
        (260, {"300": 300}),
        ("0", {"100": 100}),
        ("early,middle,final", {"early": 100, "middle": 300, "final": 500}),
        (["early", 390], {"early": 100, "400": 400}),
        ("best,200,final,500", {"best": 200, "final": 500}),
    ],
)
def test_steps_choose_checkpoints_and_name_their_skill(
    tmp_path: Path, steps: Any, expected: dict[str, int]
) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    added = pool.add_run(make_run(tmp_path, "run"), steps=steps)
    assert {m.skill: m.env_steps for m in added} == expected
    assert pool.members() == added
    assert {m.run for m in added} == {"run"}


def test_the_models_folder_of_a_run_is_as_good_as_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, "some run")
    pool = OpponentPool.create(tmp_path / "pool")
    assert pool.add_run(run / "models")[0].run == "some_run"


@pytest.mark.parametrize(
    ("steps", "words"),
    [("early,middle,final", "has 2 saved steps"), ("lats", "steps=lats"), ("-5", "steps=-5")],
)
def test_steps_that_cannot_be_had_are_refused(tmp_path: Path, steps: str, words: str) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    run = make_run(tmp_path, "run", steps=(100, 200))
    assert words in refusal(pool.add_run, run, steps=steps)
    assert pool.members() == ()


def test_a_scripted_player_becomes_a_member_without_weights(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_script("nearest_food", noise=0.05, split="heldout")
    pool.add_script("nearest_food")
    first, second = OpponentPool.open(pool.path).members()
    assert first.script is not None
    assert (first.script.name, first.script.noise) == ("nearest_food", 0.05)
    assert (first.kind, first.split) == ("scripted", "heldout")
    assert first.run == second.run, "noise levels of one script must not be split"
    assert second.split == "heldout", "without a side, the run's own"
    assert "no weights" in refusal(pool.check_weights, first)
    assert "neerest" in refusal(pool.add_script, "neerest_food")
    assert "noise" in refusal(pool.add_script, "random", noise=2.0)


def test_a_name_that_several_games_know_means_the_forager_where_no_game_is_named(
    tmp_path: Path,
) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    assert pool.add_script("random").env == "foraging", "as before other games had one"


def test_one_refused_run_keeps_all_from_being_added(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    (tmp_path / "empty").mkdir()
    runs = [make_run(tmp_path, "good"), tmp_path / "empty"]
    assert "no saved steps" in refusal(pool.add_runs, runs)
    (tmp_path / "bad").mkdir()
    bad = make_run(tmp_path, "bad", env="other")
    assert "env=other" in refusal(pool.add_runs, [runs[0], bad])
    assert OpponentPool.open(pool.path).members() == ()


def test_what_does_not_fit_is_refused_with_both_sides_named(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, first="iql")
    shapes = {**META["shapes"], "obs_dim": 9}
    text = refusal(pool.add_run, make_run(tmp_path, "wide", shapes=shapes))
    assert "obs_dim=9 in 'wide-500', 4 in 'first-100'" in text
    text = refusal(pool.add_run, make_run(tmp_path, "elsewhere", env="matrix"))
    assert "'elsewhere-500' plays env=matrix" in text
    assert "'first-100'" in text
    assert "env=foraging" in text
    assert len(OpponentPool.open(pool.path).members()) == 1


def seeing(relative: bool) -> dict[str, Any]:
    """What a policy says of itself that sees places relative to its own, or not."""
    return {**META["policy"], "obs_format": f"sight=all, relative_obs={relative}"}


def test_observations_of_equal_width_and_other_meaning_are_refused(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_run(make_run(tmp_path, "unsaid"))
    pool.add_run(make_run(tmp_path, "absolute", policy=seeing(False)))
    text = refusal(pool.add_run, make_run(tmp_path, "relative", policy=seeing(True)))
    assert "'relative-500' cannot play beside 'absolute-500'" in text
    assert "(relative_obs=False there, relative_obs=True here)" in text
    assert "sight" not in text, "only what differs is told"
    edit_manifest(pool, lambda c: c["members"][0]["policy"].update(obs_format="sight=all"))
    assert "cannot play beside 'unsaid-500'" in refusal(OpponentPool.open, pool.path)


def test_a_run_that_began_before_observations_had_a_format_is_still_one_run(
    tmp_path: Path,
) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    run = make_run(tmp_path, "run")
    pool.add_run(run, steps=100)
    save_step(run / "models" / "600", 600, policy=seeing(True))
    assert pool.add_run(run)[0].policy["obs_format"] == "sight=all, relative_obs=True"
    save_step(run / "models" / "700", 700, policy={**META["policy"], "rnn_hidden_dim": 16})
    assert "another run called 'run'" in refusal(pool.add_run, run)


def test_a_script_is_refused_in_a_pool_of_another_environment(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_run(make_run(tmp_path, "run", env="matrix"))
    assert "env=matrix" in refusal(pool.add_script, "random")


def test_a_member_is_not_added_twice_nor_two_runs_under_one_name(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    run = make_run(tmp_path, "run")
    pool.add_run(run)
    assert "already" in refusal(pool.add_run, run)
    (tmp_path / "elsewhere").mkdir()
    namesake = make_run(tmp_path / "elsewhere", "run", seed=2)
    assert "seed=1 there, 2 here" in refusal(pool.add_run, namesake, steps=100)
    assert pool.add_run(namesake, name="run-b")[0].id == "run-b-500"


def test_weights_are_looked_at_before_they_are_taken_in(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    run = make_run(tmp_path, "run")
    (run / "models" / "500" / "agent.th").write_bytes(b"PK not weights")
    assert "agent.th" in refusal(pool.add_run, run)
    torch.save([1, 2], run / "models" / "500" / "agent.th")
    assert "was changed since it was saved" in refusal(pool.add_run, run)
    write_sums(run / "models" / "500")
    assert "no network's weights" in refusal(pool.add_run, run)
    assert OpponentPool.open(pool.path).members() == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda meta: meta.pop("common_reward"), "'common_reward'"),
        (lambda meta: meta.update(seed="one"), "'seed'"),
        (lambda meta: meta.update(shapes=[2, 6]), "'shapes'"),
        (lambda meta: meta["shapes"].pop("state_dim"), "state_dim"),
    ],
)
def test_a_meta_file_that_tells_too_little_is_refused(
    tmp_path: Path, change: Any, words: str
) -> None:
    path = make_run(tmp_path, "run") / "models" / "500" / "meta.json"
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))
    write_sums(path.parent)
    text = refusal(OpponentPool.create(tmp_path / "pool").add_run, tmp_path / "run")
    assert words in text
    assert "meta.json" in text


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "changed", "replaced"])
def test_a_damaged_or_changed_file_of_weights_is_named(tmp_path: Path, damage: str) -> None:
    pool = make_pool(tmp_path, run="iql")
    path = pool.folder(pool.members()[0]) / "agent.th"
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "cut": content[:middle],
            "changed": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "replaced": (tmp_path / "run" / "models" / "best" / "agent.th").read_bytes(),
        }[damage]
    )
    assert str(path) in refusal(pool.check_weights, pool.members()[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(format=2), "format 2"),
        (lambda m: m.update(extra=1), "'extra'"),
        (lambda m: m["members"][0].update(splitt="train"), "'splitt' of member 1, did you mean"),
        (lambda m: m["members"][0].pop("run"), "lacks the field 'run' of member 1"),
        (lambda m: m["members"][0].update(split="both"), "'both' for 'split' of member 1"),
        (lambda m: m["members"][0].update(seed="1"), "'seed'"),
        (lambda m: m["members"][0].update(id="../../outside"), "'../../outside'"),
        (lambda m: m["members"].append(m["members"][0]), "'run-100' 2 times"),
        (lambda m: m["members"][0].update(id="gone"), "is missing"),
        (lambda m: m["members"][0].update(shapes={}), "shapes"),
        (lambda m: m["members"][0].update(kind="scripted"), "names no script"),
        (lambda m: m["members"][1].update(env="other"), "env=other"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused_in_a_sentence(
    tmp_path: Path, change: Any, words: str
) -> None:
    pool = make_pool(tmp_path, run="iql", other="vdn")
    edit_manifest(pool, change)
    assert words in refusal(OpponentPool.open, pool.path)


def test_what_is_no_pool_is_refused(tmp_path: Path) -> None:
    assert "is not a pool" in refusal(OpponentPool.open, tmp_path / "nowhere")
    pool = make_pool(tmp_path, run="iql")
    assert "already" in refusal(OpponentPool.create, pool.path)
    assert len(OpponentPool.create(pool.path, exist_ok=True).members()) == 1
    assert "holds other files" in refusal(OpponentPool.create, tmp_path / "run")
    (pool.path / "pool.json").write_text("{")
    assert "is damaged" in refusal(OpponentPool.open, pool.path)


def test_a_crash_between_copying_and_listing_leaves_a_pool_that_takes_the_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    run = make_run(tmp_path, "run")

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pool_module, "write_manifest", crash)
        with pytest.raises(KeyboardInterrupt):
            pool.add_run(run)
    assert pool.folder(member("run")).parent.is_dir()
    assert OpponentPool.open(pool.path).members() == ()
    pool.check_weights(pool.add_run(run)[0])


def files_under(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("exists", [False, True])
def test_a_refused_first_member_leaves_nothing_behind(tmp_path: Path, exists: bool) -> None:
    run, other = make_run(tmp_path, "run"), make_run(tmp_path, "other", env="matrix")
    damaged = make_run(tmp_path, "damaged")
    (damaged / "models" / "500" / "agent.th").write_bytes(b"?")
    if exists:
        (tmp_path / "pools" / "demo").mkdir(parents=True)
    before = files_under(tmp_path)
    pool = OpponentPool.open_or_new(tmp_path / "pools" / "demo")
    assert "not a folder" in refusal(pool.add_run, tmp_path / "nowhere")
    assert "env=matrix" in refusal(pool.add_runs, [run, other])
    assert "agent.th" in refusal(pool.add_runs, [run, damaged])
    assert "split=test" in refusal(pool.add_run, run, split="test")
    assert "did you mean" in refusal(pool.add_script, "neerest_food")
    assert files_under(tmp_path) == before
    pool.add_run(run)
    assert [m.run for m in OpponentPool.open(pool.path).members()] == ["run"]
    assert OpponentPool.open_or_new(pool.path).members() == pool.members()


def test_a_pool_that_somebody_else_made_meanwhile_is_added_to(tmp_path: Path) -> None:
    pool = OpponentPool.open_or_new(tmp_path / "pool")
    OpponentPool.open_or_new(tmp_path / "pool").add_script("random")
    pool.add_script("nearest_food")
    assert len(OpponentPool.open(pool.path).members()) == 2


def test_a_new_pool_is_not_made_among_other_files(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run")
    assert "holds other files (models)" in refusal(OpponentPool.open_or_new, run)
    assert "not a folder" in refusal(OpponentPool.open_or_new, run / "models" / "100" / "agent.th")


# --- agents that learned among others ----------------------------------------------------------


def make_team_run(
    root: Path,
    name: str,
    *,
    am_model: str,
    files: Sequence[str] = (),
    shifted: bool | None = True,
) -> Path:
    """The folder of a run that trained one agent of a mixed team; `files` are its networks beside
    the policy's."""
    folder = root / name / "models" / "100"
    policy = {**META["policy"], "am_model": am_model, "am_hidden_dim": 64}
    network = RNNAgent(input_dim=4, n_actions=3, hidden_dim=8)
    meta = {**META, "algorithm": "d3qn", "policy": policy, "env_steps": 100}
    more = {f"d3qn/{file}": torch.nn.Linear(2, 2) for file in files}
    save_models(folder, networks={"d3qn/agent": network, **more}, optimiser={}, meta=meta)
    if shifted is not None:
        (root / name / "config.yaml").write_text(f"is_agent_shift: {shifted}\n")
    return root / name


@pytest.mark.parametrize("shifted", [True, None])
def test_an_agent_that_learned_among_others_without_a_model_becomes_a_member(
    tmp_path: Path, shifted: bool | None
) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    run = make_team_run(tmp_path, "run", am_model="none_am", shifted=shifted)
    (added,) = pool.add_run(run)
    assert added.algorithm == "d3qn"
    saved = torch.load(run / "models" / "100" / "d3qn" / "agent.th", weights_only=True)
    state = pool.check_weights(OpponentPool.open(pool.path).member(added.id))
    assert all(torch.equal(state[key], value) for key, value in saved.items())


MODELS = {
    "base_am": ["base_am"],
    "liam_am": ["liam_am"],
    "meliba_am": ["meliba_am"],
    "types_am": ["types_am"],
    "omg_am": ["cond_rnn", "cvae", "fc", "vae"],
}


@pytest.mark.parametrize("am_model", MODELS)
def test_an_agent_brings_its_opponent_model_with_it_and_nothing_that_playing_does_not_need(
    tmp_path: Path, am_model: str
) -> None:
    run = make_team_run(tmp_path, "run", am_model=am_model, files=[*MODELS[am_model], "critic"])
    OpponentPool.create(tmp_path / "pool").add_run(run)
    pool = OpponentPool.open(tmp_path / "pool")
    (found,) = pool.members()
    assert found.policy["am_model"] == am_model
    assert sorted(found.model) == MODELS[am_model]
    names = {"agent.th", "meta.json", "sha256.json", *(f"{name}.th" for name in MODELS[am_model])}
    assert {path.name for path in pool.folder(found).iterdir()} == names
    for name in MODELS[am_model]:
        source = run / "models" / "100" / "d3qn" / f"{name}.th"
        assert (pool.folder(found) / source.name).read_bytes() == source.read_bytes()
        network = torch.nn.Linear(2, 2)
        pool.load_weights(found, {name: network})
        assert torch.equal(network.weight, torch.load(source, weights_only=True)["weight"])


@pytest.mark.parametrize("damage", ["cut", "replaced", "gone"])
@pytest.mark.parametrize("name", MODELS["omg_am"])
def test_a_damaged_file_of_an_opponent_model_is_named(
    tmp_path: Path, name: str, damage: str
) -> None:
    run = make_team_run(tmp_path, "run", am_model="omg_am", files=MODELS["omg_am"])
    pool = OpponentPool.create(tmp_path / "pool")
    (added,) = pool.add_run(run)
    path = pool.folder(added) / f"{name}.th"
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        other = (pool.folder(added) / "agent.th").read_bytes()
        path.write_bytes({"cut": content[: len(content) // 2], "replaced": other}[damage])
    agent = RNNAgent(input_dim=4, n_actions=3, hidden_dim=8)
    before = agent.fc1.weight.detach().clone()
    assert str(path) in refusal(pool.check_weights, added)
    assert str(path) in refusal(pool.load_weights, added, {"agent": agent})
    assert torch.equal(agent.fc1.weight, before), "nothing is loaded of a damaged member"


def test_an_opponent_model_is_looked_at_before_it_is_taken_in(tmp_path: Path) -> None:
    run = make_team_run(tmp_path, "run", am_model="base_am", files=["base_am"])
    (run / "models" / "100" / "d3qn" / "base_am.th").write_bytes(b"PK not weights")
    before = files_under(tmp_path)
    assert "base_am.th" in refusal(OpponentPool.open_or_new(tmp_path / "pool").add_run, run)
    assert files_under(tmp_path) == before


def test_an_agent_that_looks_ahead_in_its_own_games_cannot_be_a_member(tmp_path: Path) -> None:
    pool = OpponentPool.open_or_new(tmp_path / "pool")
    text = refusal(pool.add_run, make_team_run(tmp_path, "run", am_model="oracle_am"))
    assert "am_model=oracle_am" in text
    assert "cannot be somebody's opponent" in text
    assert not pool.path.exists()


def test_an_agent_that_learned_in_one_seat_cannot_be_a_member(tmp_path: Path) -> None:
    pool = OpponentPool.open_or_new(tmp_path / "pool")
    run = make_team_run(tmp_path, "run", am_model="none_am", shifted=False)
    assert "is_agent_shift=false" in refusal(pool.add_run, run)


@pytest.mark.parametrize(("seats", "fine"), [(["prey"], True), (["prey", "prey"], False)])
def test_the_only_seat_of_a_role_is_every_seat_of_it(
    tmp_path: Path, seats: list[str], fine: bool
) -> None:
    pool = OpponentPool.open_or_new(tmp_path / "pool")
    run = make_team_run(tmp_path, "run", am_model="none_am", shifted=False)
    path = run / "models" / "100" / "meta.json"
    meta = json.loads(path.read_text())
    meta["policy"]["roles"], meta["seat_roles"] = ["prey"], ["predator", "predator", *seats]
    path.write_text(json.dumps(meta))
    write_sums(path.parent)
    if fine:
        assert pool.add_run(run)[0].roles == ("prey",)
    else:
        assert "is_agent_shift=false" in refusal(pool.add_run, run)


def test_a_subgoal_prior_is_no_member(tmp_path: Path) -> None:
    pool = OpponentPool.open_or_new(tmp_path / "pool")
    prior = {"iql_omg/vae": torch.nn.Linear(2, 2)}
    folder = tmp_path / "run" / "models" / "100"
    meta = {**META, "algorithm": "iql_omg"}
    save_models(folder, networks=prior, optimiser={}, meta=meta)
    assert "a subgoal prior) and no agent" in refusal(pool.add_run, tmp_path / "run")


# --- several processes -------------------------------------------------------------------------

ADDER = """
import sys
from omg.opponents.pool import OpponentPool
pool = OpponentPool.create(sys.argv[1], exist_ok=True)
for run in sys.argv[2:]:
    pool.add_run(run, steps="early,middle,final")
"""


@pytest.mark.long
def test_processes_that_add_at_once_lose_no_member(tmp_path: Path) -> None:
    runs = [str(make_run(tmp_path, f"run{k}", seed=k)) for k in range(12)]
    command = [sys.executable, "-c", ADDER, str(tmp_path / "pool")]
    adders = [subprocess.Popen([*command, *runs[k::3]]) for k in range(3)]
    assert [adder.wait(timeout=120) for adder in adders] == [0, 0, 0]
    pool = OpponentPool.open(tmp_path / "pool")
    assert {m.run for m in pool.members()} == {f"run{k}" for k in range(12)}
    assert len(pool.members()) == 36


def test_an_old_handle_adds_to_what_is_there_now(tmp_path: Path) -> None:
    old = make_pool(tmp_path, first="iql")
    OpponentPool.open(old.path).add_run(make_run(tmp_path, "second"))
    old.add_run(make_run(tmp_path, "third"))
    assert [m.run for m in OpponentPool.open(old.path).members()] == ["first", "second", "third"]


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, run="iql")
    lock = pool.path / ".pool.lock"
    code = f"import os; from omg.storage.locks import *; take_lock(Path({str(lock)!r}), str)"
    subprocess.run([sys.executable, "-c", f"{code}; os._exit(1)"], timeout=60)
    assert lock.read_text().startswith("process ")
    pool.add_script("random")
    assert not lock.exists()


def test_a_lock_that_is_held_is_waited_for_and_then_explained(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, run="iql")
    lock = pool.path / ".pool.lock"

    def take() -> None:
        with pool_module.pool_lock(pool.path, timeout=0.1):
            pass

    with pool_module.pool_lock(pool.path):
        assert f"process {os.getpid()}" in refusal(take)
        assert lock.exists(), "another's lock is never taken away"
    take()


# --- train and held out ------------------------------------------------------------------------


def test_a_split_by_run_keeps_every_run_on_one_side(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    for seed in range(5):
        run = make_run(tmp_path, f"run{seed}", seed=seed)
        pool.add_run(run, steps="early,middle,final")
    pool.split(0.4, seed=3)
    train, heldout = (OpponentPool.open(pool.path).members(s) for s in ("train", "heldout"))
    assert len(train) + len(heldout) == 15
    assert len({m.run for m in heldout}) == 2
    assert not {m.run for m in train} & {m.run for m in heldout}


def test_the_same_seed_splits_alike_whatever_the_order_of_adding(tmp_path: Path) -> None:
    names = [f"run{k}" for k in range(8)]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = make_pool(tmp_path / "a", **dict.fromkeys(names, "iql"))
    other = OpponentPool.create(tmp_path / "b" / "pool")
    for name in reversed(names):
        other.add_run(tmp_path / "a" / name)

    def held(pool: OpponentPool, seed: int) -> set[str]:
        return {m.run for m in pool.split(0.5, seed=seed) if m.split == "heldout"}

    assert held(one, 1) == held(other, 1)
    assert len({frozenset(held(one, seed)) for seed in range(6)}) > 1


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
)
def test_every_algorithm_with_two_runs_is_on_both_sides(
    counts: list[int], fraction: float, seed: int
) -> None:
    units = {f"alg{a}-{k}": f"alg{a}" for a, n in enumerate(counts) for k in range(n)}
    held = draw_heldout(units, fraction, seed=seed)
    assert held == draw_heldout(dict(reversed(units.items())), fraction, seed=seed)
    for a, n in enumerate(counts):
        out = sum(unit.startswith(f"alg{a}-") for unit in held)
        if n >= 2:
            assert 1 <= out <= n - 1
    if len(units) > 1:
        assert 1 <= len(held) < len(units)
    target = fraction * len(units)
    forced = sum(n >= 2 for n in counts)
    assert len(held) <= max(np.ceil(target), 1) + forced


def test_the_fraction_is_met_over_all_algorithms_together() -> None:
    units = {f"{a}{k}": a for a in ("iql", "vdn", "qmix") for k in range(4)}
    assert len(draw_heldout(units, 0.4, seed=0)) == 5
    assert len(draw_heldout(units, 0.5, seed=0)) == 6
    assert draw_heldout(units, 0.0, seed=0) == set()
    assert draw_heldout(units, 1.0, seed=0) == set(units)
    assert "fraction" in refusal(draw_heldout, units, 1.5, seed=0)


def test_named_runs_and_ids_are_held_out_and_nothing_else(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    for name in ("a", "b", "c"):
        pool.add_run(make_run(tmp_path, name), steps="early,final", split="heldout")

    def held(*names: str, by: Any) -> list[str]:
        pool.split(names, by=by)
        return [m.id for m in OpponentPool.open(pool.path).members("heldout")]

    assert held("b", by="run") == ["b-100", "b-500"]
    assert held("b", "c-500", by="member") == ["b-100", "b-500", "c-500"]
    assert held("c-500", by="run") == ["c-100", "c-500"], "an id stands for its run"
    assert "'d'" in refusal(pool.split, ["d"])
    assert "by=seed" in refusal(pool.split, 0.5, by="seed")
    assert "split=test" in refusal(pool.members, "test")


# --- line-ups ----------------------------------------------------------------------------------

MEMBERS = [
    *(member("a", skill) for skill in ("early", "middle", "final")),
    member("b"),
    *(member("c", "final", number) for number in range(3)),
]


def test_a_homologue_line_up_is_of_one_run_and_one_skill() -> None:
    lineups = draw_lineups(MEMBERS, 500, 3, np.random.default_rng(0))
    assert lineups.shape == (500, 3)
    assert lineups.dtype == np.int64
    for seats in lineups:
        assert len({(MEMBERS[i].run, MEMBERS[i].skill) for i in seats}) == 1
    assert {int(i) for i in lineups.flat} == set(range(len(MEMBERS)))
    assert any(len(set(seats)) > 1 for seats in lineups.tolist()), "seats are drawn one by one"


def test_runs_are_drawn_equally_often_however_many_members_they_have() -> None:
    lineups = draw_lineups(MEMBERS, 6000, 1, np.random.default_rng(0))[:, 0]
    runs = Counter(MEMBERS[i].run for i in lineups)
    assert all(abs(count - 2000) < 150 for count in runs.values())
    skills = Counter(MEMBERS[i].skill for i in lineups if MEMBERS[i].run == "a")
    assert all(abs(count - 667) < 110 for count in skills.values())


def test_a_mixed_line_up_draws_every_seat_from_all_members() -> None:
    lineups = draw_lineups(MEMBERS, 7000, 2, np.random.default_rng(0), mode="mixed")
    assert all(abs(count - 2000) < 150 for count in Counter(lineups.ravel().tolist()).values())
    joint = Counter(map(tuple, lineups.tolist()))
    assert len(joint) == len(MEMBERS) ** 2


@pytest.mark.parametrize("mode", ["homologue", "mixed"])
def test_line_ups_follow_from_the_generator_alone(mode: Any) -> None:
    first, again = (
        draw_lineups(MEMBERS, 50, 2, np.random.default_rng(4), mode=mode) for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    assert draw_lineups(MEMBERS, 0, 2, np.random.default_rng(0), mode=mode).shape == (0, 2)


def test_held_out_members_are_never_drawn_for_training(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, a="iql", b="iql", c="vdn", d="vdn")
    pool.split(0.5, seed=1)
    train = pool.members("train")
    drawn = {train[i].id for i in draw_lineups(train, 200, 2, np.random.default_rng(0)).flat}
    assert drawn == {m.id for m in train}
    assert not drawn & {m.id for m in pool.members("heldout")}


def test_drawing_from_nobody_or_in_an_unknown_way_is_refused() -> None:
    rng = np.random.default_rng(0)
    assert "no opponents" in refusal(draw_lineups, [], 1, 1, rng)
    assert "'both'" in refusal(draw_lineups, MEMBERS, 1, 1, rng, mode="both")


def test_members_can_be_keys() -> None:
    assert len({MEMBERS[0], replace(MEMBERS[0]), MEMBERS[1]}) == 2
