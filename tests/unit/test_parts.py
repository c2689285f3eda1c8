"""Parts of the user's own: they name what they need, and have settings of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from omg.cli.train import train
from omg.components.trajectories import Trajectories
from omg.config.arguments import Arguments
from omg.config.loader import load_command_line, load_saved
from omg.config.schema import Config
from omg.controllers.team import BasicMAC
from omg.learners import LEARNERS
from omg.learners.ppo_learner import PPOLearner
from omg.learners.q_learner import QLearner, build_mixer
from omg.modules.agents import AGENTS
from omg.modules.agents.networks import MLPAgent
from omg.modules.critics import CRITICS, CentralCritic
from omg.modules.mixers import MIXERS, Mixer
from omg.modules.opponent_models import OPPONENT_MODELS
from omg.modules.opponent_models.base import MemorylessModel, ModelRows
from omg.policies.policy import Policy, build_model
from omg.registry import PartRegistry
from omg.runners.assembly import build_learner, make_controller
from omg.types import EnvSpec, OmgError

from . import mdps

if TYPE_CHECKING:
    from collections import OrderedDict

CPU = torch.device("cpu")
HERE = __name__


class Deep(Mixer):
    """A weighted sum; `depth` is a setting of its own, and has to be given."""

    def __init__(self, *, n_agents: int, depth: int, sharp: float = 0.5) -> None:
        super().__init__()
        self.depth, self.sharp = depth, sharp
        self.weights = nn.Parameter(torch.ones(n_agents))

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        return (values * self.weights).sum(-1, keepdim=True)


def settings(*words: str, alg: str = "vdn") -> Config:
    return load_command_line([f"--config={alg}", "--env-config=foraging", *words]).config


def deep(*words: str) -> Any:
    return build_mixer(settings(f"--mixer={HERE}:Deep", *words), mdps.SPEC)


# --- mixers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["3", "'3'", "3.0"])
def test_a_setting_of_its_own_has_the_type_of_its_annotation(given: str) -> None:
    mixer = deep(f"--mixer_args.depth={given}")
    assert isinstance(mixer, Deep)
    assert type(mixer.depth) is int
    assert mixer.depth == 3
    assert mixer.sharp == 0.5
    assert mixer.weights.shape == (mdps.SPEC.n_agents,)
    assert deep(f"--mixer_args.depth={given}", "--mixer_args.sharp=2").sharp == 2.0


@pytest.mark.parametrize("given", ["x", "3.5", "None", "[3]"])
def test_what_is_not_of_that_type_is_refused_with_the_name_of_the_setting(given: str) -> None:
    with pytest.raises(OmgError, match=r"^mixer_args\.depth=.* is not possible") as told:
        deep(f"--mixer_args.depth={given}")
    sentence = str(told.value)
    assert f"for mixer={HERE}:Deep" in sentence
    assert "Expected: a whole number" in sentence


def test_an_unknown_setting_is_refused_with_the_nearest_name_and_all_there_are() -> None:
    sentence = (
        rf"mixer={HERE}:Deep does not take mixer_args\.dept, did you mean 'depth'\? "
        r"It takes: depth, sharp\."
    )
    with pytest.raises(OmgError, match=sentence):
        deep("--mixer_args.depth=3", "--mixer_args.dept=3")
    with pytest.raises(OmgError, match=r"does not take mixer_args\.colour\. It takes: depth"):
        deep("--mixer_args.depth=3", "--mixer_args.colour=red")


def test_a_setting_without_default_that_is_missing_is_named() -> None:
    with pytest.raises(OmgError, match=r"needs mixer_args\.depth\. Give a value"):
        deep()
    with pytest.raises(OmgError, match=r"needs mixer_args\.depth\. Give a value"):
        deep("--mixer_args.sharp=1")


@pytest.mark.parametrize("name", ["n_agents", "state_dim", "config"])
def test_a_setting_that_omg_gives_is_refused_whether_or_not_the_part_takes_it(name: str) -> None:
    with pytest.raises(OmgError, match=rf"mixer_args\.{name} is set by omg itself"):
        deep("--mixer_args.depth=3", f"--mixer_args.{name}=1")


def test_shipped_mixers_have_no_settings_of_their_own() -> None:
    assert not [*build_mixer(settings(), mdps.SPEC).parameters()]  # type: ignore[union-attr]
    for name in ("vdn", "qmix", "qtran_base"):
        config = settings(f"--mixer={name}", "--mixer_args.depth=3")
        with pytest.raises(
            OmgError, match=rf"mixer={name} does not take mixer_args\.depth\. It takes none\."
        ):
            build_mixer(config, mdps.SPEC, feature_dim=3)


def test_a_learner_builds_its_mixer_and_the_target_s_with_the_settings() -> None:
    config = settings(f"--mixer={HERE}:Deep", "--mixer_args.depth=4")
    mac = make_controller(config, mdps.SPEC, CPU)
    learner = build_learner(config, spec=mdps.SPEC, mac=mac, device=CPU)
    assert isinstance(learner, QLearner)
    for mixer in (learner.mixer, learner._target_mixer):
        assert isinstance(mixer, Deep)
        assert mixer.depth == 4


# --- the other parts ------------------------------------------------------------------------


class Wide(MLPAgent):
    """A network that names less than it could be given."""

    def __init__(self, *, input_dim: int, n_actions: int, width: int = 8) -> None:
        super().__init__(input_dim=input_dim, n_actions=n_actions, mlp_hidden_dims=[width])


class Patient(QLearner):
    """A learner with a setting of its own."""

    def __init__(self, *, patience: float, **given: Any) -> None:
        super().__init__(**given)
        self.patience = patience


class Sharp(CentralCritic):
    """A critic with a setting of its own."""

    def __init__(
        self, *, config: Config, spec: EnvSpec, input_dim: int, feature_dim: int, flat: bool = False
    ) -> None:
        super().__init__(config=config, spec=spec, input_dim=input_dim, feature_dim=feature_dim)
        self.flat = flat

    def inputs(self, played: Trajectories, fed: Tensor, feature: Tensor | None = None) -> Tensor:
        found = super().inputs(played, fed, feature)
        return torch.zeros_like(found) if self.flat else found


class Constant(MemorylessModel):
    """An opponent model that tells the policy a list of numbers, and needs nothing of omg."""

    def __init__(self, *, told: list[float]) -> None:
        super().__init__()
        self._told = told
        self.feature_dim = len(told)

    def feature(self, rows: ModelRows) -> Tensor:
        return torch.tensor(self._told).expand(len(rows.seats), -1)


class Quiet(BasicMAC):
    """A controller that names less than it could be given."""

    def __init__(self, *, config: Config, spec: EnvSpec, device: torch.device) -> None:
        super().__init__(config=config, spec=spec, device=device)


def test_settings_of_a_network_reach_the_one_that_acts_and_its_target() -> None:
    config = settings(f"--policy_model={HERE}:Wide", "--agent_args.width=5")
    mac = make_controller(config, mdps.SPEC, CPU)
    learner = build_learner(config, spec=mdps.SPEC, mac=mac, device=CPU)
    assert isinstance(learner, QLearner)
    for network in (learner._policy.network, learner._target_network):
        assert isinstance(network, Wide)
        assert network.head.in_features == 5
    assert learner._policy.describe()["agent_args"] == {"width": 5}
    with pytest.raises(OmgError, match=r"agent_args\.widht, did you mean 'width'\?"):
        Policy(
            config=settings(f"--policy_model={HERE}:Wide", "--agent_args.widht=5"),
            spec=mdps.SPEC,
            device=CPU,
        )


def test_settings_of_a_learner() -> None:
    config = settings(f"--learner={HERE}:Patient", "--learner_args.patience='2'")
    mac = make_controller(config, mdps.SPEC, CPU)
    learner = build_learner(config, spec=mdps.SPEC, mac=mac, device=CPU)
    assert isinstance(learner, Patient)
    assert learner.patience == 2.0
    plain = settings("--learner_args.patience=2")
    with pytest.raises(OmgError, match=r"learner=q_learner does not take learner_args\.patience"):
        build_learner(plain, spec=mdps.SPEC, mac=mac, device=CPU)


def test_settings_of_a_critic() -> None:
    config = settings(f"--critic={HERE}:Sharp", "--critic_args.flat='true'", alg="mappo")
    mac = make_controller(config, mdps.SPEC, CPU)
    learner = build_learner(config, spec=mdps.SPEC, mac=mac, device=CPU)
    assert isinstance(learner, PPOLearner)
    assert isinstance(learner.values.critic, Sharp)
    assert learner.values.critic.flat is True
    with pytest.raises(OmgError, match=r"critic=cv does not take critic_args\.flat"):
        build_learner(
            settings("--critic_args.flat=True", alg="mappo"), spec=mdps.SPEC, mac=mac, device=CPU
        )


def test_settings_of_an_opponent_model() -> None:
    words = (f"--am_model={HERE}:Constant", "--am_args.told=[1, '2']")
    model = build_model(settings(*words, alg="iql_am"), mdps.SPEC)
    assert isinstance(model, Constant)
    assert model._told == [1.0, 2.0]
    with pytest.raises(OmgError, match=r"needs am_args\.told"):
        build_model(settings(words[0], alg="iql_am"), mdps.SPEC)


def test_a_controller_need_not_name_all_that_it_could_be_given() -> None:
    mac = make_controller(settings(f"--mac={HERE}:Quiet"), mdps.SPEC, CPU)
    assert type(mac) is Quiet


# --- what any callable is given -------------------------------------------------------------


class Some:
    def __init__(self, *, two: int, own: int = 7) -> None:
        self.found = {"two": two, "own": own}


class Everything:
    def __init__(self, **found: int) -> None:
        self.found = found


class Plain:
    def __init__(self, *, own=1):  # type: ignore[no-untyped-def]
        self.found = own


class Unreadable:
    def __init__(self, *, own: OrderedDict[str, int]) -> None:
        self.found: Any = own


KINDS = {kind.__name__: f"{HERE}:{kind.__name__}" for kind in (Some, Everything, Plain, Unreadable)}
PARTS: PartRegistry[Any] = PartRegistry(
    "part", KINDS, base=object, given=("one", "two"), args_key="part_args"
)


def test_only_what_is_named_is_passed_and_all_of_it_where_anything_is_taken() -> None:
    def built(kind: str, **args: Any) -> Any:
        return PARTS.build(kind, args, one=1, two=2).found

    assert built("Some") == {"two": 2, "own": 7}
    assert built("Some", own=8) == {"two": 2, "own": 8}
    assert built("Everything", three=3) == {"one": 1, "two": 2, "three": 3}
    with pytest.raises(OmgError, match=r"part_args\.one is set by omg itself"):
        built("Everything", one=3)


@pytest.mark.parametrize("kind", ["Plain", "Unreadable"])
def test_without_an_annotation_that_can_be_read_a_setting_stays_as_it_was_given(kind: str) -> None:
    assert PARTS.build(kind, {"own": "7"}).found == "7"


# What every part is given, as the docstrings of their bases list it.
@pytest.mark.parametrize("registry", [MIXERS, AGENTS, CRITICS, OPPONENT_MODELS, LEARNERS])
def test_a_base_class_says_what_its_parts_can_be_given(registry: PartRegistry[Any]) -> None:
    told = set(re.findall(r"\w+", registry._base.__doc__ or ""))
    assert {*registry._given, registry._args_key} <= told


class Kept(BasicMAC):
    def __init__(self, *, config: Config, spec: EnvSpec, device: torch.device) -> None:
        super().__init__(config=config, spec=spec, device=device)
        self.mine = 7


class Demanding(Kept):
    def __init__(self, *, config: Config, depth: int) -> None:
        raise AssertionError


def test_a_controller_of_ones_own_keeps_what_it_has_when_it_records() -> None:
    mac = make_controller(settings(f"--mac={HERE}:Kept"), mdps.SPEC, CPU)
    assert mac.recording().mine == 7  # type: ignore[attr-defined]


def test_a_controller_has_no_settings_and_is_told_what_it_can_be_given() -> None:
    with pytest.raises(OmgError, match=r"asks for depth, which omg does not give\. It gives: con"):
        make_controller(settings(f"--mac={HERE}:Demanding"), mdps.SPEC, CPU)


class Flat(Mixer):
    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        return values.sum(-1)


class Idle(QLearner):
    def fit(self, taken: Tensor, targets: Tensor, progress: Any) -> Any:
        return {"loss": (taken - targets).square().mean().detach()}


class Forgetful(MLPAgent):
    def __init__(self, *, input_dim: int, n_actions: int) -> None:
        super().__init__(input_dim=input_dim, n_actions=n_actions, mlp_hidden_dims=(4,))
        self.carry_dim = None  # type: ignore[assignment]


def test_a_mixer_that_gives_no_number_per_row_is_refused() -> None:
    config = settings(f"--mixer={HERE}:Flat")
    mac = make_controller(config, mdps.SPEC, CPU)
    with pytest.raises(OmgError, match=r"makes \(2,\) of the values \(2, 2\).*keepdim=True"):
        build_learner(config, spec=mdps.SPEC, mac=mac, device=CPU)


def test_a_network_must_say_what_it_remembers() -> None:
    with pytest.raises(OmgError, match="has no carry_dim"):
        make_controller(settings(f"--policy_model={HERE}:Forgetful"), mdps.SPEC, CPU)


def test_a_learner_that_makes_no_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OmgError, match=r"Idle\.fit has made no step"):
        run(tmp_path, f"--learner={HERE}:Idle")


# --- whole runs -----------------------------------------------------------------------------


def run(folder: Path, *words: str) -> Path:
    small = (
        *("--config=vdn", "--env-config=foraging", "--t_max=60", "--batch_size=2"),
        *("--test_nepisode=2", "--quiet", "--use_sacred=False", "--use_tensorboard=False"),
        *("--env_args.key=Foraging-5x5-2p-1f-v3", "--env_args.max_episode_steps=6"),
    )
    return Path(train([*small, f"--local_results_path={folder}", *words]).folder)


@pytest.mark.long
def test_a_run_with_parts_of_ones_own_is_saved_and_goes_on_with_their_settings(
    tmp_path: Path,
) -> None:
    words = (f"--mixer={HERE}:Deep", "--mixer_args.depth=3", f"--policy_model={HERE}:Wide")
    words += ("--agent_args.width=5", "--run_name=own")
    folder = run(tmp_path, *words)
    assert (folder / "models" / "last" / "mixer.th").is_file()
    saved = load_saved(folder / "config.yaml", Arguments()).config
    assert (saved.mixer_args, saved.agent_args) == ({"depth": 3}, {"width": 5})
    train([f"--resume={folder}", "--t_max=90"])
    again = (f"--checkpoint_path={folder}", *words[:-1])
    run(tmp_path, *again, "--run_name=again")
    with pytest.raises(OmgError, match="agent_args"):
        run(tmp_path, *again, "--run_name=other", "--agent_args.width=6")


def test_a_setting_that_is_refused_leaves_no_folder_and_builds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omg.experiment.run.Run._build", lambda run: pytest.fail("was built"))
    with pytest.raises(OmgError, match=r"mixer_args\.depth='x' is not possible"):
        run(tmp_path, f"--mixer={HERE}:Deep", "--mixer_args.depth=x")
    assert not list(tmp_path.iterdir())
