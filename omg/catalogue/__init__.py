"""The environments there are, which of them a user means, and what one of them is like."""

from omg.catalogue.choice import (
    Choice,
    Description,
    Showing,
    choose,
    choose_of_run,
    describe,
    open_env,
    scripted_players,
    seat_groups,
    seat_ranges,
    showing_of,
    split_words,
)
from omg.catalogue.listing import Entry, Foreign, entries, foreign

__all__ = [
    "Choice",
    "Description",
    "Entry",
    "Foreign",
    "Showing",
    "choose",
    "choose_of_run",
    "describe",
    "entries",
    "foreign",
    "open_env",
    "scripted_players",
    "seat_groups",
    "seat_ranges",
    "showing_of",
    "split_words",
]
