"""What README promises to a first visitor: its commands and its Python work as written."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from omg.cli.app import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, re.DOTALL)
SMALL = [
    *("--t_max=120", "--batch_size=2", "--batch_size_run=2", "--test_nepisode=2", "--quiet"),
    *("--use_sacred=False", "--use_tensorboard=False", "--test_interval=60"),
    "--prior_min_accuracy=0",
]


def shown_commands() -> list[list[str]]:
    joined = [block.replace("\\\n", "") for kind, block in BLOCKS if not kind]
    lines = [line for block in joined for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("omg ")]


def run(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        get_command(app).main(words)
    assert not stop.value.code, words


@pytest.mark.long
def test_the_commands_work_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "examples"
    own.mkdir()
    (own / "my_env.py").write_text((ROOT / "examples" / "my_env.py").read_text())
    done = []
    for words in shown_commands():
        _, command, *rest = words
        if command == "train":
            with_at = rest.index("with") if "with" in rest else len(rest)
            rest = [*rest[:with_at], *SMALL, *rest[with_at:]]
            rest = [word for word in rest if word != "t_max=20000"]
        elif command == "evaluate":
            rest.append("--episodes=2")
        elif command == "pipeline":
            rest.append("--dry-run")
        elif command == "plot":  # what a shell does
            rest = [str(path) for word in rest for path in sorted(Path().glob(word))]
            assert len(rest) == 3
        run([command, *rest])
        done.append(command)
    sys.modules.pop("examples.my_env", None)
    assert {"train", "pool", "evaluate", "plot", "pipeline"} <= set(done)
    evaluated = tmp_path / "results" / "agent" / "evaluation" / "crossplay.csv"
    assert "farthest_food" in evaluated.read_text()


def test_the_ten_lines_are_those_of_the_example() -> None:
    (code,) = [block for kind, block in BLOCKS if kind == "python"]
    assert code in (ROOT / "examples" / "python_api.py").read_text(encoding="utf-8")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    assert code in (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def test_the_two_commands_of_make_exist() -> None:
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.M)
    assert {"demo", "test", "docs"} <= set(targets)
    assert re.search(r"^make demo ", TEXT, re.M)
    assert re.search(r"^make test ", TEXT, re.M)


def test_the_citation_names_the_paper_as_readme_does() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    (paper,) = cited["references"]
    (bibtex,) = [block for kind, block in BLOCKS if kind == "bibtex"]
    assert f"{{{paper['title']}}}" in bibtex
    names = [f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]]
    assert f"{{{' and '.join(names)}}}" in bibtex
    assert f"{{{paper['year']}}}" in bibtex
