"""What every algorithm must satisfy: one line each. `test_every_learner.py` reads this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Where weights tell the seats apart, as (end of their name, axis, first of them, width): along that
# axis lie n_agents blocks, one per seat. A start below zero counts from the end. With all blocks
# alike, a learner must not see who sits where. `agents.*` are whole networks per seat.
SeatWeights = tuple[str, int, int, int]

# The sizes of `small_learners.RANDOM`: agents x 2 features, then one that is nobody's.
AGENTS, ACTIONS, OBS, STATE = 3, 4, 5, 7

QMIX = (("mixer/hyper_w_1.2.weight", 0, 0, 8), ("mixer/hyper_w_1.2.bias", 0, 0, 8))
COMA = (
    ("critic/fc1.weight", 1, STATE + OBS, ACTIONS),  # the others' actions
    ("critic/fc1.weight", 1, STATE + OBS + AGENTS * ACTIONS, ACTIONS),  # last actions
    ("critic/fc1.weight", 1, -AGENTS, 1),  # own seat
)
CENTRAL = (("critic/critic.body.0.weight", 1, -AGENTS, 1),)
NAIVE = (("base_am/body.0.weight", 1, -AGENTS, 1),)
MELIBA = (("meliba_am/fc.weight", 1, -AGENTS, 1),)
TYPES = (("types_am/body.0.weight", 1, -AGENTS, 1),)
LIAM = (("liam_am/fc.weight", 1, -AGENTS, 1),)
# The prior encodes the whole state, in which every agent has its own place.
WHOLE_STATE = (
    ("vae/encoder.0.weight", 1, 0, 2),
    ("vae/decoder.4.weight", 0, 0, 2),
    ("vae/decoder.4.bias", 0, 0, 2),
)
WHOLE_BATCH = ("--ppo_minibatches=1",)
ONE_BATCH = ("--moa_batch_size=100000",)
NO_GOALS = ("--moa_goal=none",)  # the games of this bench declare none
NO_DRAWS = ("--subgoal_posterior=mean", "--subgoal_epsilon_start=0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one algorithm is put to the proof."""

    # What it learns: the values of acting greedily (solved by dynamic programming), those of the
    # policy that played, or none at all.
    values: Literal["greedy", "policy", "none"] = "greedy"
    config: str = ""  # the shipped configuration, if the name of the row is another
    words: tuple[str, ...] = ()  # settings beside it
    # Settings (and endings) without which chance decides what an update does. With them the order
    # of episodes must not matter, nor anything that a checkpoint does not keep. None: there are no
    # such settings, and these two are not asked.
    sure: tuple[str, ...] | None = ()
    sure_ending: Literal["mixed", "terminated"] = "mixed"
    updates: int = 60  # until it has learned the values of the two-state game
    seats: tuple[SeatWeights, ...] = ()
    apart: bool = False  # a whole network for every seat
    pairs: bool = False  # whole networks for every pair of seats, in files player_*.pth
    # Has a memory that no setting takes away: learns its values from longer random episodes.
    recurrent: bool = False
    # The same algorithm but for its runner: proved by its twin, run by itself.
    twin: str = ""
    everyone: bool = False  # every seat learns and models the others, instead of one
    # False: it looks into copies of its games, so that they cannot lie in other processes.
    parallel: bool = True

    @property
    def sure_words(self) -> tuple[str, ...]:
        return self.sure or ()


TABLE: dict[str, Row] = {
    # teams
    "iql": Row(),
    "vdn": Row(updates=70),
    "qmix": Row(seats=QMIX, updates=120),
    "iql_idv": Row(recurrent=True, apart=True),
    "iql_beta": Row(twin="iql"),
    "vdn_beta": Row(twin="vdn"),
    "qmix_beta": Row(twin="qmix"),
    "qmix_quick": Row(seats=QMIX, updates=120, sure=("--target_update_tau=0",)),  # no soft targets
    "qtran": Row(updates=100),
    # At a cut it draws the others' actions.
    "coma": Row(values="policy", seats=COMA, sure_ending="terminated", updates=150),
    "ippo": Row(values="policy", updates=22, sure=WHOLE_BATCH),
    "mappo": Row(values="policy", updates=22, sure=WHOLE_BATCH, seats=CENTRAL),
    # one agent among others, Q-learning
    "d3qn": Row(),
    "d3qn_am": Row(seats=NAIVE),
    "d3qn_control": Row(),
    "d3qn_liam": Row(seats=LIAM, updates=90),
    "d3qn_meliba": Row(seats=MELIBA, updates=90, sure=None),  # its loss draws
    "d3qn_types": Row(seats=TYPES),
    "d3qn_oracle": Row(parallel=False),
    "d3qn_omg": Row(updates=90, sure=NO_DRAWS, seats=WHOLE_STATE),
    # Its policy is shown what the inference remembers.
    "d3qn_omg_event": Row(updates=90, sure=NO_DRAWS, recurrent=True),
    "d3qn_omg_event_tuned": Row(updates=90, sure=NO_DRAWS, recurrent=True, values="none"),
    "d3qn_omg_supervised": Row(updates=90, sure=NO_DRAWS, recurrent=True, values="none"),
    "d3qn_omg_tuned": Row(updates=90, sure=NO_DRAWS),
    "d3qn_moa": Row(words=NO_GOALS, pairs=True, sure=ONE_BATCH),
    "d3qn_moa_omg": Row(updates=90, pairs=True, sure=(*NO_DRAWS, *ONE_BATCH)),
    "iql_moa": Row(words=NO_GOALS, pairs=True, sure=ONE_BATCH),
    "iql_am": Row(seats=NAIVE),
    "iql_liam": Row(seats=LIAM, updates=90),
    "iql_omg": Row(updates=90, sure=NO_DRAWS, seats=WHOLE_STATE),
    "iql_omg_tuned": Row(updates=90, sure=NO_DRAWS),
    # one agent among others, PPO
    "ppo": Row(values="policy", updates=18, sure=WHOLE_BATCH),
    "ppo_am": Row(values="policy", updates=18, sure=WHOLE_BATCH, seats=NAIVE),
    "ppo_control": Row(values="policy", updates=18, sure=WHOLE_BATCH),
    "ppo_liam": Row(values="policy", updates=18, sure=WHOLE_BATCH, seats=LIAM),
    "ppo_meliba": Row(values="policy", updates=18, seats=MELIBA, sure=None),
    "ppo_types": Row(values="policy", updates=18, sure=WHOLE_BATCH, seats=TYPES),
    "ppo_oracle": Row(values="policy", updates=18, sure=WHOLE_BATCH, parallel=False),
    "ppo_moa": Row(
        words=NO_GOALS, values="policy", updates=18, pairs=True, sure=(*ONE_BATCH, *WHOLE_BATCH)
    ),
    "ppo_moa_omg": Row(
        values="policy", updates=18, pairs=True, sure=(*NO_DRAWS, *ONE_BATCH, *WHOLE_BATCH)
    ),
    "ppo_omg": Row(values="policy", updates=18, sure=(*NO_DRAWS, *WHOLE_BATCH), seats=WHOLE_STATE),
    "ppo_omg_tuned": Row(values="policy", updates=18, sure=(*NO_DRAWS, *WHOLE_BATCH)),
}
# Options that are algorithms of their own.
TABLE |= {
    # Its values are between those of acting greedily and those of the policy that played.
    "qmix, λ-returns": Row(config="qmix", words=("--q_lambda=0.6",), values="none", seats=QMIX),
    "qtran, coma critic": Row(
        config="qtran",
        words=("--qtran_arch=coma_critic",),
        updates=230,
        seats=(("mixer/Q.0.weight", 1, STATE, ACTIONS),),
    ),
    "coma, a critic step per time": Row(
        config="coma",
        words=("--critic_train_mode=seq",),
        values="policy",
        seats=COMA,
        sure_ending="terminated",
        updates=150,
    ),
    "iql_omg, prior": Row(
        config="iql_omg",
        words=("--learner=am_learner",),
        values="none",
        sure=None,
        seats=WHOLE_STATE,
    ),
    "iql_omg, supervised": Row(
        config="iql_omg",
        words=("--subgoal_inference=mlp",),
        updates=90,
        sure=NO_DRAWS,
        seats=WHOLE_STATE,
    ),
    "iql_am, alone": Row(
        config="iql_am", words=("--learner=am_learner",), values="none", seats=NAIVE
    ),
    "iql_liam, alone": Row(
        config="iql_liam", words=("--learner=am_learner",), values="none", seats=LIAM
    ),
    "d3qn_meliba, alone": Row(
        config="d3qn_meliba",
        words=("--learner=am_learner",),
        values="none",
        sure=None,
        seats=MELIBA,
    ),
    "d3qn_types, alone": Row(
        config="d3qn_types", words=("--learner=am_learner",), values="none", seats=TYPES
    ),
    "d3qn_types, taught, of the belief": Row(
        config="d3qn_types",
        words=("--types_teacher=True", "--types_feature=belief"),
        seats=TYPES,
    ),
    "iql_moa, alone": Row(
        config="iql_moa",
        words=("--learner=am_learner", *NO_GOALS),
        values="none",
        sure=ONE_BATCH,
        pairs=True,
    ),
    "iql_moa, every seat": Row(
        config="iql_moa", words=NO_GOALS, everyone=True, pairs=True, sure=ONE_BATCH
    ),
    "iql_am, of the history": Row(config="iql_am", words=("--am_history=True",), seats=NAIVE),
    "iql_liam, decoded": Row(
        config="iql_liam", words=("--am_feature=both",), seats=LIAM, updates=90
    ),
    "iql_am, every seat": Row(config="iql_am", everyone=True, seats=NAIVE),
    "iql_omg, every seat": Row(
        config="iql_omg", everyone=True, updates=90, sure=NO_DRAWS, seats=WHOLE_STATE
    ),
    "ppo_omg, every seat": Row(
        config="ppo_omg",
        everyone=True,
        values="policy",
        updates=18,
        sure=(*NO_DRAWS, *WHOLE_BATCH),
        seats=WHOLE_STATE,
    ),
}
