"""What a user types and gets back: exit codes, one sentence on errors, files on success."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn
from typer.testing import CliRunner

import omg.cli.train
from omg.cli.app import app
from omg.cli.errors import report_errors
from omg.config.loader import available
from omg.experiment.output import read_metrics
from omg.experiment.provenance import our_sources
from omg.modules.agents.networks import RNNAgent
from omg.storage.models import load_networks
from omg.storage.sums import write_sums
from omg.types import OmgError, RunFailedError

REPOSITORY = Path(__file__).parents[2]
MAIN = [sys.executable, str(REPOSITORY / "main.py")]
OMG = [sys.executable, "-c", "from omg.cli.app import main; main()"]
KEY = "Foraging-5x5-2p-1f-v3"
# 9 observed features, 6 last actions, 2 seats
INPUT_DIM, HIDDEN_DIM, N_ACTIONS = 17, 64, 6

TINY = (
    *("--config=iql", "--env-config=foraging", f"--env_args.key={KEY}"),
    *("--runner=batch", "--batch_size_run=4", "--torch_threads=1"),
    *("--batch_size=4", "--buffer_size=64", "--test_nepisode=4", "--use_tensorboard=False"),
    *("--test_interval=200", "--runner_log_interval=100", "--learner_log_interval=100"),
)


@dataclass(frozen=True)
class Answer:
    """What a command gave back."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """`python main.py …` in this process."""

    def run(*words: str) -> Answer:
        capsys.readouterr()
        code = omg.cli.train.main(list(words))
        return Answer(code, *capsys.readouterr())

    return run


def shell(*words: str) -> Answer:
    """The `omg` command in this process."""
    result = CliRunner().invoke(app, list(words))
    return Answer(result.exit_code, result.stdout, result.stderr)


def sentence(answer: Answer, code: int = 2) -> str:
    """The one line that a refused command prints."""
    assert answer.code == code, answer
    assert "Traceback" not in answer.err
    lines = answer.err.splitlines()
    assert len(lines) == 1, answer.err
    assert lines[0].startswith("omg: ")
    assert lines[0].endswith((".", "?")) or "Install it: pip install " in lines[0]
    return lines[0].removeprefix("omg: ")


def sacred_run(results: Path, number: int = 1) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        (results / "sacred" / str(number) / "run.json").read_text()
    )
    return content


def runs_in(results: Path) -> list[str]:
    if not results.is_dir():
        return []
    return sorted(path.name for path in results.iterdir() if path.name != "sacred")


def weights(folder: Path) -> dict[str, Tensor]:
    state: dict[str, Tensor] = torch.load(folder / "agent.th", weights_only=True)
    return state


@dataclass(frozen=True)
class Trained:
    """A small run made by `python main.py`, shared by the tests of this file."""

    results: Path
    answer: Answer

    @property
    def folder(self) -> Path:
        return self.results / "tiny"

    @property
    def models(self) -> Path:
        return self.folder / "models"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    results = tmp_path_factory.mktemp("cli") / "results"
    done = subprocess.run(
        [
            *(*MAIN, "with", "t_max=600", "run_name=tiny", "save_model_interval=200"),
            *(*TINY, "keep_models=2", f"--local_results_path={results}"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=results.parent.parent,
        env={**os.environ, "COLUMNS": "40"},  # a narrow window must not break paths
    )
    return Trained(results, Answer(done.returncode, done.stdout, done.stderr))


# --- a run that goes well ----------------------------------------------------------------------


def test_main_py_trains_and_says_where_everything_is(trained: Trained) -> None:
    assert trained.answer.code == 0, trained.answer.err
    assert trained.answer.err == ""
    told = " ".join(trained.answer.out.split())  # lines are broken between words
    assert f"run {trained.folder}" in told
    assert f"sacred id 1, {trained.results / 'sacred' / '1'}" in told
    assert "Test over 4 episodes: team return" in told
    assert f"Everything is in {trained.folder}" in told
    assert runs_in(trained.results) == ["tiny"]


def test_a_run_keeps_its_configuration_and_metrics(trained: Trained) -> None:
    saved = yaml.safe_load((trained.folder / "config.yaml").read_text())
    assert (saved["name"], saved["t_max"], saved["env_args"]) == ("iql", 600, {"key": KEY})
    records = read_metrics(trained.folder / "metrics.jsonl")
    assert records[0]["t_env"] == 0
    assert records[-1]["t_env"] >= 600
    named = {name for record in records for name in record}
    assert {"test_return_mean", "return_mean", "loss", "epsilon", "episodes"} <= named


def test_the_last_the_best_and_the_newest_models_are_kept(trained: Trained) -> None:
    assert {path.name for path in trained.models.iterdir()} == {"last", "best", "400", "600"}
    assert {path.name for path in (trained.models / "last").iterdir()} == {
        "agent.th",
        "opt.th",
        "sha256.json",
        "meta.json",
    }
    last, newest = weights(trained.models / "last"), weights(trained.models / "600")
    assert all(torch.equal(last[key], newest[key]) for key in newest)


def test_saved_weights_have_pymarls_names(trained: Trained) -> None:
    assert list(weights(trained.models / "last")) == list(PyMARLAgent().state_dict())


def test_sacred_records_the_run_as_completed(trained: Trained) -> None:
    run = sacred_run(trained.results)
    assert run["status"] == "COMPLETED"
    assert isinstance(run["result"], float)
    folder = trained.results / "sacred" / "1"
    assert json.loads((folder / "config.json").read_text())["env_args"] == {"key": KEY}
    assert "test_return_mean" in json.loads((folder / "metrics.json").read_text())
    recorded = {Path(name).name for name, _ in run["experiment"]["sources"]}
    assert {path.name for path in our_sources()} <= recorded
    assert {"gru.c", "tiles.h", "default.yaml", "q_learner.py"} <= recorded
    dependencies = {line.partition("==")[0] for line in run["experiment"]["dependencies"]}
    assert {"torch", "numpy", "pydantic", "pyyaml", "sacred", "tensorboard"} <= dependencies
    assert json.loads((folder / "info.json").read_text())["run_folder"] == str(trained.folder)


def test_omg_train_takes_the_same_arguments_and_gives_the_same_run(
    trained: Trained, tmp_path: Path
) -> None:
    answer = shell(
        *("train", *reversed(TINY), f"--local_results_path={tmp_path}"),
        *("with", "t_max=600", "run_name=tiny"),
    )
    assert answer.code == 0, answer
    mine, theirs = weights(tmp_path / "tiny" / "models" / "last"), weights(trained.models / "last")
    assert all(torch.equal(mine[key], theirs[key]) for key in theirs)


def test_two_runs_get_different_sacred_ids_and_folders(call: Any, tmp_path: Path) -> None:
    words = (*TINY, "--t_max=50", "--quiet", f"--local_results_path={tmp_path}")
    assert call(*words).code == 0
    assert call(*words).code == 0
    assert {path.name for path in (tmp_path / "sacred").iterdir()} >= {"1", "2"}
    assert sacred_run(tmp_path, 1)["status"] == sacred_run(tmp_path, 2)["status"] == "COMPLETED"
    assert len(runs_in(tmp_path)) == 2


def test_a_quiet_run_prints_nothing(call: Any, tmp_path: Path) -> None:
    answer = call(
        *TINY, "--t_max=50", "--quiet", "--use_sacred=False", f"--local_results_path={tmp_path}"
    )
    assert answer == Answer(0, "", "")
    assert not (tmp_path / "sacred").exists()


# --- loading -----------------------------------------------------------------------------------


def evaluation(results: Path, checkpoint: Path, *words: str) -> tuple[str, ...]:
    return (
        *(*TINY, "--evaluate", f"--checkpoint_path={checkpoint}", "--use_sacred=False"),
        *("--run_name=eval", f"--local_results_path={results}", *words),
    )


@pytest.mark.parametrize(("load_step", "found"), [(0, "600"), (10, "400"), (550, "600")])
def test_a_saved_run_is_evaluated_at_the_step_asked_for(
    call: Any, trained: Trained, tmp_path: Path, load_step: int, found: str
) -> None:
    answer = call(*evaluation(tmp_path, trained.folder, f"--load_step={load_step}"))
    assert answer.code == 0, answer.err
    assert str(trained.models / found) in answer.out
    assert "Test over 4 episodes: team return" in answer.out
    (record,) = read_metrics(tmp_path / "eval" / "metrics.jsonl")
    assert 0 <= record["test_return_mean"] <= 1
    assert not (tmp_path / "eval" / "models").exists()


class PyMARLAgent(nn.Module):
    """The layers of PyMARL's RNNAgent, made of torch's own modules."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(INPUT_DIM, HIDDEN_DIM)
        self.rnn = nn.GRUCell(HIDDEN_DIM, HIDDEN_DIM)
        self.fc2 = nn.Linear(HIDDEN_DIM, N_ACTIONS)

    def forward(self, inputs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.rnn(torch.relu(self.fc1(inputs)), hidden)
        return self.fc2(hidden), hidden


@pytest.fixture
def pymarl(tmp_path: Path) -> tuple[Path, PyMARLAgent]:
    """A checkpoint as PyMARL writes it: <path>/<step>/agent.th, and no meta.json."""
    torch.manual_seed(3)
    agent = PyMARLAgent()
    folder = tmp_path / "pymarl" / "2050"
    folder.mkdir(parents=True)
    torch.save(agent.state_dict(), folder / "agent.th")
    return folder, agent


def test_an_agent_of_pymarl_is_evaluated_and_trained_on(
    call: Any, pymarl: tuple[Path, PyMARLAgent], tmp_path: Path
) -> None:
    folder, agent = pymarl
    answer = call(*evaluation(tmp_path, folder.parent))
    assert answer.code == 0, answer.err
    assert str(folder) in answer.out
    words = ("--t_max=4", f"--checkpoint_path={folder}", "--run_name=on", "--use_sacred=False")
    assert call(*TINY, *words, f"--local_results_path={tmp_path}").code == 0
    kept = weights(tmp_path / "on" / "models" / "last")
    for key, value in agent.state_dict().items():  # no episode ended yet, so no update
        assert torch.equal(kept[key], value)


def test_an_agent_of_pymarl_computes_the_same_values_here(
    pymarl: tuple[Path, PyMARLAgent],
) -> None:
    folder, agent = pymarl
    ours = RNNAgent(input_dim=INPUT_DIM, n_actions=N_ACTIONS, hidden_dim=HIDDEN_DIM)
    load_networks(folder, {"agent": ours})
    hidden = carry = torch.zeros(5, HIDDEN_DIM)
    for inputs in torch.randn(4, 5, INPUT_DIM):
        expected, hidden = agent(inputs, hidden)
        outputs, carry = ours.step(inputs, carry)
        torch.testing.assert_close(outputs, expected)


def test_replays_of_a_saved_run_are_written(call: Any, trained: Trained, tmp_path: Path) -> None:
    words = ("--save_replay", "--replay_episodes=2")
    answer = call(*evaluation(tmp_path, trained.folder, *words))
    assert answer.code == 0, answer.err
    files = sorted((tmp_path / "eval" / "replays").iterdir())
    for episode in ("episode_0", "episode_1"):
        own = [path for path in files if path.name.startswith(episode)]
        assert own
        assert all(path.stat().st_size > 500 for path in own)
    for path in files:
        assert f"Replay: {path}" in answer.out
    assert not any(path.name.startswith("episode_2") for path in files)


# --- interrupted and resumed -------------------------------------------------------------------


def wait_for_training(metrics: Path, process: subprocess.Popen[str], t_env: int) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.is_file() and any(r["t_env"] >= t_env for r in read_metrics(metrics)):
            return
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"the run did not reach step {t_env}: {process.communicate()}")


def without_clock(metrics: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k != "wall_s"} for r in read_metrics(metrics)]


def test_an_interrupted_run_is_marked_and_resumes_exactly(call: Any, tmp_path: Path) -> None:
    words = (*TINY, f"--local_results_path={tmp_path}", "--save_model_interval=10000000")
    stopped = tmp_path / "stopped"
    with subprocess.Popen(
        [*OMG, "train", *words, "--run_name=stopped", "--t_max=10000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_training(stopped / "metrics.jsonl", process, 400)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert sentence(Answer(process.returncode, out, err), 130) == (
        f"interrupted. Continue with --resume={stopped} or the same command and --resume."
    )
    assert sacred_run(tmp_path, 1)["status"] == "INTERRUPTED"
    (state,) = (stopped / "resume").iterdir()
    end = int(state.name) + 300

    answer = call(*words, "--resume", "--run_name=stopped", f"--t_max={end}")
    assert answer.code == 0, answer.err
    assert f"Continuing at step {int(state.name):,}." in answer.out
    assert sacred_run(tmp_path, 2)["status"] == "COMPLETED"
    assert call(*words, "--run_name=straight", f"--t_max={end}").code == 0
    resumed, straight = (weights(tmp_path / n / "models" / "last") for n in ("stopped", "straight"))
    assert all(torch.equal(resumed[key], straight[key]) for key in straight)
    assert without_clock(stopped / "metrics.jsonl") == without_clock(
        tmp_path / "straight" / "metrics.jsonl"
    )


@pytest.fixture
def copied(trained: Trained, tmp_path: Path) -> Path:
    """A copy of the trained run, to be damaged or continued."""
    return Path(shutil.copytree(trained.folder, tmp_path / "results" / "tiny"))


def test_a_finished_run_continues_only_when_t_max_is_raised(call: Any, copied: Path) -> None:
    answer = call(f"--resume={copied}", "--use_sacred=False")
    assert answer.code == 0, answer.err
    assert "had reached t_max=600 before. Raise t_max" in answer.out
    answer = call(f"--resume={copied}", "--use_sacred=False", "--t_max=700")
    assert answer.code == 0, answer.err
    assert read_metrics(copied / "metrics.jsonl")[-1]["t_env"] >= 700


def test_a_run_that_began_with_a_checkpoint_can_be_resumed_without_it(
    call: Any, copied: Path
) -> None:
    saved = yaml.safe_load((copied / "config.yaml").read_text())
    (copied / "config.yaml").write_text(yaml.safe_dump({**saved, "checkpoint_path": "/gone"}))
    answer = call(f"--resume={copied}", "--use_sacred=False", "--t_max=610")
    assert answer.code == 0, answer.err


def test_resume_refuses_what_would_change_the_result(call: Any, copied: Path) -> None:
    text = sentence(call(f"--resume={copied}", "--lr=0.1"))
    assert f"{copied} was started with lr=0.0005, not 0.1" in text


def test_resume_without_anything_to_resume_is_refused(call: Any, tmp_path: Path) -> None:
    root = f"--local_results_path={tmp_path}"
    assert "has a resume state" in sentence(call(*TINY, root, "--resume"))
    assert "There is no run 'x'" in sentence(call(*TINY, root, "--resume", "--run_name=x"))
    assert "is not the folder of a run" in sentence(call(*TINY, root, f"--resume={tmp_path}"))


# --- bad input ---------------------------------------------------------------------------------

BAD_INPUT = {
    "unknown key": (["--bach_size=3"], "Unknown key 'bach_size' (from --bach_size=3), did you"),
    "bad value": (["--lr=fast"], "lr='fast' (from --lr=fast) is not possible. Expected: a number"),
    "negative t_max": (["--t_max=-1"], "t_max=-1 (from --t_max=-1) is not possible. Expected: gr"),
    "bare number": (["--lr"], "lr=True (from --lr) is not possible. Expected: a number."),
    "contradiction": (["--batch_size=99"], "batch_size=99 episodes cannot be sampled"),
    "stray word": (["qmix"], "'qmix' is not understood. Write --config=<alg>"),
    "two algorithms": (["--config=vdn"], "--config is given twice ('iql' and 'vdn')"),
    "environment": (["--env=forging"], "There is no environment called 'forging', did you mean"),
    "map": (["--env_args.key=Foraging-x"], "'Foraging-x' is not a foraging id. Write it as"),
    "argument": (["--env_args.siht=1"], "Foraging has no argument 'siht', did you mean 'sight'?"),
    "runner": (["--runner=batched"], "There is no runner called 'batched', did you mean 'batch'"),
    "mixer": (["--mixer=qmux", "--common_reward"], "did you mean 'qmix'?"),
    "learner": (["--learner=q_lerner"], "did you mean 'q_learner'?"),
    "controller": (["--mac=basic"], "There is no mac called 'basic'"),
    "network": (["--policy_model=rn"], "did you mean 'rnn'?"),
    "selector": (["--action_selector=epsilon_gredy"], "did you mean 'epsilon_greedy'?"),
    "no model": (["--evaluate"], "evaluate needs a model. Give checkpoint_path="),
    "no such model": (["--evaluate", "--checkpoint_path=/no"], "checkpoint_path=/no is not a fol"),
}


@pytest.mark.parametrize(("words", "start"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence_and_leaves_no_run(
    call: Any, tmp_path: Path, words: list[str], start: str
) -> None:
    answer = call(*TINY, f"--local_results_path={tmp_path}", "--run_name=x", *words)
    assert start in sentence(answer)
    assert answer.out == ""
    assert runs_in(tmp_path) == []


@pytest.mark.parametrize("option", ["--config", "--env-config"])
def test_an_unknown_configuration_lists_those_that_exist(call: Any, option: str) -> None:
    text = sentence(call(f"{option}=nothing"))
    assert text.startswith(f"{option}=nothing: there is no such configuration. Those that exist: ")
    assert ", ".join(available("algs" if option == "--config" else "envs")) in text


def test_a_results_folder_that_cannot_be_written_is_refused(call: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = sentence(call(*TINY, f"--local_results_path={tmp_path}/file/results"))
    assert "cannot be written to: Not a directory. Choose a folder you own" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_results_folder_of_somebody_else_is_refused(call: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "Permission denied" in sentence(call(*TINY, f"--local_results_path={tmp_path}/r"))


def test_a_run_name_that_exists_is_refused_and_the_run_kept(call: Any, copied: Path) -> None:
    before = sorted(copied.rglob("*"))
    answer = call(*TINY, "--run_name=tiny", f"--local_results_path={copied.parent}")
    assert "A run called 'tiny' exists" in sentence(answer)
    assert sorted(copied.rglob("*")) == before


def test_a_checkpoint_of_another_environment_is_refused(
    call: Any, copied: Path, tmp_path: Path
) -> None:
    text = sentence(call(*evaluation(tmp_path, copied, "--env_args.key=Foraging-8x8-2p-3f-v3")))
    assert f"{copied}/models/600 does not fit this run: obs_dim=9 there, 15 here" in text
    assert f"env_args={{'key': '{KEY}'}}; use the same" in text
    meta = copied / "models" / "600" / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "env": "sc2"}))
    write_sums(meta.parent)
    text = sentence(call(*evaluation(tmp_path, copied)))
    assert "was trained on env=sc2, this run uses env=foraging." in text


def test_a_checkpoint_with_another_obs_is_state_says_what_to_do(
    call: Any, trained: Trained, tmp_path: Path
) -> None:
    text = sentence(call(*evaluation(tmp_path, trained.folder, "--obs_is_state")))
    assert f"{trained.models / '600'} does not fit this run" in text
    assert "obs_is_state=False there, True here" in text
    assert "Run with the settings it was trained with (obs_is_state=False)" in text


@pytest.mark.parametrize("n_bytes", [0, 10, 5000])
def test_a_truncated_agent_file_is_refused(
    call: Any, copied: Path, tmp_path: Path, n_bytes: int
) -> None:
    path = copied / "models" / "600" / "agent.th"
    path.write_bytes(path.read_bytes()[:n_bytes])
    text = sentence(call(*evaluation(tmp_path, copied)))
    assert text == f"{path} is damaged or was changed since it was saved. Use another checkpoint."
    (path.parent / "sha256.json").unlink()  # as an older version would have left it
    text = sentence(call(*evaluation(tmp_path, copied)))
    reason = "is cut off, damaged or not a file of weights" if n_bytes else "is empty"
    assert text == f"{path} {reason}. Use another checkpoint, e.g. another load_step."


def test_debug_shows_where_a_problem_arose(call: Any) -> None:
    for words in (["--debug"], ["--debug=true"], ["with", "debug=True"]):
        answer = call("--config=nothing", *words)
        assert answer.code == 2
        assert answer.err.startswith("Traceback")
        assert answer.err.splitlines()[-1].startswith("omg: --config=nothing")
    answer = shell("config", "show", "--gama=1", "--debug")
    assert answer.code == 2
    assert "Traceback" in answer.err


def test_no_words_and_help_print_how_to_use_it(call: Any) -> None:
    nothing, asked = call(), call("--help")
    assert (nothing.code, asked.code) == (2, 0)
    assert nothing.err == asked.out
    assert asked.out.startswith("Usage: omg train --config=<alg> --env-config=<env>")
    assert shell("train", "--help").out == asked.out
    assert shell("train").code == 2


# --- failures while running --------------------------------------------------------------------


@contextmanager
def files_limited_to(n_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_fails_the_run_in_one_sentence(call: Any, tmp_path: Path) -> None:
    with files_limited_to(100_000):  # less than an agent.th, more than Sacred writes before
        answer = call(*TINY, "--run_name=x", f"--local_results_path={tmp_path}", "--t_max=300")
    text = sentence(answer, 1)
    assert f"{tmp_path}/x/models/best could not be written: File too large. Free space" in text
    assert sacred_run(tmp_path)["status"] == "FAILED"
    assert not list((tmp_path / "x").rglob("*.part*"))


@pytest.mark.parametrize(
    ("error", "code", "start"),
    [
        (OmgError("No."), 2, "omg: No."),
        (RunFailedError("Gone."), 1, "omg: Gone."),
        (KeyboardInterrupt(), 130, "omg: interrupted."),
        (ZeroDivisionError("division by zero"), 1, "omg: ZeroDivisionError: division by zero."),
        (
            RuntimeError(
                "alloc_cpu.cpp: can't allocate memory: you tried to allocate 43200000000 bytes"
            ),
            1,
            "omg: there is not enough memory (40.2 GiB at once, and this process can have ",
        ),
    ],
)
def test_every_kind_of_failure_has_its_exit_code(
    error: BaseException, code: int, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    assert report_errors(False, fail) == code
    shown = capsys.readouterr().err
    assert shown.startswith(start)
    assert len(shown.splitlines()) == 1
    assert report_errors(False, lambda: None) == 0


# --- MongoDB -----------------------------------------------------------------------------------


def test_a_mongo_url_without_pymongo_names_the_extra(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pymongo", None)
    words = ("--mongo_url=mongodb://nowhere", f"--local_results_path={tmp_path}")
    text = sentence(call(*TINY, *words))
    assert text.endswith("needs the package 'pymongo'. Install it: pip install 'omg-marl[mongo]'")
    assert runs_in(tmp_path) == []


@pytest.mark.parametrize("fails_at", ["connecting", "asking"])
def test_a_database_that_does_not_answer_is_named_without_its_password(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    class PyMongoError(Exception):
        pass

    def refuse(*_: Any) -> None:
        raise PyMongoError("nowhere:1: connection refused (configured timeouts: 5000ms), more")

    def client(url: str, **_: Any) -> Any:
        assert url == "mongodb://me:secret@nowhere:1"
        if fails_at == "connecting":
            refuse()
        return SimpleNamespace(admin=SimpleNamespace(command=refuse))

    fake = ModuleType("pymongo")
    fake.__dict__.update(MongoClient=client, errors=SimpleNamespace(PyMongoError=PyMongoError))
    monkeypatch.setitem(sys.modules, "pymongo", fake)
    words = ("--mongo_url=mongodb://me:secret@nowhere:1", f"--local_results_path={tmp_path}")
    assert sentence(call(*TINY, *words)) == (
        "mongo_url=mongodb://me:***@nowhere:1 does not answer: nowhere:1: connection refused. "
        "Check the URL, or leave it out to record to files only."
    )
    assert runs_in(tmp_path) == []


# --- the other commands ------------------------------------------------------------------------


def table_rows(text: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows if row}


def test_config_show_prints_every_value_with_its_origin() -> None:
    answer = shell(
        *("config", "show", "--env-config=foraging", "--config=qmix", "--seed=7"),
        *("with", "env_args.sight=2", "label=[red]a"),
    )
    assert answer.code == 0, answer.err
    rows = table_rows(answer.out)
    assert rows["rnn_hidden_dim"] == ["64", "config/default.yaml"]
    assert rows["gamma"] == ["0.95", "config/envs/foraging.yaml"]
    assert rows["env_args.key"] == ["'Foraging-8x8-2p-3f-v3'", "config/envs/foraging.yaml"]
    assert rows["env_args.sight"] == ["2", "with env_args.sight=2"]
    assert rows["mixer"] == ["'qmix'", "config/algs/qmix.yaml"]
    assert rows["seed"] == ["7", "--seed=7"]
    assert rows["label"] == ["'[red]a'", "with label=[red]a"]
    assert rows["mlp_hidden_dims"] == ["[64, 64]", "config/default.yaml"]


def test_config_show_refuses_like_train() -> None:
    text = sentence(shell("config", "show", "--gama=1"))
    assert text == "Unknown key 'gama' (from --gama=1), did you mean 'gamma'?"


def test_config_list_names_all_shipped_configurations() -> None:
    answer = shell("config", "list")
    assert answer.code == 0
    for name in (*available("algs"), *available("envs")):
        assert name in answer.out


@pytest.mark.parametrize(("mebibytes", "told"), [(600, True), (4000, False)])
def test_too_little_memory_for_torch_is_told_before_torch_is_loaded(
    mebibytes: int, told: bool
) -> None:
    limited = f"ulimit -v {mebibytes * 1024}; exec {sys.executable} -m omg algorithms"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True)
    assert (done.returncode == 1) == told
    assert ("omg: this process may have 600 MiB (ulimit -v)." in done.stderr) == told


def test_training_without_an_environment_says_which_there_are(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["train", "--config=qmix", f"--local_results_path={tmp_path}"])
    assert done.exit_code == 2
    assert "No environment is named. Add --env-config=<name> with one of: battle," in done.output
    assert not list(tmp_path.iterdir())


def test_a_space_after_config_does_in_every_command_that_takes_it() -> None:
    for words in (
        ["config", "show", "--config", "qmix", "--env-config", "foraging"],
        ["train", "print_config", "--config", "qmix", "--env-config", "foraging"],
        ["sweep", "--config", "qmix", "--env-config", "foraging", "lr=grid:0.1,0.2", "--dry-run"],
        ["pipeline", "--env-config", "foraging", "--dry-run"],
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert "qmix" in done.output or words[0] == "pipeline"
