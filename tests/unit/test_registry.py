"""Registries: shipped names, and classes of one's own by import path."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from omg.components.action_selectors import SELECTORS, ActionSelector
from omg.controllers import CONTROLLERS
from omg.controllers.base import Controller
from omg.envs.registry import ENVS
from omg.learners import LEARNERS
from omg.learners.base import Learner
from omg.modules.agents import AGENTS
from omg.modules.agents.networks import AgentNetwork
from omg.modules.critics import CRITICS, Critic
from omg.modules.mixers import MIXERS, Mixer
from omg.modules.opponent_models import OPPONENT_MODELS
from omg.modules.opponent_models.base import OpponentModel
from omg.registry import Registry
from omg.runners import RUNNERS, Runner
from omg.types import OmgError

# Registry, what its classes derive from, and the import path of a shipped class.
CLASSES: list[tuple[Registry[Any], type[Any], str]] = [
    (OPPONENT_MODELS, OpponentModel, "omg.modules.opponent_models.base_am:NaiveModel"),
    (AGENTS, AgentNetwork, "omg.modules.agents.networks:RNNAgent"),
    (MIXERS, Mixer, "omg.modules.mixers:VDNMixer"),
    (CONTROLLERS, Controller, "omg.controllers.team:BasicMAC"),
    (LEARNERS, Learner, "omg.learners.q_learner:QLearner"),
    (SELECTORS, ActionSelector, "omg.components.action_selectors:EpsilonGreedy"),
    (CRITICS, Critic, "omg.modules.critics:ComaCritic"),
    (RUNNERS, Runner, "omg.runners.assembly:Runner"),
]
IDS = [registry.kind for registry, _, _ in CLASSES]
_numbers = itertools.count()


def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """A module of the user's in the current folder; each has a name of its own."""
    name = f"users_module_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OMG_TRUST", name)
    return name


@pytest.mark.parametrize(("registry", "base", "path"), CLASSES, ids=IDS)
def test_a_class_can_be_named_by_its_import_path(
    registry: Registry[Any], base: type[Any], path: str
) -> None:
    found = registry[path]
    assert issubclass(found, base)
    assert found.__name__ == path.partition(":")[2]
    assert found in {registry[name] for name in registry}


@pytest.mark.parametrize(("registry", "base", "path"), CLASSES, ids=IDS)
def test_a_class_of_another_kind_is_refused_with_the_base_to_derive_from(
    registry: Registry[Any], base: type[Any], path: str
) -> None:
    with pytest.raises(OmgError, match=f"is no {base.__name__}. Derive the class from omg"):
        registry["tests.unit.counter_game:CounterEnv"]


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "builtins:exec"])
def test_what_is_no_class_of_environments_is_refused_before_it_is_called(name: str) -> None:
    with pytest.raises(OmgError, match=r"Give a class|is no environment"):
        ENVS[name]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (
            "base-am",
            r"no am_model called 'base-am', did you mean 'base_am'\?.*package.module:Class",
        ),
        ("nowhere.at_all:Model", "there is no module 'nowhere'.*the folder it lies in"),
        ("examples/my_model.py:Model", "the path of a file.*imports it: examples.my_model:Model"),
        ("./my_model.py", "the path of a file.*imports it: my_model:<class>"),
        ("my_model:", "incomplete"),
        (":Model", "incomplete"),
        (
            "omg.modules.opponent_models.base_am:NaivModel",
            r"has no 'NaivModel', did you mean 'NaiveModel'\? Classes in it: NaiveModel\.",
        ),
        ("omg.registry:load_attribute", "is no OpponentModel"),
    ],
)
def test_a_wrong_name_says_what_is_wrong_and_what_to_write(
    name: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMG_TRUST", "nowhere")
    with pytest.raises(OmgError, match=answer):
        OPPONENT_MODELS[name]


def test_a_module_that_fails_while_it_is_imported_is_told_by_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = write_module(tmp_path, monkeypatch, "x = 1\ny = x.width\n")
    with pytest.raises(OmgError, match="cannot be imported: AttributeError: 'int' object") as told:
        OPPONENT_MODELS[f"{broken}:Model"]
    assert isinstance(told.value.__cause__, AttributeError)
    unfinished = write_module(tmp_path, monkeypatch, "class Model(\n")
    with pytest.raises(OmgError, match=r"cannot be imported: SyntaxError.*line 1"):
        OPPONENT_MODELS[f"{unfinished}:Model"]


def test_a_package_that_a_users_module_needs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needy = write_module(tmp_path, monkeypatch, "import a_package_nobody_has\n")
    with pytest.raises(OmgError, match="needs the package 'a_package_nobody_has'"):
        OPPONENT_MODELS[f"{needy}:Model"]


def test_a_class_that_leaves_methods_open_is_refused_with_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write_module(
        tmp_path,
        monkeypatch,
        "from omg.modules.opponent_models.base import MemorylessModel\n"
        "class Model(MemorylessModel):\n"
        "    def __init__(self, *, spec, own_dim, config):\n"
        "        pass\n",
    )
    with pytest.raises(OmgError, match=r"lacks feature\. Define what OpponentModel leaves open"):
        OPPONENT_MODELS[f"{name}:Model"]
