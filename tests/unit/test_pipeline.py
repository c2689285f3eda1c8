"""Pipelines: the file, the plan, what is skipped or refused, locks, and running commands."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import omg.studies.execute
from omg.config.arguments import parse_arguments
from omg.config.loader import available, load_command_line
from omg.evaluation.crossplay_table import Agent, Cell, Crossplay
from omg.experiment.session import RESUME_MAY_CHANGE
from omg.storage.locks import try_lock
from omg.studies.decide import Decision, decide
from omg.studies.display import time_left
from omg.studies.execute import result_of, run_pipeline
from omg.studies.plan import Source, make_plan, saved_models
from omg.studies.process import Child, pipeline_lock, start, stop_orphans
from omg.studies.spec import find_pipeline, read_spec, slug
from omg.studies.state import PipelineState, Record
from omg.studies.steps import FREE, PLACES, Plan, Step, settings_of, to_words
from omg.studies.summary import summary_table
from omg.types import OmgError, RunFailedError

STUDY: dict[str, Any] = {
    "env_config": "foraging",
    "common": {"env_args": {"key": "Foraging-5x5-2p-1f-v3"}, "lr": 0.1, "gamma": 0.5},
    "opponents": {
        "settings": {"t_max": 1000, "lr": 0.2},
        "runs": [
            {"config": "iql", "seeds": [1, 2], "heldout_seeds": [2], "settings": {"lr": 0.3}},
            {"config": "vdn", "seeds": [1]},
        ],
        "scripts": [{"name": "random", "noise": 0.25, "split": "heldout"}],
    },
    "priors": {"tuned": {"config": "d3qn_omg_tuned", "settings": {"subgoal_dim": 4}}},
    "agents": {
        "settings": {"t_max": 500},
        "seeds": [1, 2],
        "methods": [
            {"name": "OMG tuned", "config": "d3qn_omg_tuned", "prior": "tuned"},
            {"name": "D3QN", "config": "d3qn", "settings": {"env_args": {"max_player_level": 2}}},
        ],
    },
    "crossplay": {"episodes": 7, "baseline": "D3QN"},
    "report": True,
}
AGENTS = ["agents/omg_tuned-s1", "agents/omg_tuned-s2", "agents/d3qn-s1", "agents/d3qn-s2"]
KEYS = [
    *("opponents/iql-s1", "opponents/iql-s2", "opponents/vdn-s1", "pool", "priors/tuned"),
    *(*AGENTS, "crossplay", "report"),
]


def changed(path: str, value: Any, study: dict[str, Any] = STUDY) -> dict[str, Any]:
    """A study with one value replaced, or taken out (`...`)."""
    content = copy.deepcopy(study)
    *above, last = [int(p) if p.isdecimal() else p for p in path.split(".")]
    node: Any = content
    for part in above:
        node = node[part]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return content


SMALL = changed("agents.seeds", [1])


def plan_of(content: dict[str, Any], folder: Path, *words: str, out: str = "out") -> Plan:
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(content))
    return make_plan(
        Source(
            name="study",
            shown="study.yaml",
            spec=read_spec(file, "study.yaml"),
            env_config=content.get("env_config") or "foraging",
            out=folder / out,
            words=words,
        )
    )


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_of(STUDY, tmp_path)


# --- the file ----------------------------------------------------------------------------------


def test_a_method_may_have_seeds_of_its_own(tmp_path: Path) -> None:
    study = copy.deepcopy(STUDY)
    study["agents"]["methods"][0]["seeds"] = [7]
    first, others = study["agents"]["methods"][0]["name"], study["agents"]["seeds"]
    made = [s.key for s in plan_of(study, tmp_path).steps if s.stage == "agents"]
    assert [key for key in made if key.endswith("-s7")] == [f"agents/{slug(first)}-s7"]
    assert len(made) == 1 + len(others) * (len(study["agents"]["methods"]) - 1)


@pytest.mark.parametrize(
    "name", [name for name in available("pipelines") if not name.startswith("benchmark_")]
)
def test_shipped_pipelines_can_be_planned(name: str) -> None:
    path, shown = find_pipeline(name)
    spec = read_spec(path, shown)
    assert spec.env_config
    source = Source(name=name, shown=shown, spec=spec, env_config=spec.env_config, out=Path("o"))
    assert make_plan(source).steps[-1].key == "report"


def test_the_paper_s_omg_hopes_for_the_best_of_its_team_in_battles() -> None:
    path, shown = find_pipeline("battle")
    spec = read_spec(path, shown)
    source = Source(name="battle", shown=shown, spec=spec, env_config="battle", out=Path("o"))
    agent = config_of(make_plan(source), "agents/omg_paper-s1")
    assert (agent["subgoal_mode"], agent["subgoal_horizon"]) == ("optimistic", 10)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("agnets", {}, "unknown key 'agnets', did you mean 'agents'?"),
        ("agents.methods.1.pior", "x", "'agents.methods[1].pior', did you mean 'prior'?"),
        ("opponents.runs.0.heldout_sedes", [1], "[0].heldout_sedes', did you mean 'heldout_seeds'"),
        ("crossplay.episode", 3, "'crossplay.episode', did you mean 'episodes'?"),
        ("priors.tuned.steps", 1, "Possible here: config, per_seed, seed, settings."),
        ("agents.seeds", ..., "'agents.seeds' has no value"),
        ("agents.seeds", [], "agents.seeds="),
        ("agents.seeds", [1, 1], "agents.seeds: 1 stands there 2 times"),
        ("crossplay.episodes", 0, "crossplay.episodes=0 is not possible"),
        ("crossplay.episodes", True, "a whole number"),
        ("opponents.runs.0.steps", ["late"], "'late' is not possible"),
        ("opponents.runs.0.heldout_seeds", [9], "opponents.runs[0]: heldout_seeds has 9"),
        ("opponents.runs.1.config", "iql", "iql-s1 stands there 2 times"),
        ("agents.methods.1.name", "omg tuned", "omg_tuned stands there 2 times"),
        ("agents.methods.1.name", "??", "no letters"),
        ("agents.methods.0.prior", "tund", "not among the priors, did you mean 'tuned'?"),
        ("crossplay.baseline", "D3QM", "did you mean 'D3QN'?"),
        ("crossplay", ..., "add crossplay"),
        ("agents.methods.0.prior", ..., "(OMG tuned): d3qn_omg_tuned needs a prior"),
        ("priors.tuned.config", "iql_omg", "is one of iql_omg, the method is d3qn_omg_tuned"),
        ("priors.tuned.config", "d3qn", "no opponent model"),
        ("priors.tuned.settings", {"learner": "q_learner"}, "am_learner in every prior"),
        ("agents.methods.1.config", "qmix", "qmix trains a whole team"),
        ("agents.methods.1.config", "d3qm", "did you mean 'd3qn'"),
        ("agents.settings", {"gama": 1}, "Unknown key 'gama'"),
        ("agents.settings", {"seed": 1}, "agents.methods[0] (OMG tuned): 'seed' is set by"),
        ("common.run_name", "x", "common: 'run_name' is set by the pipeline. Choose another --out"),
        ("common.save_model", False, "save_model=False"),
        ("opponents.runs.0.config", "iql_omg", "iql_omg cannot be trained as a team before"),
        ("opponents.runs.0.steps", ["early", "final"], "need 3 saved models, the run keeps 1"),
        ("opponents.scripts.0.name", "randon", "opponents.scripts[0]: There is no scripted"),
        ("common.env", "matrix", "env=matrix has no scripted players"),
    ],
)
def test_a_wrong_file_is_explained_with_file_and_key(
    path: str, value: Any, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(OmgError) as caught:
        plan_of(changed(path, value), tmp_path)
    assert str(caught.value).startswith("study.yaml: ")
    assert expected in str(caught.value)


def test_a_side_of_the_pool_that_is_needed_must_have_members(tmp_path: Path) -> None:
    content = changed("opponents.scripts", [])
    del content["opponents"]["runs"][0]["heldout_seeds"]
    with pytest.raises(OmgError, match="needs held-out opponents"):
        plan_of(content, tmp_path)
    content["crossplay"]["split"] = "train"
    assert plan_of(content, tmp_path).steps
    content["opponents"]["runs"] = []
    with pytest.raises(OmgError, match="train side"):
        plan_of(content, tmp_path)


def test_seeds_and_scripts_join_the_three_sides_of_the_pool(tmp_path: Path) -> None:
    study = changed("opponents.runs.0.validation_seeds", [1])
    study["opponents"]["scripts"].append({"name": "centre", "split": "validation"})
    pool = next(step for step in plan_of(study, tmp_path).steps if step.key == "pool")
    sides = {
        (str(entry.get("script") or entry["runs"])): entry["split"]
        for entry in pool.settings["members"]
    }
    assert sides == {
        "['opponents/iql-s1']": "validation",
        "['opponents/iql-s2']": "heldout",
        "['opponents/vdn-s1']": "train",
        "random": "heldout",
        "centre": "validation",
    }
    study["opponents"]["runs"][0] |= {"split": "heldout", "heldout_seeds": []}
    pool = next(step for step in plan_of(study, tmp_path).steps if step.key == "pool")
    assert [(entry["runs"], entry["split"]) for entry in pool.settings["members"][:2]] == [
        (["opponents/iql-s1"], "validation"),
        (["opponents/iql-s2"], "heldout"),
    ]
    for path, value, expected in (
        ("opponents.runs.0.validation_seeds", [2], "seed 2 is in heldout_seeds and in validation"),
        ("opponents.runs.0.validation_seeds", [9], "validation_seeds has 9"),
        ("crossplay.split", "all", "crossplay.split=all needs validation opponents"),
    ):
        with pytest.raises(OmgError, match=expected):
            plan_of(changed(path, value), tmp_path)


def test_an_unknown_pipeline_is_answered_with_those_that_exist() -> None:
    with pytest.raises(OmgError, match=r"did you mean 'foraging'\? Those that exist: .*tiny"):
        find_pipeline("forageing")


# --- the plan ----------------------------------------------------------------------------------


def config_of(plan: Plan, key: str) -> dict[str, Any]:
    (step,) = (step for step in plan.steps if step.key == key)
    ((command, *words),) = step.commands
    assert command == "train"
    return load_command_line(words).config.as_dict()


def test_steps_stand_in_the_order_of_their_stages(plan: Plan) -> None:
    assert [step.key for step in plan.steps] == KEYS
    seen: set[str] = set()
    for step in plan.steps:
        assert seen.issuperset(step.needs)
        seen.add(step.key)


def test_every_run_is_a_train_command_with_its_folder_pool_and_prior(plan: Plan) -> None:
    out = plan.out
    agent = config_of(plan, "agents/omg_tuned-s2")
    assert (agent["name"], agent["seed"], agent["label"]) == ("d3qn_omg_tuned", 2, "OMG tuned")
    assert Path(agent["local_results_path"], agent["run_name"]) == out / "agents/omg_tuned-s2"
    assert agent["opponent_pool"] == str(out / "pool")
    assert agent["init_param_path"] == str(out / "priors/tuned")
    assert agent["learner"] == "omg_learner"
    prior = config_of(plan, "priors/tuned")
    assert (prior["learner"], prior["seed"], prior["subgoal_dim"]) == ("am_learner", 1, 4)
    assert prior["opponent_pool"] == str(out / "pool")
    assert config_of(plan, "agents/d3qn-s1")["init_param_path"] == ""
    assert config_of(plan, "opponents/iql-s2")["opponent_pool"] == ""


def test_every_seed_can_have_a_prior_of_its_own(tmp_path: Path) -> None:
    study = changed("priors.tuned.per_seed", True)
    study["agents"]["methods"][0]["seeds"] = [2, 7]
    made = plan_of(study, tmp_path)
    priors = [step for step in made.steps if step.stage == "priors"]
    assert [step.key for step in priors] == ["priors/tuned-s2", "priors/tuned-s7"]
    for seed in (2, 7):
        assert config_of(made, f"priors/tuned-s{seed}")["seed"] == seed
        agent = next(s for s in made.steps if s.key == f"agents/omg_tuned-s{seed}")
        assert agent.needs == ("pool", f"priors/tuned-s{seed}")
        assert agent.places["init_param_path"] == str(made.out / f"priors/tuned-s{seed}")
    with pytest.raises(OmgError, match="seed is that of a shared prior"):
        plan_of(changed("priors.tuned.seed", 3, study), tmp_path)


def test_headroom_trains_a_best_response_to_every_member_of_every_side(tmp_path: Path) -> None:
    study = changed("headroom", {"best_response": {"seeds": [5], "settings": {"lr": 0.7}}})
    made = plan_of(study, tmp_path)
    runs = [step for step in made.steps if step.key.startswith("headroom/")]
    members = ["iql-s1:final", "iql-s2:final", "vdn-s1:final", "script-random-0.25"]
    assert [step.settings["opponent_members"] for step in runs] == [[m] for m in members]
    best = config_of(made, "headroom/iql-s2_final-s5")
    assert (best["name"], best["lr"], best["seed"], best["t_max"]) == ("d3qn", 0.7, 5, 500)
    assert best["env_args"]["max_player_level"] == 2, "the plain method's settings"
    measure = next(step for step in made.steps if step.key == "headroom")
    assert "--plain=D3QN" in measure.commands[0]
    assert set(measure.needs) == {"pool", "agents/d3qn-s1", "agents/d3qn-s2"} | {
        step.key for step in runs
    }
    played = next(step for step in made.steps if step.key == "crossplay")
    assert f"--headroom={made.out / 'headroom.json'}" in played.commands[0]
    assert "headroom" in played.needs


def test_headroom_can_do_without_best_responses(tmp_path: Path) -> None:
    made = plan_of(changed("headroom", {"best_response": None}), tmp_path)
    (measure,) = [step for step in made.steps if step.key.startswith("headroom")]
    assert measure.commands[0][0] == "gap"
    assert not any("Best response" in str(step.settings.get("label")) for step in made.steps)


def test_headroom_is_measured_as_the_agents_act_in_the_cross_play(tmp_path: Path) -> None:
    def measure(**crossplay: bool) -> Step:
        study = changed("crossplay", {"episodes": 3, **crossplay}, changed("headroom", {}))
        return next(s for s in plan_of(study, tmp_path).steps if s.key == "headroom")

    usual, greedy, sampled = measure(), measure(greedy=True), measure(sample=True)
    assert [step.settings["greedy"] for step in (usual, greedy, sampled)] == [True, True, False]
    assert "--greedy" in greedy.commands[0]
    assert "--sample" in sampled.commands[0]
    assert not {"--greedy", "--sample"} & set(usual.commands[0])


def test_the_best_test_s_weights_play_wherever_agents_are_judged(tmp_path: Path) -> None:
    def commands(**crossplay: str) -> dict[str, tuple[str, ...]]:
        study = changed("crossplay", {"episodes": 3, **crossplay}, tuned_study())
        made = plan_of(changed("headroom", {}, study), tmp_path)
        return {step.key: step.commands[0] for step in made.steps}

    best, last = commands(which="best"), commands(which="last")
    assert last == commands()
    told = {key for key, words in best.items() if "--which=best" in words}
    scored = {key for key in best if key.startswith("tuning/scores-")}
    assert len(scored) > 1
    assert told == {"headroom", "crossplay", *scored}
    assert {key for key in best if best[key] != last[key]} == told
    with pytest.raises(OmgError, match="which"):
        commands(which="first")


def test_an_older_record_of_headroom_counts_as_played_greedily(tmp_path: Path) -> None:
    plan = plan_of(changed("headroom", {}), tmp_path)
    step = next(step for step in plan.steps if step.key == "headroom")
    for greedy in (True, False):
        now = replace(step, needs=(), settings={**step.settings, "greedy": greedy})
        older = {key: value for key, value in now.settings.items() if key != "greedy"}
        state = PipelineState(replace(plan, steps=(now,), out=tmp_path))
        record = Record(status="done", fingerprint="", settings=older, needs={}, started="then")
        state.records["headroom"] = record
        assert state.is_current(now) is greedy


def test_the_pool_s_members_can_be_compared_for_the_report(tmp_path: Path) -> None:
    assert "compare" not in [step.key for step in plan_of(changed("report", True), tmp_path).steps]
    made = plan_of(changed("compare", {"episodes": 3}), tmp_path)
    compare, report = (next(s for s in made.steps if s.key == k) for k in ("compare", "report"))
    assert compare.needs == ("pool",)
    assert compare.commands[0][:3] == ("pool", "compare", str(made.out / "pool"))
    assert {"--env-config=foraging", "--episodes=3", f"--out={made.out}"} <= set(
        compare.commands[0]
    )
    assert [word for word in compare.commands[0] if word.startswith("--env_args.")]
    assert "compare" in report.needs


def test_headroom_alone_needs_neither_priors_nor_other_methods(tmp_path: Path) -> None:
    part = plan_of(changed("headroom", {}), tmp_path).until("headroom")
    assert {step.stage for step in part.steps} == {"opponents", "pool", "agents", "headroom"}
    assert [s.key for s in part.steps if s.stage == "agents"] == [
        "agents/d3qn-s1",
        "agents/d3qn-s2",
    ]
    assert part.steps[-1].key == "headroom"


def test_only_takes_the_steps_that_match_and_what_they_need(tmp_path: Path) -> None:
    whole = plan_of(changed("report", True), tmp_path)
    part = whole.only(["agents/omg_*-s2", "agents/d3qn-s1"])
    assert [step.key for step in part.steps if step.stage == "agents"] == [
        "agents/omg_tuned-s2",
        "agents/d3qn-s1",
    ]
    assert part.stages() == ["opponents", "pool", "priors", "agents"]
    assert part.of_stage("opponents") == whole.of_stage("opponents")
    plain = whole.only(["agents/d3qn-s1"])
    assert plain.stages() == ["opponents", "pool", "agents"]
    prints = whole.fingerprints()
    assert part.fingerprints() == {step.key: prints[step.key] for step in part.steps}


@pytest.mark.parametrize("pattern", ["agents/none-*", "AGENTS/*", ""])
def test_only_refuses_a_pattern_that_matches_nothing(pattern: str, tmp_path: Path) -> None:
    whole = plan_of(changed("report", True), tmp_path)
    with pytest.raises(OmgError, match=r"matches no step.*opponents/.*pool.*agents/.*--dry-run"):
        whole.only(["pool", pattern])


@pytest.mark.parametrize(
    ("headroom", "expected"),
    [
        ({"plain": "D3QM"}, "headroom.plain='D3QM' is not the name of a method, did you mean"),
        ({"best_response": {"config": "iql"}}, "iql trains a whole team"),
        ({"best_response": {"config": "d3qn_omg"}}, "d3qn_omg needs a prior"),
    ],
)
def test_headroom_that_cannot_be_measured_is_refused(
    headroom: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(OmgError, match=expected):
        plan_of(changed("headroom", headroom), tmp_path)
    only_omg = changed("agents.methods", STUDY["agents"]["methods"][:1])
    only_omg["crossplay"]["baseline"] = None
    with pytest.raises(OmgError, match="no method is without an opponent model"):
        plan_of(changed("headroom", {}, only_omg), tmp_path)


TUNING: dict[str, Any] = {
    "budget": 3,
    "seeds": [9],
    "settings": {"t_max": 50},
    "episodes": 4,
    "methods": {
        "OMG tuned": {"am_lr": {"loguniform": [0.0001, 0.01]}},
        "D3QN": {"lr": "choice:1,2,3"},
    },
}


def tuned_study(**changes: Any) -> dict[str, Any]:
    study = changed("tuning", {**TUNING, **changes})
    study["opponents"]["scripts"].append({"name": "centre", "split": "validation"})
    study["priors"]["tuned"]["per_seed"] = True
    return study


def test_every_method_gets_as_many_configurations_and_its_own_one_is_the_first(
    tmp_path: Path,
) -> None:
    made = plan_of(tuned_study(), tmp_path)
    for method, key in (("omg_tuned", "am_lr"), ("d3qn", "lr")):
        configs = [config_of(made, f"tuning/{method}-c{n}-s9") for n in range(3)]
        assert len({config[key] for config in configs}) == 3
        own = config_of(plan_of(STUDY, tmp_path), f"agents/{method}-s1")
        assert configs[0][key] == own[key]
        assert {config["t_max"] for config in configs} == {50}
        assert not any(s.key == f"tuning/{method}-c3-s9" for s in made.steps)
    assert config_of(made, "tuning/omg_tuned-c1-s9")["init_param_path"].endswith("priors/tuned-s9")
    again = plan_of(tuned_study(), tmp_path)
    assert config_of(again, "tuning/d3qn-c1-s9") == config_of(made, "tuning/d3qn-c1-s9")


def test_tuning_is_judged_by_validation_opponents_and_its_choice_enters_the_agents(
    tmp_path: Path,
) -> None:
    made = plan_of(tuned_study(), tmp_path, "--gamma=0.7")
    steps = {step.key: step for step in made.steps}
    assert "--split=validation" in steps["tuning/scores-d3qn"].commands[0]
    agent = steps["agents/d3qn-s1"]
    assert "tuning/choice-d3qn" in agent.needs
    words = agent.commands[0]
    assert words[-2:] == ("with", str(made.out / "tuning/d3qn.yaml"))
    assert not any(word.startswith("--lr=") for word in words)
    made.out.joinpath("tuning").mkdir(parents=True)
    (made.out / "tuning/d3qn.yaml").write_text("lr: 3\n")
    assert config_of(made, "agents/d3qn-s1")["lr"] == 3
    assert config_of(made, "agents/d3qn-s1")["gamma"] == 0.7


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"budget": 5}, "the space has 4 configurations, and every method gets budget=5"),
        ({"seeds": [2]}, "tuning.seeds has 2, which is a seed of the agents"),
        ({"methods": {"D3QN": None}}, "'OMG tuned' has no search space in tuning.methods"),
        ({"methods": {**TUNING["methods"], "X": None}}, "has 'X', which is not the name"),
        ({"methods": {**TUNING["methods"], "D3QN": {"lr": "chioce:1"}}}, "is not a search space"),
        ({"methods": {**TUNING["methods"], "D3QN": {"env_args.sight": "choice:1"}}}, "is the game"),
        ({"methods": {**TUNING["methods"], "D3QN": {"seed": "choice:1"}}}, "'seed' is set by"),
        (
            {"methods": {"OMG tuned": {"subgoal_dim": "choice:4,8,16"}, "D3QN": None}},
            "'subgoal_dim' belongs to the prior 'tuned'",
        ),
    ],
)
def test_unequal_or_misplaced_tuning_is_refused(
    changes: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(OmgError) as caught:
        plan_of(tuned_study(**changes), tmp_path)
    assert expected in str(caught.value)


def test_tuning_needs_a_validation_side(tmp_path: Path) -> None:
    with pytest.raises(OmgError, match="tuning is judged by validation opponents"):
        plan_of(changed("tuning", TUNING), tmp_path)


def test_settings_are_merged_from_common_to_the_command_line(tmp_path: Path) -> None:
    plan = plan_of(STUDY, tmp_path, "--gamma=0.9", "with", "env_args.sight=2")
    assert config_of(plan, "opponents/iql-s1")["lr"] == 0.3
    assert config_of(plan, "opponents/vdn-s1")["lr"] == 0.2
    assert config_of(plan, "agents/d3qn-s1")["lr"] == 0.1
    assert config_of(plan, "agents/d3qn-s1")["gamma"] == 0.9
    assert config_of(plan, "agents/d3qn-s1")["env_args"] == {
        "key": "Foraging-5x5-2p-1f-v3",
        "max_player_level": 2,
        "sight": 2,
    }
    with pytest.raises(OmgError, match="the command line: 'seed' is set by the pipeline"):
        plan_of(STUDY, tmp_path, "--seed=3")


def test_the_pool_and_crossplay_commands(plan: Plan) -> None:
    out = plan.out
    pool, crossplay, report = (
        next(step for step in plan.steps if step.key == key)
        for key in ("pool", "crossplay", "report")
    )
    o = f"{out}/opponents"
    assert pool.shown() == [
        f"omg pool add {out}/pool {o}/iql-s1 --steps=final --split=train",
        f"omg pool add {out}/pool {o}/iql-s2 --steps=final --split=heldout",
        f"omg pool add {out}/pool {o}/vdn-s1 --steps=final --split=train",
        f"omg pool add {out}/pool --script=random --env=foraging --noise=0.25 --split=heldout",
    ]
    runs = " ".join(str(out / key) for key in AGENTS)
    assert crossplay.shown() == [
        f"omg crossplay {runs} --pool={out}/pool --split=both --episodes=7 --finetune-episodes=0 "
        f"--metric=own_return --baseline=D3QN --replays=0 --out={out}"
    ]
    assert report.shown() == [f"omg report {out} --out={out}/report.html"]


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    plan = plan_of(STUDY, tmp_path, "--mongo_url=mongodb://me:secret@host")
    assert "secret" not in "".join(plan.steps[0].shown())
    assert "mongo_url" not in plan.steps[0].settings


KEY = st.from_regex(r"[a-z][a-z_]{0,6}", fullmatch=True)
TEXT = st.text("ab1.-+ ='\"{}[],:/\\#eE", max_size=8)
VALUE: st.SearchStrategy[Any] = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    *(TEXT, st.lists(st.one_of(st.integers(), TEXT), max_size=3)),
)
NESTED = st.recursive(
    st.dictionaries(KEY, VALUE, min_size=1, max_size=3),
    lambda inner: st.dictionaries(KEY, st.one_of(VALUE, inner), min_size=1, max_size=3),
    max_leaves=6,
)


@pytest.mark.long
@given(NESTED)
def test_words_give_back_exactly_the_settings(settings: dict[str, Any]) -> None:
    settings.pop("agent", None)  # an alias
    for name in ("config", "env_config"):
        settings.pop(name, None)
    assert settings_of(parse_arguments(to_words(settings))) == settings


def test_keys_that_are_no_names_stay_whole() -> None:
    settings = {"env_args": {"a-b": 1, "c": {"d.e": 2}}}
    assert settings_of(parse_arguments(to_words(settings))) == settings


@pytest.mark.parametrize(
    ("words", "saved"),
    [
        (["--t_max=1000", "--save_model_interval=300", "--runner=episode"], 4),
        (["--t_max=900", "--save_model_interval=300", "--runner=episode"], 3),
        # copies 16: saved at 112, 224, …, 896 and at the end, 1008
        (["--t_max=1000", "--save_model_interval=100"], 9),
        (["--t_max=1000", "--save_model_interval=100", "--keep_models=2"], 2),
    ],
)
def test_saved_models_are_foreseen(words: list[str], saved: int) -> None:
    config = load_command_line(["--config=iql", "--env-config=foraging", *words]).config
    assert saved_models(config) == saved


# --- fingerprints ------------------------------------------------------------------------------


def differing(plan: Plan, other: Plan) -> set[str]:
    one, two = plan.fingerprints(), other.fingerprints()
    return {key for key in {*one, *two} if one.get(key) != two.get(key)}


@pytest.mark.long
def test_a_changed_setting_changes_the_step_and_all_that_depends_on_it(
    plan: Plan, tmp_path: Path
) -> None:
    other = plan_of(changed("agents.methods.1.settings", {"lr": 7.0}), tmp_path)
    assert differing(plan, other) == {"agents/d3qn-s1", "agents/d3qn-s2", "crossplay", "report"}
    other = plan_of(changed("opponents.runs.1.settings", {"lr": 7.0}), tmp_path)
    assert differing(plan, other) == set(KEYS) - {"opponents/iql-s1", "opponents/iql-s2"}
    other = plan_of(changed("opponents.runs.0.heldout_seeds", [1]), tmp_path)
    assert differing(plan, other) == set(KEYS[3:])
    other = plan_of(changed("crossplay.episodes", 8), tmp_path)
    assert differing(plan, other) == {"crossplay", "report"}
    other = plan_of(changed("priors.tuned.seed", 5), tmp_path)
    assert differing(plan, other) == {"priors/tuned", *AGENTS[:2], "crossplay", "report"}


@pytest.mark.long
def test_places_and_what_is_only_shown_do_not_change_fingerprints(
    plan: Plan, tmp_path: Path
) -> None:
    assert not differing(plan, plan_of(STUDY, tmp_path, out="elsewhere"))
    assert not differing(plan, plan_of(STUDY, tmp_path, "--use_tensorboard=False", "--quiet"))


def test_free_keys_may_be_given_on_resume_and_lie_outside_the_result() -> None:
    assert FREE < RESUME_MAY_CHANGE
    assert {"t_max", "keep_models"} == RESUME_MAY_CHANGE - FREE - PLACES


# --- skip, resume, refuse, redo ----------------------------------------------------------------


def make_done(plan: Plan, state: PipelineState, *keys: str) -> None:
    for step in plan.steps:
        if not keys or step.key in keys:
            if step.output.suffix:
                step.output.write_text("{}")
            else:
                step.output.mkdir(parents=True)
            state.begin(step, anew=True)
            state.end(step, "done", seconds=1)


def begun(plan: Plan, key: str, *, resumable: bool) -> None:
    """A run's folder as a killed run leaves it."""
    (step,) = (step for step in plan.steps if step.key == key)
    step.output.mkdir(parents=True)
    (step.output / "config.yaml").write_text(yaml.safe_dump(dict(step.places)))
    if resumable:
        (step.output / "resume/100").mkdir(parents=True)
        (step.output / "resume/100/state.pt").touch()


@pytest.fixture
def state(plan: Plan) -> PipelineState:
    plan.out.mkdir()
    return PipelineState(plan)


def actions(decisions: list[Decision]) -> dict[str, str]:
    return {decision.step.key: decision.action for decision in decisions}


def test_nothing_done_is_started_and_everything_done_is_skipped(
    plan: Plan, state: PipelineState
) -> None:
    assert set(actions(decide(plan, state)).values()) == {"start"}
    make_done(plan, state)
    assert set(actions(decide(plan, PipelineState(plan))).values()) == {"skip"}


def test_a_lost_output_is_made_again(plan: Plan, state: PipelineState) -> None:
    make_done(plan, state)
    (plan.out / "report.html").unlink()
    expected = dict.fromkeys(KEYS, "skip") | {"report": "start"}
    assert actions(decide(plan, state)) == expected


def test_an_unfinished_run_is_resumed_if_it_can_be(plan: Plan, state: PipelineState) -> None:
    begun(plan, "agents/omg_tuned-s1", resumable=True)
    begun(plan, "agents/omg_tuned-s2", resumable=False)
    begun(plan, "agents/d3qn-s1", resumable=True)
    for step in plan.steps:
        if step.stage == "agents":
            state.begin(step, anew=True)
    failed = next(step for step in plan.steps if step.key == "agents/d3qn-s1")
    assert actions(decide(plan, state))["agents/d3qn-s1"] == "resume"
    state.end(failed, "failed", seconds=1, exit_code=1)
    assert actions(decide(plan, state))["agents/d3qn-s1"] == "resume"
    state.end(failed, "failed", seconds=1, exit_code=2)
    found = actions(decide(plan, state))
    assert [found[key] for key in AGENTS] == ["resume", "start", "start", "start"]


def test_a_run_begun_with_a_pool_elsewhere_is_started_anew(
    plan: Plan, state: PipelineState, tmp_path: Path
) -> None:
    begun(plan, "agents/d3qn-s1", resumable=True)
    state.begin(next(s for s in plan.steps if s.key == "agents/d3qn-s1"), anew=True)
    assert actions(decide(plan, state))["agents/d3qn-s1"] == "resume"
    plan.out.rename(tmp_path / "moved")
    moved = plan_of(STUDY, tmp_path, out="moved")
    assert actions(decide(moved, PipelineState(moved)))["agents/d3qn-s1"] == "start"


def test_changed_settings_of_a_done_step_are_refused_by_name(
    plan: Plan, state: PipelineState, tmp_path: Path
) -> None:
    make_done(plan, state)
    other = plan_of(changed("agents.methods.1.settings", {"lr": 7.0}), tmp_path)
    with pytest.raises(OmgError) as caught:
        decide(other, PipelineState(other))
    told = str(caught.value)
    assert told.startswith("agents/d3qn-s1 was done with other settings: ")
    assert "lr was 0.1, now 7.0" in told
    assert "another --out" in told
    assert "--redo" in told
    redone = [
        k for k, v in actions(decide(other, PipelineState(other), redo=True)).items() if v != "skip"
    ]
    assert redone == ["agents/d3qn-s1", "agents/d3qn-s2", "crossplay", "report"]


def test_an_added_method_changes_what_compares_all(
    plan: Plan, state: PipelineState, tmp_path: Path
) -> None:
    make_done(plan, state)
    content = copy.deepcopy(STUDY)
    content["agents"]["methods"].append({"name": "AM", "config": "d3qn_am"})
    other = plan_of(content, tmp_path)
    with pytest.raises(OmgError, match=r"crossplay was done .* agents/am-s1 is new"):
        decide(other, PipelineState(other))


def test_changed_settings_of_a_failed_step_start_it_anew(
    plan: Plan, state: PipelineState, tmp_path: Path
) -> None:
    begun(plan, "priors/tuned", resumable=True)
    (prior,) = (step for step in plan.steps if step.key == "priors/tuned")
    state.begin(prior, anew=True)
    other = plan_of(changed("priors.tuned.settings", {"t_max": 9999}), tmp_path)
    with pytest.raises(OmgError, match="priors/tuned was begun"):
        decide(other, PipelineState(other))
    state.end(prior, "failed", seconds=1, exit_code=2)
    assert actions(decide(other, PipelineState(other)))["priors/tuned"] == "start"


def test_a_folder_the_pipeline_did_not_make_is_left_alone(plan: Plan, state: PipelineState) -> None:
    (plan.out / "agents/d3qn-s1").mkdir(parents=True)
    with pytest.raises(OmgError, match="d3qn-s1 exists, but this pipeline did not make it"):
        decide(plan, state)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 2}', '{"format": 1, "steps": {}}'])
def test_a_damaged_state_is_a_sentence(plan: Plan, text: str) -> None:
    plan.out.mkdir()
    (plan.out / "pipeline.json").write_text(text)
    with pytest.raises(OmgError, match=r"pipeline\.json is damaged"):
        PipelineState(plan)


# --- locks -------------------------------------------------------------------------------------


def test_two_pipelines_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        pipeline_lock(tmp_path / "out"),
        pytest.raises(OmgError, match=rf"at work in .*process {os.getpid()} on"),
        pipeline_lock(tmp_path / "out"),
    ):
        pass
    with pipeline_lock(tmp_path / "out"):
        pass


HOLD = """
import os, sys, time, signal
from pathlib import Path
from omg.storage.locks import try_lock, write_owner
lock = try_lock(Path(sys.argv[1]))
write_owner(lock, os.getpid())
print("held", flush=True)
time.sleep(60)
"""


def test_the_lock_of_a_killed_process_is_free_again(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLD, str(tmp_path / "pipeline.lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(OmgError, match=f"process {holder.pid} on"), pipeline_lock(tmp_path):
            pass
        holder.kill()
        holder.wait()
        with pipeline_lock(tmp_path):
            pass


def test_a_run_that_outlived_its_pipeline_is_stopped_first(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLD, str(tmp_path / "agents-x.pid")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as orphan:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        told: list[str] = []
        stop_orphans(tmp_path, say=told.append)
        assert orphan.wait(5) == -15
        assert told == ["agents-x still runs from an earlier call; it is stopped to be continued"]
    stop_orphans(tmp_path)
    assert not list(tmp_path.glob("*.pid"))


def test_a_process_that_does_not_end_is_reported(tmp_path: Path) -> None:
    lock = try_lock(tmp_path / "agents-x.pid")  # held by ourselves, and names nobody
    assert lock is not None
    with pytest.raises(RunFailedError, match=r"agents-x \(unknown process\)"):
        stop_orphans(tmp_path, timeout=0.1)
    os.close(lock)


# --- running -----------------------------------------------------------------------------------

# A stand-in for `omg` that starts quickly. FAKE says what becomes of each run.
FAKE = """
import json, os, signal, sys, time
from pathlib import Path
command, *words = sys.argv[1:]
options = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
if "resume" in options:
    folder = Path(options["resume"])
elif command == "train":
    folder = Path(options["local_results_path"], options["run_name"])
    folder.mkdir(parents=True)
else:
    folder = Path(options["out"])
def note(*what):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps([time.time(), *what]) + "\\n")
note("begin", folder.name, command, "resume" in options)
does = json.loads(os.environ.get("FAKE", "{}")).get(folder.name, "")
def stop(*_):
    (folder / "resume/5").mkdir(parents=True, exist_ok=True)
    (folder / "resume/5/state.pt").touch()
    print("omg: interrupted.", flush=True)
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
if command == "train":
    places = {k: options[k] for k in ("opponent_pool", "init_param_path") if k in options}
    if "resume" not in options:
        (folder / "config.yaml").write_text(json.dumps(places))
    (folder / "metrics.jsonl").write_text('{"t_env": 5, "test_return_mean": 0.25}\\n')
    print("step 50 / 100  1 steps/s", flush=True)
elif command == "crossplay":
    (folder / "crossplay.json").write_text('{"summary": []}')
else:
    folder.write_text("report")
if does == "hang":
    time.sleep(60)
time.sleep(0.15)
note("end", folder.name, command, False)
if does.startswith("exit"):
    code, _, other = does[4:].partition(" after ")
    while other and not (folder.parent / other / "metrics.jsonl").exists():
        time.sleep(0.01)
    print("omg: it broke, as it was told to.")
    print("----")
    sys.exit(int(code))
if does == "kill":
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def small(tmp_path: Path) -> Plan:
    """One seed per method, to be quick."""
    return plan_of(SMALL, tmp_path)


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[Any]]]:
    """Run a plan with the stand-in; the calls it made, in order."""
    script, calls = tmp_path / "fake_omg.py", tmp_path / "calls.jsonl"
    script.write_text(FAKE)
    monkeypatch.setenv("CALLS", str(calls))

    def build(step: Any, out: Path) -> str:
        (out / "pool").mkdir()
        return "3 seen (to train with)"

    monkeypatch.setattr(omg.studies.execute, "build_pool", build)

    def run(plan: Plan, *, jobs: int = 2, redo: bool = False, **fake: str) -> list[list[Any]]:
        monkeypatch.setenv("FAKE", json.dumps({k.replace("_s", "-s"): v for k, v in fake.items()}))
        calls.write_text("")
        try:
            run_pipeline(plan, jobs=jobs, redo=redo, program=(sys.executable, str(script)))
        finally:
            lines = [json.loads(line) for line in calls.read_text().splitlines()]
        return lines

    return run


def began(calls: list[list[Any]]) -> list[str]:
    return [name for _, what, name, *_ in calls if what == "begin"]


@pytest.mark.long
def test_all_steps_run_in_order_and_not_more_than_allowed_at_a_time(
    small: Plan, go: Callable[..., list[list[Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    calls = go(small, jobs=2)
    names = began(calls)
    assert sorted(names[:3]) == ["iql-s1", "iql-s2", "vdn-s1"]
    assert names[-2:] == [small.out.name, "report.html"]
    running, most = 0, 0
    for _, what, *_ in sorted(calls):
        running += {"begin": 1, "end": -1}[what]
        most = max(most, running)
    assert most <= 2
    out = capsys.readouterr().out
    events = [tuple(line.split()[:2]) for line in out.splitlines()[1:]]
    assert [what for what, _ in events[:3]] == ["started", "started", "finished"]
    prior = events.index(("finished", "priors/tuned"))
    assert events.index(("started", "agents/omg_tuned-s1")) > prior
    assert events.index(("started", "agents/d3qn-s1")) < prior  # it needs none
    assert "started   opponents/iql-s1     omg train --config=iql --env-config=foraging" in out
    assert "finished  opponents/iql-s1     test team return 0.25, " in out
    assert "finished  pool                 3 seen (to train with), " in out
    assert "left of opponents" in out
    assert go(small) == []
    assert (
        "skipped   agents/d3qn-s1       done before, test team return 0.25"
        in capsys.readouterr().out
    )
    log = (small.out / "logs/agents-d3qn-s1.log").read_text()
    assert log.startswith("$ omg train --config=d3qn ")
    assert not list((small.out / "logs").glob("*.pid"))


@pytest.mark.long
@pytest.mark.parametrize(("code", "kind"), [(1, RunFailedError), (2, OmgError)])
def test_a_failing_run_stops_the_others_in_good_order(
    small: Plan, go: Callable[..., list[list[Any]]], code: int, kind: type[OmgError]
) -> None:
    with pytest.raises(OmgError) as caught:
        go(small, jobs=2, iql_s1=f"exit{code} after iql-s2", iql_s2="hang")
    assert type(caught.value) is kind
    log = small.out / "logs/opponents-iql-s1.log"
    assert str(caught.value) == (
        f"opponents/iql-s1 failed: it broke, as it was told to. Its log is {log}."
    )
    assert (small.out / "opponents/iql-s2/resume/5/state.pt").is_file()
    records = PipelineState(small).records
    assert (records["opponents/iql-s1"].status, records["opponents/iql-s2"].status) == (
        *("failed", "started"),
    )
    again = go(small, jobs=1)
    # Without a resume state the first is started again, the second goes on from its own.
    assert [(name, resumed) for _, what, name, _, resumed in again if what == "begin"][:3] == [
        *(("iql-s1", False), ("iql-s2", True), ("vdn-s1", False)),
    ]


def test_a_run_ended_from_outside_is_said_to_be_resumable(
    small: Plan, go: Callable[..., list[list[Any]]]
) -> None:
    with pytest.raises(RunFailedError, match="opponents/iql-s1 was ended by signal 9"):
        go(small, jobs=1, iql_s1="kill")
    assert PipelineState(small).records["opponents/iql-s1"].status == "started"


@pytest.mark.long
def test_redo_removes_and_repeats_only_what_changed(
    small: Plan, go: Callable[..., list[list[Any]]], tmp_path: Path
) -> None:
    go(small)
    (small.out / "agents/d3qn-s1/old").touch()
    (small.out / "replays").mkdir()
    other = plan_of(changed("agents.methods.1.settings", {"lr": 7.0}, SMALL), tmp_path)
    with pytest.raises(OmgError, match="--redo"):
        go(other)
    assert (small.out / "agents/d3qn-s1/old").exists()
    assert sorted(began(go(other, redo=True))) == ["d3qn-s1", "out", "report.html"]
    assert not (small.out / "agents/d3qn-s1/old").exists()
    assert not (small.out / "replays").exists()
    assert go(other) == []


@pytest.mark.long
def test_a_half_written_crossplay_is_made_anew(
    small: Plan, go: Callable[..., list[list[Any]]]
) -> None:
    with pytest.raises(RunFailedError, match="crossplay failed"):
        go(small, out="exit1")
    assert (small.out / "crossplay.json").is_file()
    (small.out / "replays").mkdir()
    assert began(go(small)) == ["out", "report.html"]
    assert not (small.out / "replays").exists()


def test_a_command_holds_its_lock_as_long_as_it_lives(small: Plan) -> None:
    step = small.steps[0]
    pid = small.out / "logs/opponents-iql-s1.pid"
    program = (sys.executable, "-c", "import time; time.sleep(60)")
    child = start(step, ("train",), small.out, program=program, append=False)
    assert pid.read_text().startswith(f"process {child.process.pid} on ")
    assert try_lock(pid) is None
    with pytest.raises(RunFailedError, match="running already"):
        start(step, ("train",), small.out, program=program, append=False)
    child.kill()
    child.process.wait()
    free = try_lock(pid)
    assert free is not None
    os.close(free)
    with pytest.raises(RunFailedError, match="cannot be started"):
        start(step, ("train",), small.out, program=("/nowhere",), append=False)
    assert pid.read_text() == ""  # the dead owner is not taken for a living one


def test_the_folder_is_recorded_before_the_run_starts(
    small: Plan, go: Callable[..., list[list[Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(step: Any, *rest: Any, **more: Any) -> Child:
        assert PipelineState(small).records[step.key].status == "started"
        raise SystemExit

    monkeypatch.setattr(omg.studies.execute, "start", killed)
    with pytest.raises(SystemExit):
        go(small)


@pytest.mark.long
def test_a_crash_between_moving_and_removing_leaves_nothing_half_removed(
    small: Plan, go: Callable[..., list[list[Any]]]
) -> None:
    go(small)
    (small.out / "agents/d3qn-s1").rename(small.out / ".removed")
    assert began(go(small)) == ["d3qn-s1"]
    assert not (small.out / ".removed").exists()
    (small.out / ".removed").touch()
    assert go(small) == []
    assert not (small.out / ".removed").exists()


# --- what is shown -----------------------------------------------------------------------------


class _Pace(Child):
    """A child of known age and pace."""

    def __init__(self, age: float, left: float | None) -> None:
        self.started, self._left = time.monotonic() - age, left

    def seconds_left(self) -> float | None:
        return self._left


def test_time_left_follows_running_and_finished_runs() -> None:
    assert time_left([_Pace(10, None)], 2, None, 2) is None
    assert time_left([_Pace(10, 30)], 0, None, 2) == 30
    # one of 40 s in all; two more wait for two places: (30 + 80) / 2
    assert time_left([_Pace(10, 30)], 2, None, 2) == pytest.approx(55, abs=1)
    # finished runs took 20 s; the running one is silent
    assert time_left([_Pace(5, None)], 0, 20.0, 2) == pytest.approx(15, abs=1)


def test_the_summary_has_a_row_per_method_and_a_column_per_side() -> None:
    values = {("A", "heldout"): [0, 1, 2], ("A", "train"): [2, 2, 2], ("B", "train"): [3]}
    agents = [Agent(f"{m}{i}", m, i) for m, count in (("A", 3), ("B", 1)) for i in range(count)]
    cells = [
        Cell(f"{m}{i}", "o", "homologue", split, 1, {"return": float(v), "permuted_x": 9.0})
        for (m, split), seeds in values.items()
        for i, v in enumerate(seeds)
    ]
    cells += [Cell("B0", "o", "homologue", "heldout", 1, {})]
    found = Crossplay(format=1, env="x", agents=tuple(agents), opponents=(), cells=tuple(cells))
    table = summary_table(found, "return")
    assert table.title == "team return, mean and 95 % interval"
    assert [column.header for column in table.columns] == ["method", "seen", "unseen"]
    shown = [list(column.cells) for column in table.columns]
    assert shown[0] == ["A", "B"]
    assert shown[1] == ["2.000 [2.000, 2.000]", "3.000"]
    assert shown[2] == ["1.000 [-1.484, 3.484]", "-"]  # 1 ± 4.303 / √3


def forget(plan: Plan, *keys: str) -> None:
    """Records as an older version would have written them, without some keys."""
    path = plan.out / "pipeline.json"
    content = json.loads(path.read_text())
    renamed: dict[str, str] = {}
    for key, record in content["steps"].items():
        for name in keys:
            step, _, inner = name.rpartition(".")  # "pool.env": of one step only
            if step in ("", key):
                record["settings"].pop(inner, None)
        record["needs"] = {need: renamed[need] for need in record["needs"]}
        record["fingerprint"] = renamed[key] = f"old {key}"
    path.write_text(json.dumps(content))


def test_keys_that_a_later_version_brought_do_not_undo_what_was_done(
    plan: Plan, state: PipelineState, tmp_path: Path
) -> None:
    make_done(plan, state)
    forget(plan, "am_history", "critic", "learning_role", "pool.env", "sample")
    assert set(actions(decide(plan, PipelineState(plan))).values()) == {"skip"}
    content = changed("agents.methods.1.settings", {"lr": 0.1, "am_history": True})
    other = plan_of(content, tmp_path)
    with pytest.raises(OmgError, match="am_history was 'nothing', now True"):
        decide(other, PipelineState(other))


def test_what_depends_on_something_made_anew_is_not_taken_for_older(
    plan: Plan, state: PipelineState
) -> None:
    make_done(plan, state)
    forget(plan, "am_history")
    path = plan.out / "pipeline.json"
    content = json.loads(path.read_text())
    content["steps"]["pool"]["fingerprint"] = "made again"
    path.write_text(json.dumps(content))
    with pytest.raises(OmgError, match=r"it depends on .*pool"):
        decide(plan, PipelineState(plan))


def test_a_prior_is_shown_with_what_it_decodes_at_its_end_not_on_average(tmp_path: Path) -> None:
    step = Step(
        key="priors/p", stage="priors", kind="train", commands=(), settings={}, output=tmp_path
    )
    (tmp_path / "metrics.jsonl").write_text('{"t_env": 9, "wall_s": 1, "prior_accuracy": 0.4}\n')
    assert result_of(step) == {"decoding_accuracy": 0.4}
    last = tmp_path / "models" / "last"
    last.mkdir(parents=True)
    (last / "meta.json").write_text('{"prior_accuracy": 0.97}')
    assert result_of(step) == {"decoding_accuracy": 0.97}
    (last / "meta.json").write_text('{"prior_accuracy": 0.0, "prior_explained": 0.7}')
    assert result_of(step) == {"decoding_accuracy": 0.0, "explained_variance": 0.7}
