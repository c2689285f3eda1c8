"""Episodes that play and step, with the inferred places beside the true paths."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from omg.report.data import ReportData
from omg.report.formats import Replay, Thing
from omg.report.html import Child, Html, data_script, el, join, note, section

SPEEDS = (("0.5", "½×"), ("1", "1×"), ("2", "2×"), ("4", "4×"))


def other_seats(replay: Replay) -> list[int]:
    """The seats of the others in the order of a row of subgoals: the next one first."""
    return [(replay.seat + step) % replay.players for step in range(1, replay.players)]


def hits(replay: Replay) -> list[list[int | None]] | None:
    """For every prediction, how many steps later that opponent reaches it; None where it never
    does. On a grid it reaches the nearest cell to the decoded place, on a plane it comes near."""
    if replay.subgoals is None:
        return None
    seats = other_seats(replay)
    paths = {seat: [frame.players[seat] for frame in replay.frames] for seat in seats}
    found = []
    for step, row in enumerate(replay.subgoals):
        later = []
        for seat, place in zip(seats, row, strict=True):
            ahead = [_reaches(replay, player, place) for player in paths[seat][step + 1 :]]
            later.append(ahead.index(True) + 1 if True in ahead else None)
        found.append(later)
    return found


def _reaches(replay: Replay, player: Thing, place: Sequence[float]) -> bool:
    """Whether a player is where it was expected; one that has left is nowhere."""
    if not player[2]:
        return False
    if replay.plane is not None:
        return math.dist(player[:2], place) <= replay.plane.near
    return _cell(player) == _cell(place)


def _cell(place: Sequence[float]) -> tuple[int, int]:
    return round(place[0]), round(place[1])


def replays_section(data: ReportData) -> Html:
    """The player and its data; a script moves it."""
    if not (data.replays or data.films):
        missing = note(
            "No replays were found (replays/*.json; *.svg of battles). omg crossplay --replays=3 "
            "records them."
        )
        return section("replays", "Replays", missing)
    films = [_film(name, picture) for name, picture in data.films]
    if not data.replays:
        return section("replays", "Replays", *films)
    content = [_content(name, replay) for name, replay in data.replays]
    player = data_script("replay-data", content)
    return section("replays", "Replays", _player(data), *films, player)


def _film(name: str, picture: str) -> Html:
    """A moving picture, as an image: what it holds cannot act in the page."""
    source = b64encode(picture.encode()).decode()
    image = el(
        "img",
        src=f"data:image/svg+xml;base64,{source}",
        alt=f"Battle {name}",
        loading="lazy",
        style="max-width: 100%; height: auto",
    )
    words = (
        f"{name}. Discs are ours, hexagons theirs; bars show shield, health and weapon, lines "
        "attacks, crosses graves. Pale rings stand where the agent expects its teammates to be."
    )
    return el("figure", image, el("figcaption", words))


def _content(name: str, replay: Replay) -> dict[str, Any]:
    """A replay for the script, without what it does not draw."""
    return {
        "name": name,
        "agent": replay.agent,
        "method": replay.method,
        "opponent": replay.opponent,
        "size": replay.field_size,
        "seat": replay.seat,
        "others": other_seats(replay),
        "players": [[_short(player) for player in frame.players] for frame in replay.frames],
        "foods": [[_short(f) for f in frame.foods if f[2] > 0] for frame in replay.frames],
        "score": [[round(s, 3) if s is not None else 0 for s in f.score] for f in replay.frames],
        "subgoals": None
        if replay.subgoals is None
        else [[[round(v, 2) for v in place] for place in row] for row in replay.subgoals],
        "hits": hits(replay),
        "goals": list(replay.goals),
        "beliefs": replay.beliefs,
        "predictions": replay.predictions,
        "actions": replay.actions,
        "things": _things(replay),
        "roles": list(replay.roles),
        "plane": replay.plane and {"players": replay.plane.players, "thing": replay.plane.thing},
    }


def _things(replay: Replay) -> str:
    """What stands on the board beside the players."""
    if replay.plane is not None:
        return replay.plane.things
    return "Food" if replay.env == "foraging" else "Targets"


def _short(thing: Thing) -> list[float]:
    return [int(value) if value == int(value) else round(value, 2) for value in thing]


def _player(data: ReportData) -> Html:
    options = [
        el("option", f"{r.method} with {r.opponent} ({name})", value=i)
        for i, (name, r) in enumerate(data.replays)
    ]
    picker = el(
        "div",
        el("label", "Episode", for_="replay-select"),
        el("select", options, id="replay-select"),
        class_="picker",
    )
    stage = el(
        "div",
        el("svg", id="replay-stage", role="img", aria_label="Board"),
        class_="stage",
        id="replay-focus",
        tabindex="0",
        role="group",
        aria_label="Replay: arrow keys step, space plays",
    )
    side = el(
        "div",
        el("p", "", id="replay-status", class_="status", aria_live="polite"),
        el("dl", "", id="replay-facts", class_="replay-facts"),
        el("div", "", id="replay-beliefs", class_="beliefs"),
        _legend(),
        class_="side",
    )
    words = join(
        "One episode per entry, recorded while evaluating. A ring shows where the learning agent "
        "infers that the opponent is heading; the dashed line is where it really goes next. A "
        "prediction counts as reached if the opponent stands in the nearest cell at a later step "
        "(where there are no cells: if it comes as near as one step at full speed). "
        "Bars show what each opponent is believed to want, beside the action expected of it. "
        "Keys: ← → step, space plays, Home and End jump.",
        _recorded(data),
    )
    box = el("div", el("div", stage, _controls(), class_="board"), side, class_="replay")
    script_off = el("noscript", note("Replays need JavaScript."))
    return join(script_off, el("figure", picker, box, el("figcaption", words)))


def _recorded(data: ReportData) -> Html | None:
    """The command, as far as the cross-play's file says it."""
    count = data.crossplay.replays if data.crossplay else 0
    return (
        join(" Recorded by ", el("code", f"omg crossplay --replays={count}"), ".")
        if count
        else None
    )


def _controls() -> Html:
    def button(name: str, words: str, label: str) -> Html:
        return el("button", words, type="button", id=f"replay-{name}", aria_label=label)

    speeds = [el("option", words, value=value, selected=value == "1") for value, words in SPEEDS]
    slider = el(
        "input",
        type="range",
        id="replay-slider",
        min="0",
        max="1",
        value="0",
        step="1",
        aria_label="Step of the episode",
    )
    return el(
        "div",
        button("back", "←", "One step back"),
        el("button", "Play", type="button", id="replay-play", aria_pressed="false", class_="play"),
        button("forward", "→", "One step forward"),
        slider,
        el("label", "Speed", for_="replay-speed", class_="hidden-caption"),
        el("select", speeds, id="replay-speed"),
        class_="controls",
    )


def _legend() -> Html:
    def item(words: str, *marks: Child, name: str | None = None) -> Html:
        picture = el("svg", marks, width="34", height="18", viewBox="0 0 34 18", aria_hidden="true")
        return el("li", picture, el("span", words, id=name))

    def line(classes: str) -> Html:
        return el("line", x1="3", x2="31", y1="9", y2="9", class_=classes)

    return el(
        "ul",
        item("learning agent", el("circle", cx="17", cy="9", r="7", class_="me")),
        item(
            "opponent", el("rect", x="10", y="2", width="14", height="14", rx="4", class_="o1 body")
        ),
        item(
            "food; numbers are levels",
            el("circle", cx="17", cy="9", r="6", class_="food"),
            name="replay-thing-words",
        ),
        item("opponent's past path", line("o1 past")),
        item("its next steps", line("o1 future")),
        item(
            "inferred place, reached later", el("circle", cx="17", cy="9", r="7", class_="o1 ghost")
        ),
        item(
            "inferred place, never reached",
            el("circle", cx="17", cy="9", r="7", class_="o1 ghost missed"),
        ),
        class_="marks-legend",
        aria_label="Legend",
    )
