"""Policies cross over: equal action values in RLlib and here, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import omg
from omg.controllers.team import TeamMAC
from omg.experiment.trained import load_players, read_run
from omg.integrations.rllib import OmgEnv, export_module, ppo_config, run_settings
from omg.integrations.rllib.configs import module_spec
from omg.integrations.rllib.modules import FrozenModule, OmgDQNModule, OmgModule, OmgPPOModule
from omg.integrations.rllib.settings import Settings
from omg.opponents.lineups import EveryoneLearns
from omg.policies.inputs import StepView
from omg.types import OmgError
from tests.rllib.playing import LEAVERS, OMG, leaver_config, make_prior, runner_of

pytestmark = pytest.mark.long
SHORT = {"t_max": 300, "test_nepisode": 2, "test_interval": 10_000, "use_sacred": False}
SMALL = {"am_hidden_dim": 32, "rnn_hidden_dim": 16, "batch_size": 4, "batch_size_run": 2}
# The policy's memory, the model's memory, both, and neither.
KINDS: dict[str, dict[str, Any]] = {
    "iql": {},
    "ippo": {"ppo_minibatches": 1},
    "iql_liam": {"is_agent_shift": False},
    "iql_omg": {**OMG, "subgoal_feature": "both"},
    "ppo_moa": {"moa_goal": "discrete", "ppo_epochs": 1, "ppo_minibatches": 1},
}


def native_values(mac: TeamMAC, settings: Settings, steps: int) -> tuple[Any, list[Any]]:
    """Every seat's outputs of our own controller along a game of OmgEnv, and what was shown."""
    env = OmgEnv(settings.config.env, settings.env_config())
    shown, _ = env.reset(seed=5)
    mac = mac.sibling(lineup=EveryoneLearns(settings.spec))
    carry, rng, found = mac.initial_carry(1), np.random.default_rng(0), []
    generator, last = torch.Generator(), np.full(settings.spec.n_agents, -1)
    view: Any = env.game.restore(env.game.snapshot())
    for _ in range(steps):
        step = StepView(
            obs=torch.from_numpy(view.obs),
            state=torch.from_numpy(view.state),
            avail=torch.from_numpy(view.avail),
            last_actions=torch.from_numpy(last[None]),
            alive=None if view.alive is None else torch.from_numpy(view.alive),
        )
        with torch.no_grad():
            feature, carried = None, {}
            if mac.model is not None:
                seats = torch.arange(settings.spec.n_agents).unsqueeze(0)
                feature, inferred = mac.policy.infer(step, seats, carry["model"], generator)
                carried = {"model": inferred.carry.view(1, -1)}
            outputs, hidden = mac.policy.step(step, carry["hidden"], None, feature)
        carry = {**carry, "hidden": hidden, **carried}
        found.append((dict(shown), outputs[0], view.avail[0]))
        alive = np.ones(len(last), bool) if view.alive is None else view.alive[0]
        last = np.array([rng.choice(np.flatnonzero(possible)) for possible in view.avail[0]])
        acting = {f"seat_{seat}": int(last[seat]) for seat in np.flatnonzero(alive)}
        shown, _, ends, cuts, _ = env.step(acting)
        if ends["__all__"] or cuts["__all__"]:
            break
        view = seen_now(env)
    return env, found


def seen_now(env: OmgEnv) -> Any:
    """The game's own view of the present, read back from what the seats are shown."""
    parts = env.layout.parts(env._past.of_seat(0))
    now = int(parts["slots"][0]) - 1

    class View:
        obs = parts["obs"][now][None].astype(np.float32)
        state = parts["state"][now][None].astype(np.float32)
        avail = parts["avail"][now][None].astype(bool)
        alive = parts["alive"][now][None].astype(bool) if env.env_spec.leavers else None

    return View()


def assert_equal_values(module: OmgModule, found: list[Any]) -> None:
    assert len(found) > 3
    for shown, outputs, avail in found:
        seats = [int(agent[-1]) for agent in shown]
        rows = torch.stack([torch.from_numpy(shown[f"seat_{seat}"]) for seat in seats])
        with torch.no_grad():
            values = module.values({"obs": rows})
        possible = torch.from_numpy(avail[seats])
        torch.testing.assert_close(values[possible], outputs[seats][possible], rtol=1e-4, atol=1e-5)


def trained(tmp_path: Path, alg: str, **given: Any) -> Path:
    """A short run of ours on the game of leavers."""
    values = {**SHORT, **SMALL, **KINDS[alg], **given}
    if alg == "iql_omg":
        prior = {k: v for k, v in values.items() if k in OMG or k in ("subgoal_feature",)}
        values["init_param_path"] = make_prior(tmp_path / "prior", alg, env=LEAVERS, **prior)
    run = omg.train(
        alg, env=LEAVERS, common_reward=False, local_results_path=str(tmp_path / "runs"), **values
    )
    return Path(run)


@pytest.mark.parametrize("alg", list(KINDS))
def test_a_policy_trained_here_has_the_same_values_in_rllib(alg: str, tmp_path: Path) -> None:
    run = trained(tmp_path, alg)
    settings = run_settings(run)
    module = module_spec(settings, FrozenModule).build()
    assert not any(weights.requires_grad for weights in module.parameters())
    mac = load_players(read_run(run), settings.spec, torch.device("cpu"))
    assert isinstance(mac, TeamMAC)
    _, found = native_values(mac, settings, 8)
    assert_equal_values(module, found)


@pytest.mark.parametrize(("alg", "kind"), [("ppo_moa", OmgPPOModule), ("d3qn_am", OmgDQNModule)])
def test_a_policy_of_rllib_has_the_same_values_here_and_joins_a_pool(
    alg: str, kind: type[OmgModule], tmp_path: Path
) -> None:
    settings = Settings.of(alg, None, env=LEAVERS, am_hidden_dim=16, common_reward=False)
    torch.manual_seed(3)
    module = module_spec(settings, kind).build()
    run = export_module(module, tmp_path / "from_rllib", env_steps=1234)
    mac = load_players(read_run(run), settings.spec, torch.device("cpu"))
    assert isinstance(mac, TeamMAC)
    _, found = native_values(mac, settings, 8)
    assert_equal_values(module, found)
    pool = omg.Pool.create(tmp_path / "pool")
    member = pool.add_run(run)[0]
    assert member.env_steps == 1234
    pool.check_weights(pool.members()[0])
    learner = omg.train(
        "d3qn",
        env=LEAVERS,
        opponent_pool=str(tmp_path / "pool"),
        local_results_path=str(tmp_path / "runs"),
        **SHORT,
        batch_size=4,
    )
    assert np.isfinite(learner.metrics["return_mean"])


def test_nothing_of_an_exported_policy_is_a_pickle_of_objects(tmp_path: Path) -> None:
    settings = Settings.of("ppo_am", None, env=LEAVERS, am_hidden_dim=16)
    run = export_module(module_spec(settings, OmgPPOModule).build(), tmp_path / "run", env_steps=7)
    files = [path for path in run.rglob("*") if path.is_file()]
    weights = [path for path in files if path.suffix == ".th"]
    assert weights
    for path in weights:
        torch.load(path, weights_only=True)
    for path in set(files) - set(weights):
        assert yaml.safe_load(path.read_text())  # JSON is YAML, too
    other = module_spec(
        Settings.of("ppo_am", None, env=LEAVERS, am_hidden_dim=32), OmgPPOModule
    ).build()
    with pytest.raises(OmgError, match="another run"):
        export_module(other, tmp_path / "run", env_steps=7)


def test_a_policy_of_one_seat_that_is_told_its_seat_is_not_exported(tmp_path: Path) -> None:
    settings = Settings.of("ppo_am", None, env=LEAVERS).for_seats([1])
    with pytest.raises(OmgError, match="seat 1 only"):
        export_module(module_spec(settings, OmgPPOModule).build(), tmp_path / "run", env_steps=7)


def test_a_run_of_ours_takes_a_seat_beside_learning_policies(tmp_path: Path) -> None:
    run = trained(tmp_path, "iql")
    config = leaver_config("ppo", frozen={2: run_settings(run)})
    runner = runner_of(config)
    (episode,) = runner.sample(num_episodes=1)
    assert episode.module_for("seat_2") == "frozen_2"
    assert episode.module_for("seat_0") == "shared"
    frozen = runner.module["frozen_2"]
    assert isinstance(frozen, FrozenModule)
    own = episode.agent_episodes["seat_2"]
    values = frozen.values({"obs": torch.from_numpy(own.get_observations())})
    np.testing.assert_array_equal(values.argmax(-1)[:-1], np.asarray(own.get_actions()))
    runner.stop()


def test_policies_begin_with_the_weights_of_a_run_and_others_are_refused(tmp_path: Path) -> None:
    run = trained(tmp_path, "ppo_moa")
    same = {**SMALL, **KINDS["ppo_moa"], "common_reward": False}
    config = leaver_config("ppo", alg="ppo_moa", start=run_settings(run), **same)
    runner = runner_of(config)
    mac = load_players(read_run(run), run_settings(run).spec, torch.device("cpu"))
    assert isinstance(mac, TeamMAC)
    for name, weights in mac.policy.network.state_dict().items():
        torch.testing.assert_close(runner.module["shared"].network.state_dict()[name], weights)
    runner.stop()
    with pytest.raises(OmgError, match="am_hidden_dim"):
        leaver_config("ppo", alg="ppo_moa", start=run_settings(run), **{**same, "am_hidden_dim": 8})
    with pytest.raises(OmgError, match="n_agents"):
        ppo_config("ppo", "foraging", frozen={0: run_settings(run)})
