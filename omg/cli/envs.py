"""`omg envs`: which environments there are, what one is like, whether it works, how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from omg.cli.commands import FREE_FORM, Commands
from omg.cli.console import show, show_json, show_pairs, show_table

if TYPE_CHECKING:
    from omg.catalogue import Choice, Description, Foreign
    from omg.catalogue.play import Played
    from omg.envs.check import CheckResult

JSON = typer.Option(False, "--json", help="the same for programs")
ENV = typer.Argument(
    help="a name of 'omg envs list', package.module:Class, or package:id of a foreign game"
)
# Keys of a foreign package that the table shows: all, or if there are more, some.
MOST_KEYS, SOME_KEYS = 16, 4
# Characters of what a failed check says; a game's own message may have any length.
LONGEST = 500

envs_app = Commands("Environments.")


# --- list ----------------------------------------------------------------------------------------


@envs_app.command("list")
def envs_list(as_json: bool = JSON) -> None:
    """The environments: shipped ones, and those of installed packages."""
    from omg.catalogue import entries, foreign

    shipped, others = entries(), foreign()
    if as_json:
        plain = [asdict(entry) for entry in shipped], [asdict(other) for other in others]
        show_json({"environments": plain[0], "packages": plain[1]})
        return
    rows = []
    for entry in shipped:
        state = "" if entry.installed else f" missing ({entry.install})"
        package = f"{entry.package}{state}" if entry.package else "built in"
        rows.append((entry.env_config or "-", entry.env, package, entry.about))
    show("--env-config", "env", "package", "what it is", rows=rows)
    columns = ("package", "--env-config", "env_args.key")
    show(*columns, rows=map(_foreign_row, others), title="Games of other packages")
    typer.echo(
        "Train: omg train --config=qmix --env-config=<name> [with env_args.key=<key>].\n"
        "More: omg envs info <name or key>. Your own: --env=package.module:Class."
    )


def _foreign_row(package: Foreign) -> Sequence[str]:
    keys = list(package.keys)
    if len(keys) > MOST_KEYS:
        keys[SOME_KEYS:] = [f"… {len(keys) - SOME_KEYS:,} more: --json lists all"]
    name = f"{package.package} {package.version}".strip()
    return name, package.env_config or "-", package.problem or "\n".join(keys)


# --- info ----------------------------------------------------------------------------------------


@envs_app.command("info", context_settings=FREE_FORM)
def envs_info(context: typer.Context, env: str = ENV, as_json: bool = JSON) -> None:
    """What an environment is like: omg envs info foraging [with key=value …]"""
    from omg.catalogue import describe

    found = describe(_chosen(env, context.args))
    if as_json:
        show_json(_plain(found))
    else:
        _print_description(found)


def _chosen(env: str, words: Sequence[str], policy: str = "") -> Choice:
    """The environment that is named, or else the one that the run `policy` plays."""
    from omg.catalogue import choose, choose_of_run, split_words
    from omg.catalogue.play import is_run
    from omg.types import OmgError, user_path

    name, rest = split_words([word for word in (env, *words) if word])
    if name:
        return choose(name, rest)
    if policy and is_run(policy):
        return choose_of_run(user_path(policy), rest)
    raise OmgError("No environment is named. 'omg envs list' shows all.")


SHOWN_AS = {
    "drawn": "yes: episodes as SVG and GIF",
    "saved": "yes: the game saves its own replays",
    "frames": "yes: episodes as GIF, picture by picture",
}


def _rewards(found: Description) -> str:
    config = found.choice.config
    if found.spec.shared_reward:
        return "shared: all agents earn the same"
    if config.common_reward:
        return (
            f"one per agent; training takes their {config.reward_scalarisation} "
            "(common_reward=true)"
        )
    return "one per agent (common_reward=false)"


def _facts(found: Description) -> list[tuple[str, str]]:
    spec = found.spec
    return [
        ("environment", f"{spec.name} (env={found.choice.env})"),
        ("agents", str(spec.n_agents)),
        ("actions", str(spec.n_actions)),
        ("observation", f"{spec.obs_dim} {spec.obs_dtype}"),
        ("state", f"{spec.state_dim} {spec.state_dtype}"),
        ("limit", f"{spec.episode_limit} steps, then the episode is truncated"),
        ("rewards", _rewards(found)),
        *([("leavers", "agents may leave before the end")] if spec.leavers else []),
        *([("goals", ", ".join(spec.goals))] if spec.goals else []),
        ("statistics", ", ".join(spec.statistics) or "none"),
        (
            "snapshots",
            "exact: saved in mid-episode"
            if found.exact_snapshots
            else "at the start of an episode only; resuming abandons running ones",
        ),
        ("pictures", SHOWN_AS.get(found.showing) or f"none: {found.reason}"),
    ]


def _print_description(found: Description) -> None:
    from omg.catalogue import seat_groups, seat_ranges

    show_pairs(_facts(found))
    seats = []
    for role, numbers, width in seat_groups(found.spec):
        padded = f" (+{found.spec.obs_dim - width} zeros)" if width < found.spec.obs_dim else ""
        seats.append((role or "-", seat_ranges(numbers), f"{width}{padded}"))
    show("role", "seats", "observation", rows=seats, title="Seats")
    if found.scripts:
        scripts = [(script.name, script.role or "any", script.about) for script in found.scripts]
        show("script", "role", "heads for", rows=scripts, title="Scripted players")
    if found.arguments:
        arguments = [(each.name, repr(each.value), each.origin) for each in found.arguments]
        show("env_args", "value", "from", rows=arguments, title="Arguments")
    typer.echo(f"Train: {found.choice.train_command(found.spec)}")


def _plain(found: Description) -> dict[str, Any]:
    return {
        "env": found.choice.env,
        "env_config": found.choice.env_config or None,
        "spec": asdict(found.spec),
        "exact_snapshots": found.exact_snapshots,
        "pictures": found.showing,
        "scripts": [asdict(script) for script in found.scripts],
        "env_args": [asdict(argument) for argument in found.arguments],
        "train": found.choice.train_command(found.spec),
    }


# --- check ---------------------------------------------------------------------------------------


@envs_app.command("check", context_settings=FREE_FORM)
def envs_check(
    context: typer.Context,
    env: str = ENV,
    all_maps: bool = typer.Option(False, "--all-maps", help="each map of an environment with maps"),
) -> None:
    """Run the contract tests on an environment: omg envs check foraging [with key=value …]"""
    from omg.types import OmgError

    choice = _chosen(env, context.args)
    maps = _maps_of(choice) if all_maps else ()
    if maps and any(update.path == "env_args.map_name" for update in choice.given):
        raise OmgError(
            "--all-maps checks every map, and map_name names one. Leave out one of them."
        )
    if not maps:
        results = _checked(choice.env, choice.args)
        typer.echo(f"{choice.name} {choice.args or ''}".strip())
        rows = [(each.name, _judged(each.ok), each.detail[:LONGEST]) for each in results]
        show("check", "", "detail", rows=rows)
        failed = [result.name for result in results if not result.ok]
        if failed:
            raise OmgError(f"{choice.name} breaks the contract in: {', '.join(failed)}.")
        return
    rows, failed = [], []
    for name in maps:
        results = _checked(choice.env, {**choice.args, "map_name": name})
        wrong = [f"{each.name}: {each.detail[:LONGEST]}" for each in results if not each.ok]
        failed += [name] if wrong else []
        rows.append((name, _judged(not wrong), "; ".join(wrong) or results[0].detail))
    show("map", "", "detail", rows=rows)
    if failed:
        raise OmgError(f"{choice.name} breaks the contract on: {', '.join(failed)}.")


def _judged(ok: bool) -> str:
    return "ok" if ok else "FAILED"


def _maps_of(choice: Choice) -> Sequence[str]:
    """The maps of an environment, as its class lists them."""
    from omg.envs.registry import environment_class
    from omg.types import OmgError

    maps: Sequence[str] = getattr(environment_class(choice.env), "maps", ())
    if not maps:
        raise OmgError(f"env={choice.env} has no list of maps. Leave out --all-maps.")
    return maps


def _checked(env: str, args: dict[str, Any]) -> list[CheckResult]:
    from omg.envs.check import check_batched_env
    from omg.envs.registry import BatchFactory
    from omg.types import OmgError

    factory = BatchFactory(env, args)
    try:
        factory(0, 1).close()
    except OmgError:  # a wrong name or argument, not a broken contract
        raise
    except Exception:  # the checks tell
        pass
    return check_batched_env(lambda *, n_copies, first_copy: factory(first_copy, n_copies))


# --- play ----------------------------------------------------------------------------------------


@envs_app.command("play", context_settings=FREE_FORM)
def envs_play(
    context: typer.Context,
    env: str = typer.Argument("", help="as for info; empty: the one the run of --policy plays"),
    policy: str = typer.Option("random", help="random, a script, or the folder of a run"),
    episodes: int = typer.Option(1, help="how many to play"),
    seed: int = typer.Option(0, help="of the episodes and of random actions"),
    out: str = typer.Option("", help="folder of the replays; empty: play"),
    text: bool = typer.Option(False, "--text", help="print the steps and write no replay"),
) -> None:
    """Play episodes and show them: omg envs play predator_prey --policy=chase [with key=value …]"""
    from omg.catalogue.play import play
    from omg.types import OmgError, user_path

    if text and out:
        raise OmgError(f"--text writes nothing into --out={out}. Leave out one of them.")
    choice = _chosen(env, context.args, policy)
    folder = None if text else user_path(out or "play")
    _print_played(play(choice, policy, episodes=episodes, seed=seed, out=folder))


def _print_played(played: Played) -> None:
    from omg.catalogue.play import results_table, seating, steps_table

    rows = [("environment", played.spec.name)]
    if played.players.seats:
        rows.append(("players", seating(played.players.seats, played)))
    if played.players.note:
        rows.append(("note", played.players.note))
    show_pairs(rows)
    if played.showing == "text":
        for number, episode in enumerate(played.episodes):
            show_table(steps_table(episode, number))
    show_table(results_table(played))
    if played.reason:
        typer.echo(f"No pictures: {played.reason}")
    if played.showing == "saved":
        typer.echo("The game saved its own replay (env_args.replay_dir).")
    for path in played.files:
        typer.echo(f"Replay: {path}")
