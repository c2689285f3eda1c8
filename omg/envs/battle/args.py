"""The arguments of a battle: SMAC's names and defaults (`SmacArguments`), and some of ours."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from omg.envs.battle.maps import BattleMap, battle_map
from omg.envs.sc2.args import SmacArguments, checked_difficulty
from omg.types import OmgError

ALLY, ENEMY = "ally", "enemy"

# Arguments of the game itself, and what to do instead of setting them.
MEANINGLESS = {
    "game_version": "There is no game here whose version could be chosen; leave it at null",
    "seed": "Episodes follow from the run's own key `seed`; set that one",
    "replay_dir": "Replays are drawn by `save_replay` or 'omg envs play'; leave it empty",
    "replay_prefix": "Replays are drawn by `save_replay` or 'omg envs play'; leave it empty",
    "window_size_x": "No window is opened; leave it at 1920",
    "window_size_y": "No window is opened; leave it at 1200",
    "heuristic_ai": "Scripted players sit in seats ('omg envs play battle --policy=focus_fire', or "
    "a pool of scripts); leave it at false",
    "heuristic_rest": "Scripted players sit in seats, see heuristic_ai; leave it at false",
    "timeout_seconds": "No game can hang here; leave it at 300",
    "max_restarts": "No game can break here; leave it at 5",
    "debug": "The simulator writes no log; leave it at false",
}


def _as_text(value: Any) -> Any:
    """On a command line a map called 8 is a number."""
    return str(value) if isinstance(value, int | float) else value


class BattleArgs(SmacArguments):
    """`enemies: seats` makes the enemy side a role whose seats are played by policies. `threads`
    are those of the simulator in C; the one in NumPy takes one."""

    game = "Battle"

    map_name: Annotated[str, BeforeValidator(_as_text)] = "8m"
    enemies: Literal["script", "seats"] = "script"
    unavailable: Literal["error", "noop"] = "error"
    threads: int = Field(1, ge=1, le=256)

    @model_validator(mode="after")
    def _has_a_meaning(self) -> BattleArgs:
        for field, instead in MEANINGLESS.items():
            value = getattr(self, field)
            if value != type(self).model_fields[field].default:
                raise OmgError(f"Battle argument '{field}' is {value!r}. {instead}.")
        self.level()
        self.map()
        self._check_together()
        return self

    def _check_together(self) -> None:
        """Refuse arguments that make each other meaningless."""
        if self.obs_instead_of_state and self.state_timestep_number:
            raise OmgError(
                "env_args.obs_instead_of_state=true makes the state of observations, so that "
                "state_timestep_number=true shows nothing. Set obs_timestep_number=true instead, "
                "or one of the two to false."
            )
        if (
            self.enemies == "seats"
            and self.level() != type(self).model_fields["difficulty"].default
        ):
            raise OmgError(
                f"env_args.difficulty={self.difficulty} is that of the scripted enemy, and with "
                "enemies=seats there is none. Leave difficulty at 7, or set enemies=script."
            )

    def level(self) -> str:
        """How good the scripted enemy is."""
        return checked_difficulty(self.difficulty)

    def map(self) -> BattleMap:
        """The map that is named."""
        return battle_map(self.map_name)

    @property
    def name(self) -> str:
        """What the game is called in headers and folders."""
        return self.map_name if self.enemies == "script" else f"{self.map_name}-both"
