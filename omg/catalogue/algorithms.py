"""What every shipped algorithm is and can do, read from its file and its learner."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from omg.catalogue.listing import head_comment
from omg.config.loader import CONFIG_DIR, available, load_command_line
from omg.config.schema import Config
from omg.controllers import CONTROLLERS
from omg.learners import LEARNERS
from omg.learners.base import Capabilities
from omg.modules.agents import AGENTS


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row of `omg algorithms`."""

    name: str
    about: str
    learns: str  # a team, or one agent among others
    learning: str  # on-policy, off-policy
    reward: str  # as configured; in brackets what else the learner takes
    actions: str
    network: str  # as configured; every learner takes every network
    recurrent: bool
    parts: str  # mixer or critic
    opponent_model: str
    learner: str


def _about(name: str) -> str:
    """The first sentence of the comment that begins the algorithm's file."""
    text = head_comment(CONFIG_DIR / "algs" / f"{name}.yaml")
    return text.partition(". ")[0].rstrip(".") + "."


def _reward(common: bool, able: Capabilities) -> str:
    configured = "team" if common else "own"
    other = {"team": "own", "own": "team"}[configured]
    return f"{configured} (or {other})" if able.reward == "any" else configured


def _parts(config: Config) -> str:
    if config.mixer:
        return f"mixer {config.mixer}"
    return f"critic {config.critic}" if config.critic else ""


def describe_algorithm(name: str) -> Algorithm:
    """The algorithm with the settings it is shipped with."""
    config = load_command_line([f"--config={name}"]).config
    able = LEARNERS[config.learner].able
    models = CONTROLLERS[config.mac].models
    return Algorithm(
        name=name,
        about=_about(name),
        learns="one agent among others" if models else "a team",
        learning="on-policy" if able.on_policy else "off-policy",
        reward="team" if config.mixer else _reward(config.common_reward, able),
        actions="discrete",
        network=config.policy_model,
        recurrent=AGENTS[config.policy_model].recurrent,
        parts=_parts(config),
        opponent_model=config.am_model if models else "",
        learner=config.learner,
    )


def algorithms() -> list[Algorithm]:
    """All shipped algorithms, teams first."""
    found = [describe_algorithm(name) for name in available("algs")]
    return sorted(found, key=lambda row: (row.learns, row.name))


def as_plain(rows: list[Algorithm]) -> list[dict[str, object]]:
    """For JSON."""
    return [asdict(row) for row in rows]
