"""Playing an environment to look at it: who plays, the episodes, and their replays."""

from omg.play.episodes import Played, play
from omg.play.players import Players, is_run, players_of
from omg.play.tables import results_table, seating, steps_table

__all__ = [
    "Played",
    "Players",
    "is_run",
    "play",
    "players_of",
    "results_table",
    "seating",
    "steps_table",
]
