"""Playing an environment to look at it: who plays, the episodes, and their replays."""

from omg.catalogue.play.episodes import Played, play, results_table, seating, steps_table
from omg.catalogue.play.players import Cast, is_run, players_of

__all__ = [
    "Cast",
    "Played",
    "is_run",
    "play",
    "players_of",
    "results_table",
    "seating",
    "steps_table",
]
