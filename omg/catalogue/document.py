"""The table of all algorithms for the docs, from their files and learners.

    python -m omg.catalogue.document docs/algorithms/README.md

writes it between the marks in that page; a test compares the page to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from omg.catalogue.algorithms import Algorithm, algorithms
from omg.config.document import plain, rewritten

MARK = "algorithms"
# The page of an algorithm by its opponent model, or else by its learner.
MODEL_PAGES = {
    "omg_am": "omg.md",
    "liam_am": "liam.md",
    "meliba_am": "meliba.md",
    "types_am": "types.md",
    "moa": "moa.md",
    "base_am": "../opponent-models.md#base_am-the-naive-model",
    "control_am": "../opponent-models.md#control_am-the-control",
    "oracle_am": "../opponent-models.md#oracle_am-the-oracle",
}
LEARNER_PAGES = {
    "q_learner": "q-learning.md",
    "q_learner_4am": "q-learning.md",
    "qtran_learner": "qtran.md",
    "coma_learner": "coma.md",
    "ppo_learner": "ppo.md",
    "ppo_learner_4am": "ppo.md",
}
TITLES = {"a team": "Teams", "one agent among others": "One agent among others"}


def page_of(row: Algorithm) -> str:
    """The page that explains an algorithm, seen from docs/algorithms."""
    return MODEL_PAGES.get(row.opponent_model) or LEARNER_PAGES[row.learner]


def markdown() -> str:
    """A table of the teams, and one of the agents that learn among others."""
    return "\n".join(_lines()).strip() + "\n"


def _lines() -> Iterator[str]:
    learns = ""
    for row in algorithms():
        if row.learns != learns:
            learns = row.learns
            last = "opponent model" if row.opponent_model else "mixer or critic"
            yield from ("", f"### {TITLES[learns]}", "")
            yield f"| `--config` | what it is | learning | reward | network | {last} |"
            yield "|---|---|---|---|---|---|"
        part = row.opponent_model or row.parts
        name = f"[`{row.name}`]({page_of(row)})"
        cells = (plain(row.about), row.learning, row.reward, f"`{row.network}`", plain(part))
        yield f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    text = rewritten(page.read_text(encoding="utf-8"), MARK, markdown())
    page.write_text(text, encoding="utf-8")
