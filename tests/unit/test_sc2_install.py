"""What is said when a package, the game or a map is missing, and to `omg doctor`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import omg.cli.train
from omg.config.loader import load_command_line
from omg.envs.battle.args import BattleArgs
from omg.envs.registry import make_batched
from omg.envs.sc2.args import MAPS, OF_BATTLE, SmacArguments
from omg.envs.sc2.install import describe_installation, import_package
from omg.types import OmgError

from .sc2_game import forget_packages, make_game_folder, standin  # noqa: F401 - a fixture


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither package nor game."""
    forget_packages()
    for name in ("smac", "smacv2"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delenv("SC2PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def refusal(env: str = "sc2", **args: Any) -> str:
    with pytest.raises(OmgError) as caught:
        make_batched(env, args, n_copies=1).close()
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(("env", "repository"), [("sc2", "smac)"), ("smacv2", "smacv2)")])
def test_without_the_package_the_error_says_what_to_install_and_what_runs_without_it(
    nothing: None, env: str, repository: str
) -> None:
    text = refusal(env)
    assert f"needs the package '{repository[:-1]}'" in text
    assert f"oxwhirl/{repository}" in text
    assert "SC2PATH" in text
    assert 0 < text.index("--env-config=battle") < text.index("--env-config=foraging")


@pytest.mark.long
def test_the_command_line_refuses_with_exit_code_2(
    nothing: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config=qmix", "--env-config=sc2", f"--local_results_path={tmp_path / 'r'}"]
    assert omg.cli.train.main(words) == 2
    assert "omg: StarCraft II needs the package 'smac'" in capsys.readouterr().err
    assert omg.cli.train.main([*words, "--runner=parallel", "--batch_size_run=2"]) == 2
    assert "omg: StarCraft II needs the package 'smac'" in capsys.readouterr().err
    assert not list((tmp_path / "r").glob("qmix*"))


def test_a_package_that_misses_another_names_that_one(
    standin: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_packages()
    monkeypatch.setitem(sys.modules, "pysc2", None)
    assert "'smac' is installed but needs the package 'pysc2'" in refusal()


def test_a_package_that_cannot_be_imported_is_reported(
    standin: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    forget_packages()
    (tmp_path / "smac").mkdir()
    (tmp_path / "smac" / "__init__.py").write_text("raise TypeError('Descriptors')")
    monkeypatch.syspath_prepend(tmp_path)
    assert "cannot be imported: TypeError: Descriptors" in refusal()


def test_without_the_game_the_error_says_where_it_was_looked_for(
    standin: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SC2PATH", str(tmp_path / "nowhere"))
    text = refusal(map_name="3m")
    assert f"SC2PATH points to {tmp_path / 'nowhere'}, which does not exist" in text
    assert "--env-config=predator_prey" in text
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    assert f"{tmp_path}, which holds no game" in refusal(map_name="3m")
    monkeypatch.delenv("SC2PATH")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert "SC2PATH is not set" in refusal(map_name="3m")


def test_a_wrong_map_is_answered_with_the_nearest(standin: Any) -> None:  # noqa: F811
    assert "There is no map '3s_vs_6z', did you mean '3s_vs_" in refusal(map_name="3s_vs_6z")
    assert "Choose one of: 3m, 8m, 25m" in refusal(map_name=8)
    text = refusal("smacv2", map_name="10gen_teran")
    assert "did you mean '10gen_terran'?" in text


def test_a_map_that_is_not_installed_is_named(
    standin: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    folder = tmp_path / "StarCraftII" / "Maps"
    (folder / "SMAC_Maps" / "3m.SC2Map").rename(folder / "3M.SC2Map")  # anywhere, in any case
    make_batched("sc2", {"map_name": "3m"}, n_copies=1).close()
    shutil.rmtree(folder)
    assert f"3m.SC2Map lies nowhere in {folder}" in refusal(map_name="3m")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"mapname": "3m"}, "smac has no argument 'mapname', did you mean 'map_name'?"),
        ({"enemies": "seats"}, "enemies=seats is for env=battle; the game has only script"),
        ({"threads": 2}, "threads=2 is for env=battle"),
        ({"difficulty": 10}, "difficulty=10 is not possible"),
        ({"game_version": 4.1}, "would become 4.1"),
        ({"timeout_seconds": -1}, "timeout_seconds=-1 is not possible"),
        ({"timeout_seconds": True}, "timeout_seconds=True is not possible"),
        ({"max_restarts": 1.5}, "max_restarts=1.5 is not possible"),
    ],
)
def test_wrong_arguments_are_refused(
    standin: Any,  # noqa: F811
    args: dict[str, Any],
    words: str,
) -> None:
    assert words in refusal(**{"map_name": "3m", **args})


@pytest.mark.parametrize(("config", "env"), [("battle", "sc2"), ("sc2", "battle")])
def test_a_configuration_moves_between_battle_and_the_game_by_the_environments_name(
    standin: Any,  # noqa: F811
    config: str,
    env: str,
) -> None:
    loaded = load_command_line(["--config=qmix", f"--env-config={config}", f"--env={env}"]).config
    moved = make_batched(env, dict(loaded.env_args), n_copies=1)
    spec = moved.spec
    moved.close()
    assert (spec.n_agents, spec.n_actions, spec.obs_dim, spec.state_dim) == (3, 9, 30, 48)


def test_the_arguments_of_battles_that_the_game_takes_are_their_defaults() -> None:
    assert {name: BattleArgs.model_fields[name].default for name in OF_BATTLE} == OF_BATTLE
    assert BattleArgs.model_fields.keys() - SmacArguments.model_fields.keys() == OF_BATTLE.keys()


def test_a_digit_is_a_difficulty(standin: Any) -> None:  # noqa: F811
    env: Any = make_batched("sc2", {"map_name": "3m", "difficulty": 5}, n_copies=1)
    assert env._envs[0]._game.difficulty == "5"
    env.close()


def test_a_game_version_that_is_not_there_is_bad_input(standin: Any) -> None:  # noqa: F811
    env = make_batched("sc2", {"map_name": "3m", "game_version": "0.0.0"}, n_copies=1)
    with pytest.raises(OmgError, match="could not be started: Unknown game version") as caught:
        env.reset(0)
    assert caught.value.exit_code == 2
    env.close()


def test_flags_that_pysc2_reads_are_parsed(standin: Any) -> None:  # noqa: F811
    from absl import flags

    from omg.envs.sc2.install import SMAC

    flags.FLAGS.unparse_flags()
    import_package(SMAC)
    assert flags.FLAGS.is_parsed()


def test_the_doctor_hears_what_is_missing(nothing: None, tmp_path: Path) -> None:
    findings = {finding.what: finding for finding in describe_installation()}
    assert list(findings) == ["package smac", "package smacv2", "StarCraft II", "SMAC maps"]
    assert not any(finding.found for finding in findings.values())
    assert all(finding.advice for finding in findings.values())
    assert "SC2PATH is not set" in findings["StarCraft II"].detail
    assert findings["SMAC maps"].detail == f"0 of {len(MAPS)}"


def test_the_doctor_hears_what_is_there(standin: Any, tmp_path: Path) -> None:  # noqa: F811
    findings = {finding.what: finding for finding in describe_installation()}
    assert all(finding.found and not finding.advice for finding in findings.values())
    assert "4.10.75689" in findings["StarCraft II"].detail
    (tmp_path / "StarCraftII" / "Maps" / "SMAC_Maps" / "25m.SC2Map").unlink()
    maps = describe_installation()[-1]
    assert not maps.found
    assert "without 25m" in maps.detail


def test_a_folder_with_several_builds_lists_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = make_game_folder(tmp_path / "game")
    (folder / "Versions" / "Base69232").mkdir()
    (folder / "Versions" / "Basement").mkdir()
    monkeypatch.setenv("SC2PATH", str(folder))
    assert "4.6.2.69232, 4.10.75689 in" in describe_installation()[2].detail
