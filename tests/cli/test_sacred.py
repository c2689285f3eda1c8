"""Sacred as its users know it, beside our own command line."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from omg.cli.app import app
from omg.cli.train import main
from omg.experiment import checks
from omg.experiment import sacred as recorded
from omg.experiment.output import read_metrics

TINY = (
    *(
        "--config=iql",
        "--env-config=two_step",
        "--t_max=64",
        "--batch_size=4",
        "--rnn_hidden_dim=8",
    ),
    *("--batch_size_run=2", "--test_interval=32", "--runner_log_interval=8", "--run_name=run"),
    *("--learner_log_interval=8", "--use_tensorboard=False"),
)
FAILING = """
import my_helper
from omg.envs.toys import TwoStepEnv


class Game(TwoStepEnv):
    steps = 0

    def step(self, actions):
        Game.steps += 1
        if Game.steps == 1:
            print("the game says hello")
        if Game.steps > 40:
            raise RuntimeError("the game broke")
        return super().step(actions)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_game(here: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A game of the user's own that prints, and fails after 40 steps."""
    (here / "my_game.py").write_text(FAILING)
    (here / "my_helper.py").write_text("# imported by the game\n")
    monkeypatch.setattr(sys, "path", [str(here), *sys.path])
    monkeypatch.setenv("OMG_TRUST", "")
    for name in ("my_game", "my_helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return ("--env=my_game:Game", "with", "env_args={}")


def record(folder: Path, file: str = "run.json") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / file).read_text())
    return content


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(words) == 2
    return capsys.readouterr().err.removeprefix("omg: ").strip()


def test_a_run_is_recorded_where_and_how_the_flags_say(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("-F", "runs", "-c", "two words", "-n", "mine", "-i", "a7", "-b", "0.5", "-p")
    assert main([*TINY, *words, "with", "seed=3"]) == 0
    printed = capsys.readouterr().out
    folder = here / "runs" / "a7"
    run = record(folder)
    assert run["status"] == "COMPLETED"
    assert run["experiment"]["name"] == "mine"
    assert run["meta"]["comment"] == "two words"
    assert run["meta"]["command"] == "my_main"
    assert run["meta"]["config_updates"]["seed"] == 3
    assert run["meta"]["options"]["--file_storage"] == "runs"
    assert run["meta"]["options"]["--print-config"] is True
    assert not (here / "results" / "sacred").exists()
    shown, ruler, rest = printed.partition("-" * 79)
    assert ruler
    assert "Configuration (" in shown
    assert "\x1b[34m  seed = 3" in shown
    assert "id a7, runs/a7" in rest
    assert (folder / "cout.txt").read_text() == rest.partition("Test over")[0].lstrip("\n")
    assert record(folder, "config.json")["name"] == "iql", "-n names the record only"


def test_info_json_holds_every_series_as_pymarl_writes_it(here: Path) -> None:
    assert main([*TINY, "--quiet"]) == 0
    info = record(here / "results" / "sacred" / "1", "info.json")
    slow: dict[str, list[Any]] = {}
    for line in read_metrics(here / "results" / "run" / "metrics.jsonl"):
        step = line.pop("t_env")
        line.pop("wall_s")
        for key, value in line.items():
            slow.setdefault(key, []).append(value)
            slow.setdefault(f"{key}_T", []).append(step)
    assert len(slow["loss"]) > 2
    assert len(slow["test_return_mean"]) > 1
    assert info.pop("run_folder") == "results/run"
    assert info == slow


def test_all_our_sources_and_the_packages_we_import_are_recorded(
    here: Path, own_game: tuple[str, ...]
) -> None:
    assert main([*TINY, "--quiet", *own_game]) == 1
    run = record(here / "results" / "sacred" / "1")
    sources = {Path(name).name for name, _ in run["experiment"]["sources"]}
    package = Path(recorded.__file__).parents[1]
    for kind in ("*.py", "*.c", "*.h", "*.yaml"):
        assert {path.name for path in package.rglob(kind)} <= sources
    assert {"my_game.py", "my_helper.py"} <= sources
    names = {text.partition("==")[0].lower() for text in run["experiment"]["dependencies"]}
    assert {"torch", "numpy", "pyyaml", "pydantic", "rich", "sacred", "typer", "omg-marl"} <= names
    assert "omg" not in names


def test_a_failed_run_keeps_what_it_printed(here: Path, own_game: tuple[str, ...]) -> None:
    assert main([*TINY, *own_game]) == 1
    folder = here / "results" / "sacred" / "1"
    assert record(folder)["status"] == "FAILED"
    text = (folder / "cout.txt").read_text()
    assert text.startswith("Training iql on my_game:Game")
    assert "the game says hello\n" in text


@pytest.mark.parametrize("mode", ["no", "sys"])
def test_sacreds_own_ways_to_capture_can_be_chosen(here: Path, mode: str) -> None:
    assert main([*TINY, "-C", mode]) == 0
    text = (here / "results" / "sacred" / "1" / "cout.txt").read_text()
    assert ("Training iql" in text) is (mode == "sys")


def test_unobserved_keeps_no_record(here: Path) -> None:
    assert main([*TINY, "-u", "--quiet"]) == 0
    assert not (here / "results" / "sacred").exists()
    assert (here / "results" / "run").is_dir()


def test_the_debugger_opens_where_a_run_failed(
    here: Path,
    own_game: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("p Game.steps\nq\n"))
    assert main([*TINY, "--quiet", "-D", *own_game]) == 1
    answer = capsys.readouterr()
    assert "(Pdb) 41" in answer.out
    assert "RuntimeError: the game broke" in answer.err


def test_the_log_level_shows_what_sacred_logs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import logging

    logger = logging.getLogger("omg")
    before = logger.handlers, logger.level, logging.getLogger("omg.sacred").level
    logging.getLogger("omg.sacred").setLevel(logging.NOTSET)
    try:
        assert main([*TINY, "--quiet", "-l", "info"]) == 0
    finally:
        logger.handlers, level, own = before
        logger.setLevel(level)
        logging.getLogger("omg.sacred").setLevel(own)
    assert 'Started run with ID "1"' in capsys.readouterr().err


def test_a_mongo_db_is_named_as_in_sacred(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def client(url: str, **_: Any) -> Any:
        asked.append(url)
        return SimpleNamespace(admin=SimpleNamespace(command=lambda _: None))

    class Observer(recorded_base()):  # type: ignore[misc]
        priority = 30

        def __init__(self, **settings: Any) -> None:
            asked.append({k: v for k, v in settings.items() if k != "client"})

    fake = ModuleType("pymongo")
    fake.__dict__.update(MongoClient=client, errors=SimpleNamespace(PyMongoError=ValueError))
    monkeypatch.setitem(sys.modules, "pymongo", fake)
    monkeypatch.setattr("sacred.observers.MongoObserver", Observer)
    assert main([*TINY, "-m", "some.host:27018:runs.mine"]) == 0
    assert asked == ["some.host:27018", {"db_name": "runs", "collection": "mine"}]
    assert "some.host:27018, database runs" in capsys.readouterr().out


def recorded_base() -> Any:
    return pytest.importorskip("sacred.observers").RunObserver


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-u -c x", "--comment is about Sacred's record, and use_sacred=False keeps none"),
        ("--use_sacred=False -F x", "--file_storage is about Sacred's record"),
        ("-C maybe", "--capture=maybe is not possible. Expected: no, sys or fd."),
        ("-b 0", "--beat-interval=0 is not possible"),
        ("-b soon", "--beat-interval=soon is not possible"),
        ("-i ../x", "--id=../x cannot be the name of a folder"),
        ("-l LOUD", "--loglevel=LOUD is not possible"),
        ("-m a.b:c.d:e", "--mongo_db=a.b:c.d:e is not understood"),
        ("-m db --mongo_url=mongodb://x", "both name a MongoDB"),
        ("print_config -F x", "print_config runs nothing, so --file_storage has no effect"),
        ("save_config with config_filename=a.txt", "ends in neither .json nor .yaml"),
        ("print_config with gama=1", "Unknown key 'gama' (from with gama=1), did you mean"),
        ("with config_filename=a.json", "Unknown key 'config_filename'"),
        ("--sql=sqlite:///x.db", "Install it: pip install sqlalchemy, or record otherwise"),
    ],
)
def test_flags_that_cannot_work_are_refused_before_a_run(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    said: str,
) -> None:
    # As if SQLAlchemy were not installed, which comes with Optuna.
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert said in refusal(capsys, *TINY, *words.split())
    assert not (here / "results" / "run").exists()


def test_an_id_that_exists_is_not_overwritten(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "runs" / "7").mkdir(parents=True)
    assert "runs/7 exists already" in refusal(capsys, *TINY, "-F", "runs", "-i", "7")
    assert not list((here / "runs" / "7").iterdir())


@pytest.mark.parametrize(("commit", "said"), [("", "are not under git"), ("ab+changes", "differ")])
def test_changed_sources_are_refused_where_they_must_be_clean(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    commit: str,
    said: str,
) -> None:
    monkeypatch.setattr(checks, "source_commit", lambda: commit)
    assert said in refusal(capsys, *TINY, "-e")


def test_clean_sources_train_and_their_commit_is_recorded(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (recorded, checks):
        monkeypatch.setattr(module, "source_commit", lambda: "ab12")
    assert main([*TINY, "--quiet", "-e"]) == 0
    (found,) = record(here / "results" / "sacred" / "1")["experiment"]["repositories"]
    assert (found["commit"], found["dirty"]) == ("ab12", False)


@pytest.mark.parametrize("file", ["config.json", "mine.yaml"])
def test_a_saved_configuration_is_the_one_of_the_words_and_can_be_used(
    here: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    asked = ["with", f"config_filename={file}"] if file != "config.json" else []
    assert main(["save_config", *TINY, *asked]) == 0
    assert f"Saved {file}." in capsys.readouterr().out
    assert not (here / "results").exists()
    assert main(["with", file, "--quiet"]) == 0
    ran = yaml.safe_load((here / "results" / "run" / "config.yaml").read_text())
    read = json.loads if file.endswith("json") else yaml.safe_load
    assert ran == {**read((here / file).read_text()), "quiet": True}


def test_the_commands_work_with_omg_train_as_well() -> None:
    def shell(*words: str) -> str:
        result = CliRunner().invoke(app, ["train", *words])
        assert result.exit_code == 0, result.output
        return result.stdout

    shown = shell("print_config", *TINY, "with", "env_args.sight=2")
    assert "\x1b[34m  t_max = 64" in shown
    assert "\x1b[32m    sight = 2" in shown
    assert "  gamma = 0.99" in shown
    shown = shell("print_dependencies")
    assert "torch " in shown
    assert "sacred.py" in shown
    assert "Version Control" in shown
    shown = shell("print_named_configs")
    assert "qmix_beta" in shown
    assert "two_step" in shown
    for words in (["--help"], ["-h"], ["help"]):
        shown = shell(*words)
        assert "--file_storage=…" in shown
        assert "print_dependencies" in shown
        assert "--queue" not in shown


def test_a_progress_bar_is_recorded_as_it_was_last_seen() -> None:
    printed = recorded._Printed()
    for text in ("head\n", "\x1b[?25l\r\x1b[2K\x1b[1m10 %\x1b[0m", "\r\x1b[2K", "a line\n20 %"):
        printed.add(text)
    assert printed.text == "head\na line\n"
    printed.add("\r\x1b[2K100 %\r\n\x1b[?25h")
    assert printed.text == "head\na line\n100 %\n"
