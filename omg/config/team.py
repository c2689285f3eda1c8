"""Team strings: `4iql3qmix1iql_omg` = 4 IQL seats, 3 QMIX seats, 1 OMG seat, in that order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from omg.config.arguments import Arguments
from omg.registry import nearest
from omg.types import OmgError

MOST_SEATS = 1000
FORMAT = "counts and algorithm names, e.g. '1iql1iql_omg' or '4iql3qmix1iql_omg'"


def parse_team(text: str, known: Iterable[str]) -> tuple[str, ...]:
    """The algorithm of every seat. Names may contain digits (`d3qn_omg`): the known names decide
    where one ends."""
    names = sorted(known, key=len, reverse=True)
    piece = rf"(\d+?)({'|'.join(map(re.escape, names))})(?=\d|$)"
    if re.fullmatch(rf"(?:{piece})+", text) is None:
        loose = re.findall(r"\d+([A-Za-z_]+)", text)
        strange = next((name for name in loose if name not in names), None)
        hint = f" '{strange}' is no algorithm{nearest(strange, names) or '.'}" if strange else ""
        raise OmgError(
            f"--config={text} is not a team.{hint} With --multi_algs write {FORMAT}; "
            f"algorithms: {', '.join(sorted(names))}."
        )
    pieces = re.findall(piece, text)
    if any(len(count) > 4 for count, _ in pieces) or sum(int(n) for n, _ in pieces) > MOST_SEATS:
        raise OmgError(f"--config={text[:60]} has more than {MOST_SEATS} players. Name fewer.")
    seats = [name for count, name in pieces for _ in range(int(count))]
    if not seats:
        raise OmgError(f"--config={text} is a team without players. Write {FORMAT}.")
    return tuple(seats)


def check_team_size(text: str, seats: tuple[str, ...], n_agents: int) -> None:
    """The counts must add up to the environment's number of agents."""
    if len(seats) != n_agents:
        raise OmgError(
            f"The team {text} has {len(seats)} seats, but the environment has {n_agents} agents. "
            "Change the counts, or the environment."
        )


def read_team(arguments: Arguments, known: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The algorithm of each seat, and the one that learns."""
    if arguments.alg is None:
        raise OmgError(f"--multi_algs needs a team. Write --config={FORMAT}.")
    seats = parse_team(arguments.alg, known)
    asked = [str(u.value) for u in arguments.updates if u.path == "train_alg"]
    learns = asked[-1] if asked else seats[-1]
    if seats.count(learns) != 1:
        raise OmgError(
            f"train_alg={learns} has {seats.count(learns)} seats in the team {arguments.alg}. "
            "Exactly one seat learns: give it one, or name another algorithm of the team."
        )
    return seats, learns
