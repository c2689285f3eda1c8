"""`omg envs …`: what a user types and gets back."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import omg.cli.train
from omg.catalogue import choose
from omg.catalogue.play import play
from omg.cli.app import app
from omg.components.action_selectors import SeedTree
from omg.config.loader import available, load_command_line
from omg.envs.foraging import ForagingEnv
from omg.envs.registry import ENVS
from omg.opponents.pool import OpponentPool
from omg.opponents.scripted_foraging import MEMORY_DIM, act_together, board_of, make_script

KEY = "Foraging-5x5-2p-1f-v3"
DOCS = Path(__file__).parents[2] / "docs" / "environments"

# A game that counts down; its picture is a grey that no other step has.
COUNTDOWN = '''
import numpy as np

class Countdown:
    """Ends after `start` steps."""

    def __init__(self, start=4, limit=10):
        self.start, self.limit = start, limit

    def reset(self, seed=None):
        self.left = self.start
        return self.get_obs(), self.get_state()

    def step(self, actions):
        self.left -= 1
        return float(sum(actions)), self.left == 0, {}

    def get_obs(self):
        return [[float(self.left)]] * 2

    def get_state(self):
        return [float(self.left)]

    def get_avail_actions(self):
        return [[1, 1, 0], [0, 1, 1]]

    def get_env_info(self):
        return dict(n_agents=2, n_actions=3, obs_shape=1, state_shape=1, episode_limit=self.limit)

    def close(self):
        pass

class Drawn(Countdown):
    def render(self):
        return np.full((20, 30, 3), 40 * self.left, np.uint8)
'''


@dataclass(frozen=True)
class Answer:
    """What a command gave back."""

    code: int
    out: str
    err: str


def envs(*words: str | Path) -> Answer:
    result = CliRunner().invoke(app, ["envs", *map(str, words)])
    return Answer(result.exit_code, result.stdout, result.stderr)


def done(*words: str | Path) -> str:
    answer = envs(*words)
    assert answer.code == 0, answer
    return answer.out


def refused(*words: str | Path) -> str:
    """The one line that a refused command prints."""
    answer = envs(*words)
    assert answer.code == 2, answer
    (line,) = answer.err.splitlines()
    assert line.startswith("omg: ")
    return line.removeprefix("omg: ")


def rows(text: str) -> list[list[str]]:
    """The rows of all tables, without their heads."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]


def row(text: str, first: str) -> list[str]:
    """The cells behind the first one."""
    return next(cells[1:] for cells in rows(text) if cells[:1] == [first])


def fact(text: str, name: str) -> str:
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return line.removeprefix(name).strip()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own that holds a module `countdown`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "countdown.py").write_text(COUNTDOWN)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("countdown", None)


# --- list ----------------------------------------------------------------------------------------


def test_list_has_every_configuration_and_says_what_it_is() -> None:
    told = done("list")
    for name in available("envs"):
        env, package, about = row(told, name)
        assert env in list(ENVS)
        assert package
        assert len(about) > 20
        assert "docs/" not in about
    assert row(told, "foraging_coop")[:2] == ["foraging", "built in"]


def test_list_names_a_missing_package_and_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.setitem(sys.modules, "rware", None)
    told = done("list")
    assert row(told, "pettingzoo")[1] == "pettingzoo missing (pip install 'omg-marl[mpe]')"
    assert row(told, "rware") == ["-", "not installed: pip install 'omg-marl[rware]'"]


def test_list_for_programs_has_every_key_of_the_installed_packages() -> None:
    content = json.loads(done("list", "--json"))
    assert [e["env_config"] for e in content["environments"]] == available("envs")
    packages = {package["package"]: package for package in content["packages"]}
    assert packages["mpe2"]["env_config"] == "pettingzoo"
    assert "mpe2:simple_spread_v3" in packages["mpe2"]["keys"]
    assert packages["lbforaging"]["env_config"] == "gymnasium"
    assert "lbforaging:Foraging-8x8-2p-3f-v3" in packages["lbforaging"]["keys"]


def test_the_index_of_the_docs_names_every_configuration_and_every_page() -> None:
    text = (DOCS / "README.md").read_text()
    for name in available("envs"):
        assert f"`{name}`" in text, name
    for page in DOCS.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in text, page.name


# --- info ----------------------------------------------------------------------------------------


def test_info_tells_sizes_seats_scripts_and_arguments_with_their_origin() -> None:
    told = done("info", "predator_prey", "with", "n_predators=2", "env_args.max_cycles=9")
    assert fact(told, "agents") == "3"
    assert fact(told, "actions") == "5"
    assert fact(told, "limit").startswith("9 steps")
    assert fact(told, "rewards") == "one per agent (common_reward=false)"
    assert fact(told, "statistics") == "collisions, survival"
    assert fact(told, "snapshots").startswith("exact")
    assert fact(told, "pictures").startswith("yes")
    assert row(told, "predator") == ["0–1", "14"]
    assert row(told, "prey") == ["2", "12 (+2 zeros)"]
    assert row(told, "flee")[0] == "prey"
    assert row(told, "n_predators") == ["2", "with n_predators=2"]
    assert row(told, "n_prey") == ["1", "config/envs/predator_prey.yaml"]
    assert row(told, "shaped_reward") == ["False", "default of predator_prey"]


def test_info_shows_what_a_foraging_key_stands_for() -> None:
    key = "Foraging-2s-6x7-3p-2f-coop-v3"
    told = done("info", "foraging", f"--key={key}", "with", "penalty=0.5")
    assert row(told, "sight") == ["2", f"env_args.key={key}"]
    assert row(told, "field_size") == ["(6, 7)", f"env_args.key={key}"]
    assert row(told, "penalty") == ["0.5", "with penalty=0.5"]
    assert row(told, "normalize_reward") == ["True", "default of foraging"]


def test_info_takes_a_class_of_ones_own() -> None:
    told = done("info", "countdown:Countdown", "with", "start=2")
    assert fact(told, "environment") == "Countdown (env=countdown:Countdown)"
    assert fact(told, "rewards").startswith("shared")
    assert fact(told, "pictures") == "none: Countdown has no method render()."
    assert row(told, "limit") == ["10", "default of Countdown"]
    assert fact(done("info", "countdown:Drawn"), "pictures").startswith("yes")


@pytest.mark.parametrize(
    ("words", "algorithm"),
    [
        (("foraging_coop", "with", "sight=2", "min_player_level=(1, 2)"), "qmix"),
        (("predator_prey", "--n_prey=2"), "iql"),
        (("mpe2:simple_spread_v3", "with", "N=2"), "qmix"),
        (("mpe2:simple_adversary_v3",), "iql"),
        (("lbforaging:Foraging-5x5-2p-1f-v3",), "qmix"),
        (("countdown:Countdown", "--start=3"), "qmix"),
    ],
)
def test_the_command_that_info_gives_trains_on_the_same_game(
    words: tuple[str, ...], algorithm: str
) -> None:
    content = json.loads(done("info", *words, "--json"))
    command = shlex.split(content["train"])
    assert command[:3] == ["omg", "train", f"--config={algorithm}"]
    config = load_command_line(command[2:]).config
    chosen = choose(words[0], words[1:])
    assert (config.env, dict(config.env_args)) == (chosen.env, chosen.args)
    # Opposing roles make no team whose rewards could be summed.
    assert config.common_reward == (algorithm == "qmix")


# --- check ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("foraging", "with", f"key={KEY}"),
        ("foraging_coop", "--sight=2"),
        ("pettingzoo", "with", "key=mpe2:simple_push_v3", "max_cycles=6"),
        ("countdown:Countdown",),
    ],
)
def test_check_passes_what_keeps_the_contract(words: tuple[str, ...]) -> None:
    told = done("check", *words)
    assert row(told, "statistics")[0] == "ok"
    assert "FAILED" not in told


def test_check_uses_the_arguments_and_the_configuration_named() -> None:
    title = done("check", "foraging_coop", "--sight=2").splitlines()[0]
    assert "'min_player_level': 3" in title
    assert "'sight': 2" in title


def test_check_fails_what_breaks_the_contract(folder: Path) -> None:
    broken = COUNTDOWN.replace("[[1, 1, 0], [0, 1, 1]]", "[[1, 1, 0], [0, 0, 0]]")
    (folder / "countdown.py").write_text(broken)
    answer = envs("check", "countdown:Countdown")
    assert answer.code == 2
    assert "FAILED" in answer.out
    assert "countdown:Countdown breaks the contract in: " in answer.err


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["info", "check", "play"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("forging",), "There is no environment called 'forging', did you mean 'foraging'?"),
        (("foraging_cop",), "did you mean 'foraging_coop'?"),
        (("foraging", "--key=x"), "'x' is not a foraging id"),
        (("foraging", "with", "sigth=2"), "no argument 'sigth', did you mean 'sight'?"),
        (("foraging", "key=x"), "'key=x' stands alone"),
        (("foraging", "with", "other.yaml"), "'with other.yaml' is no key=value"),
        (("foraging", "--config=qmix"), "--config is for 'omg train'"),
        (("foraging", "--env-config=foraging"), "--env-config is for 'omg train'"),
        (("foraging", "predator_prey"), "'predator_prey' is not understood"),
        (("no_such_package:Env",), "no_such_package"),
        (("countdown:Count",), "did you mean 'Countdown'?"),
        (("mpe2:simple_sprad_v3",), "did you mean 'simple_spread_v3'?"),
        (("lbforaging:Foraging-5x5-2p-1f-v9",), "has no environment"),
        (("nowhere.yaml",), "there is no such file"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    command: str, words: tuple[str, ...], told: str, folder: Path
) -> None:
    assert told in refused(command, *words)
    assert not (folder / "play").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "No environment is named."),
        (("--policy=chase", "with", "n_prey=2"), "No environment is named."),
        (("foraging", "--policy=nearest"), "there is no 'nearest', did you mean 'nearest_food'?"),
        (("foraging", "--policy=chase"), "there is no 'chase'"),
        (("two_step", "--policy=chase"), "two_step has none"),
        (("predator_prey", "--policy=flee,corner"), "there is no seat for 'corner'"),
        (("foraging", "--policy=."), "--policy=. is not the folder of a run (no config.yaml"),
        (("foraging", "--episodes=0"), "--episodes=0 is too few"),
        (("foraging", "--seed=-1"), "--seed=-1 is not possible"),
        (("foraging", "--text", "--out=here"), "--text writes nothing into --out=here"),
        (("foraging", "--out=countdown.py"), "--out=countdown.py cannot be a folder"),
    ],
)
def test_play_refuses_in_a_sentence(words: tuple[str, ...], told: str) -> None:
    assert told in refused("play", *words)


def test_a_game_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "smac", None)
    monkeypatch.setitem(sys.modules, "smac.env", None)
    for command in ("info", "check", "play"):
        assert "needs the package 'smac'" in refused(command, "sc2")


# --- play ----------------------------------------------------------------------------------------


def returns(told: str) -> list[list[str]]:
    """Of every seat, by episode."""
    at = next(i for i, line in enumerate(told.splitlines()) if "return of each seat" in line)
    found = [cells for cells in rows("\n".join(told.splitlines()[at:])) if cells]
    return [cells[3].split() for cells in found]


def test_random_players_are_drawn_by_the_environment(folder: Path) -> None:
    told = done("play", "predator_prey", "--episodes=2", "--out=there", "with", "max_cycles=3")
    assert fact(told, "players") == "0–2 random (predator), 3 random (prey)"
    assert row(told, "0")[:2] == ["3", "limit"]
    assert len(returns(told)) == 3  # two episodes and their mean
    for number in (0, 1):
        for kind in ("svg", "gif"):
            assert (folder / "there" / f"episode_{number}.{kind}").stat().st_size > 1000
    assert told.count("Replay: there/") == 4


def test_the_same_seed_gives_the_same_episode_and_another_one_another() -> None:
    first, same, other = (
        done("play", "foraging", "--text", f"--seed={seed}", "with", f"key={KEY}")
        for seed in (0, 0, 1)
    )
    assert first == same
    assert first != other


def test_text_shows_every_step_and_writes_nothing(folder: Path) -> None:
    told = done("play", "countdown:Drawn", "--text")
    actions = [row(told, str(step))[0].split() for step in range(4)]
    rewards = [row(told, str(step))[1].split() for step in range(4)]
    assert all(a in "01" and b in "12" for a, b in actions)  # what is available
    assert rewards == [[str(int(a) + int(b))] * 2 for a, b in actions]
    total = str(sum(int(reward) for reward, _ in rewards))
    assert returns(told) == [[total, total]]
    assert {path.name for path in folder.iterdir()} <= {"__pycache__", "countdown.py"}


def test_a_game_that_renders_becomes_a_gif_of_its_steps(folder: Path) -> None:
    told = done("play", "countdown:Drawn", "--episodes=2")
    assert "Replay: play/episode_1.gif" in told
    for number in (0, 1):
        with Image.open(folder / "play" / f"episode_{number}.gif") as image:
            shades = []
            for frame in range(image.n_frames):
                image.seek(frame)
                shades.append(np.asarray(image.convert("RGB"))[0, 0, 0])
    assert shades == [160, 120, 80, 40]


def test_a_game_without_pictures_is_told_in_steps_and_why(folder: Path) -> None:
    told = done("play", "countdown:Countdown")
    assert "No pictures: Countdown has no method render()." in told
    assert len(row(told, "3")[0].split()) == 2
    assert not (folder / "play").exists()


def test_a_foreign_game_is_asked_for_pictures(folder: Path) -> None:
    done("play", "mpe2:simple_v3", "with", "max_cycles=4")
    with Image.open(folder / "play" / "episode_0.gif") as image:
        assert image.n_frames > 1


def test_scripts_sit_in_the_seats_of_their_roles() -> None:
    game = ("--text", "with", "n_predators=3", "n_prey=2", "max_cycles=2")
    told = done("play", "predator_prey", "--policy=chase", *game)
    assert fact(told, "players") == "0–2 chase (predator), 3–4 flee (prey)"
    told = done("play", "predator_prey", "--policy=orbit,chase,guard", *game)
    expected = "0, 2 chase (predator), 1 guard (predator), 3–4 orbit (prey)"
    assert fact(told, "players") == expected


def test_a_scripted_team_does_what_its_scripts_do() -> None:
    args = {"key": "Foraging-8x8-2p-3f-v3"}
    choice = choose("foraging", ["with", f"key={args['key']}"])
    played = play(choice, "nearest_food,top_left", episodes=1, seed=5, out=None)
    env = ForagingEnv(args=args, n_copies=1)
    view: Any = env.reset(SeedTree(5).integer("replay.env", 0))
    scripts = [make_script("nearest_food"), make_script("top_left")]
    memories = [np.zeros((1, MEMORY_DIM), np.int64) for _ in scripts]
    episode = played.episodes[0]
    rng = np.random.default_rng(0)
    for step in range(int(episode.stats.lengths[0])):
        actions = np.zeros((1, 2), np.int64)
        for seat, script in enumerate(scripts):
            actions[:, seat], memories[seat] = act_together(
                [script],
                np.zeros(1, np.int64),
                view.state,
                np.array([seat]),
                view.avail[:, seat],
                memories[seat],
                rng,
                board_of(args),
            )
        assert episode.episodes["actions"][0, step].flatten().tolist() == actions[0].tolist()
        view = env.step(actions)


# --- play what a run has trained -----------------------------------------------------------------

TINY = (
    *("--quiet", "--use_sacred=false", "--use_tensorboard=false", "--test_nepisode=2"),
    *("--t_max=200", "--batch_size_run=2", "--batch_size=2", "--local_results_path=results"),
)


def train(*words: str) -> None:
    assert omg.cli.train.main([*words, *TINY]) == 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: a team and an agent beside it in Foraging, a role in Predator-Prey."""
    place = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        train("--config=qmix", "--env-config=foraging", "--run_name=team", f"--env_args.key={KEY}")
        OpponentPool.create("pool").add_run("results/team")
        train(
            *("--config=iql_am", "--env-config=foraging", "--run_name=agent"),
            *("--opponent_pool=pool", f"--env_args.key={KEY}"),
        )
        OpponentPool.create("prey").add_script("flee", env="predator_prey")
        train(
            *("--config=iql", "--env-config=predator_prey", "--run_name=hunters"),
            *("--learning_role=predator", "--opponent_pool=prey"),
        )
    return place


@pytest.fixture
def runs(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    return trained / "results"


@pytest.mark.parametrize(
    ("run", "alg", "more"), [("team", "qmix", ()), ("agent", "iql_am", ("--opponent_pool=pool",))]
)
def test_a_run_plays_the_replays_that_evaluating_it_draws(
    runs: Path, tmp_path: Path, run: str, alg: str, more: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    told = done("play", f"--policy=results/{run}", "--seed=11", "--episodes=2", f"--out={out}")
    assert fact(told, "environment") == KEY
    train(
        *(f"--config={alg}", "--env-config=foraging", f"--checkpoint_path=results/{run}"),
        *("--evaluate", "--save_replay", "--replay_episodes=2", "--seed=11", *more),
        *(f"--run_name=eval-{run}", f"--env_args.key={KEY}"),
    )
    for number in (0, 1):
        name = f"episode_{number}.svg"
        drawn = (runs / f"eval-{run}" / "replays" / name).read_text()
        assert (out / name).read_text() == drawn


def test_who_sat_where_is_said_of_every_episode(runs: Path) -> None:
    told = done("play", "--policy=results/agent", "--episodes=2", "--text")
    seats = [cells[3] for cells in rows(told) if len(cells) > 4 and "learner" in cells[3]]
    assert [re.sub(r"team-\d+", "team", text) for text in seats] == [
        "0 learner, 1 team",
        "0 team, 1 learner",
    ]
    told = done("play", "predator_prey", "--policy=results/hunters", "--text", "--max_cycles=2")
    assert re.search(r"0–2 learner \(predator\), 3 \S*flee\S* \(prey\)", told)
    assert "note" in told  # trained for longer episodes


def test_a_run_that_does_not_fit_is_refused(runs: Path, tmp_path: Path) -> None:
    text = refused("play", "predator_prey", "--policy=results/team")
    assert "was trained on env=foraging, not predator_prey." in text
    text = refused("play", "foraging", "--policy=results/team")
    assert "obs_dim=9 there, 15 here" in text
    assert "Without the environment's name the run's own is played." in text
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.yaml").write_text((runs / "team" / "config.yaml").read_text())
    assert "has no saved model" in refused("play", f"--policy={tmp_path / 'empty'}")


def test_a_run_of_another_foreign_game_is_refused(tmp_path: Path) -> None:
    words = ("--env-config=pettingzoo", "--run_name=spread", "--env_args.N=2")
    train("--config=vdn", *words, "--env_args.max_cycles=5")
    text = refused("play", "mpe2:simple_line_v1", "--policy=results/spread")
    assert "env_args.key=mpe2:simple_spread_v3, not " in text
    told = done("play", "--policy=results/spread", "--out=there")
    assert fact(told, "players") == "0–1 vdn (agent)" or fact(told, "players") == "0–1 vdn"
    assert (tmp_path / "there" / "episode_0.gif").is_file()


def test_an_agent_whose_pool_is_gone_is_refused(runs: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(runs / "agent", tmp_path / "agent")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert "pool is not a pool" in refused("play", "--policy=agent")
