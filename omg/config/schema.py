"""Types and bounds of every configuration key, and what each influences. The only list of keys.

Values live in the YAML files only. A capability adds its keys as one more section class; `Config`
is their union, because PyMARL's users write flat keys (`--lr=0.001`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)


def _no_flag(expected: str) -> Callable[[Any], Any]:
    """Refuse True and False, which Python counts as numbers (a bare `--lr` would mean 1.0)."""

    def check(value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(expected)
        return value

    return check


Whole = Annotated[int, BeforeValidator(_no_flag("a whole number"))]
Real = Annotated[float, BeforeValidator(_no_flag("a number")), Field(allow_inf_nan=False)]
Unit = Annotated[Real, Field(ge=0, le=1)]
Positive = Annotated[Real, Field(gt=0)]
LARGEST = 2**62  # more than a machine's integers is never meant
Count = Annotated[Whole, Field(ge=1, le=LARGEST)]
Steps = Annotated[Whole, Field(ge=0, le=LARGEST)]

Width = Annotated[Whole, Field(ge=1, le=65_536)]  # of a network's layer


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("text without control characters")
    return text


def _file_name(text: str) -> str:
    if "/" in text or "\\" in text or text.startswith("."):
        raise ValueError("a name, without '/' and not beginning with '.'")
    return text


Text = Annotated[str, Field(max_length=4000), AfterValidator(_printable)]
Name = Annotated[str, Field(max_length=120), AfterValidator(_printable)]
FileName = Annotated[Name, AfterValidator(_file_name)]


def _plain(value: Any) -> Any:
    """A deep copy as YAML and JSON would give it back."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"numbers, texts, lists and mappings, no {type(value).__name__}")


def _freeze(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(_plain(value))


Keywords = Annotated[Mapping[str, Any], AfterValidator(_freeze)]


class RewardWeights(BaseModel):
    """What an agent learns from, made of what the game pays: `reward_weights`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    own: Real = 1.0  # of the agent's own rewards
    others: Real = 0.0  # of the mean reward of the others of its role
    power: Annotated[Real, Field(ge=0)] = 1.0  # a reward r counts as |r|^power, with its sign
    actions: dict[Steps, Real] = {}  # added whenever the agent takes that action


def _reward_weights(value: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        RewardWeights.model_validate(value)
    except ValidationError as error:
        known = "own, others, power (0 or more) and actions ({number: reward}), each a number"
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise ValueError(f"{known}; '{where}' does not fit") from error
    return value


def _word_to_bool(value: Any) -> Any:
    words = {"true": True, "false": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _none(value: Any) -> Any:
    """`null` and `none` on a command line mean no value, as they do in YAML."""
    return None if isinstance(value, str) and value.lower() in ("null", "none", "") else value


def _subgoal_mode(value: Any) -> Any:
    """The original flag: True = optimistic, False = conservative; words are accepted too."""
    words = {"true": "optimistic", "false": "conservative"}
    return words.get(str(value).lower(), value)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a key influences, beside the result of a run."""

    result: bool = True  # False: only what is shown or recorded
    resume: bool = False  # True: a continuation may change it
    identity: bool = True  # False: runs that differ only here are runs of one method
    place: bool = False  # True: where something lies, not what it is
    weights: bool = False  # True: weights fit only a policy with the same value
    players: bool = False  # True: a frozen player acts by it
    prior: bool = False  # True: and a pre-trained prior only a model with the same value
    study: str = ""  # set by a study; what to do instead of giving it


RECORD = Mark(result=False, resume=True, identity=False)
ASIDE = Mark(identity=False)
WEIGHTS = Mark(weights=True)
PRIOR = Mark(weights=True, prior=True)
PLAYERS = Mark(players=True)
_FROM_SCRATCH = Mark(study="Every run trains from scratch")
_BY_POOL = Mark(study="The others are the pool")
_FOLDER = Mark(
    resume=True, identity=False, place=True, study="Choose another --out"
)  # of the run itself


def marked(**wanted: bool) -> frozenset[str]:
    """The keys whose marks have these values, e.g. `marked(resume=True)`."""
    return frozenset(
        key
        for key in Config.model_fields
        if all(getattr(mark_of(key), name) == value for name, value in wanted.items())
    )


def mark_of(key: str) -> Mark:
    """What a key influences."""
    found = [entry for entry in Config.model_fields[key].metadata if isinstance(entry, Mark)]
    return found[-1] if found else Mark()


class Section(BaseModel):
    """Base of all sections: frozen, no unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", coerce_numbers_to_str=True, arbitrary_types_allowed=True
    )


class RunSection(Section):
    """The run as a whole: identity, length, tests, logging, saving."""

    name: Name = Field(min_length=1)
    label: Annotated[Name, Mark(identity=False, study="It is the method's name")]
    run_name: Annotated[FileName, _FOLDER]
    seed: Annotated[Steps, Mark(identity=False, study="Give seeds in the pipeline's file")]
    debug: Annotated[bool, RECORD]
    quiet: Annotated[bool, RECORD]
    local_results_path: Annotated[Text, _FOLDER] = Field(min_length=1)
    use_cuda: Annotated[bool, ASIDE]
    device: Annotated[str, ASIDE] = Field(
        pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, mps, cuda or cuda:<n>"
    )
    torch_threads: Annotated[Whole, Field(ge=0, le=1024)]
    use_kernels: bool

    t_max: Annotated[Count, Mark(resume=True)]
    test_interval: Count
    test_nepisode: Count
    test_greedy: bool
    test_both: bool
    log_interval: Annotated[Count, RECORD]
    runner_log_interval: Count
    learner_log_interval: Count

    use_tensorboard: Annotated[bool, RECORD]
    use_csv: Annotated[bool, RECORD]
    use_wandb: Annotated[bool, RECORD]
    wandb_project: Annotated[str, RECORD] = Field(min_length=1)
    wandb_entity: Annotated[str, RECORD]
    wandb_mode: Annotated[Literal["", "online", "offline"], RECORD]
    use_sacred: Annotated[bool, RECORD]
    mongo_url: Annotated[str, RECORD]
    db_name: Annotated[str, RECORD]

    save_model: Annotated[bool, ASIDE]
    save_model_interval: Annotated[Count, ASIDE]
    keep_models: Annotated[Steps, Mark(resume=True, identity=False)]
    checkpoint_path: Annotated[Text, _FROM_SCRATCH]
    load_step: Annotated[Steps, _FROM_SCRATCH]
    evaluate: Annotated[bool, _FROM_SCRATCH]
    save_replay: Annotated[bool, RECORD]
    replay_episodes: Annotated[Count, RECORD]
    resume: Annotated[
        bool | str,
        BeforeValidator(_word_to_bool),
        Mark(
            resume=True,
            identity=False,
            place=True,
            study="Unfinished runs are resumed anyway",
        ),
    ]
    resume_interval: Annotated[Steps, ASIDE]


class EnvSection(Section):
    """The environment and how its per-agent rewards are used."""

    env: str
    env_args: Keywords
    common_reward: bool
    reward_scalarisation: Literal["sum", "mean"]
    limit_terminates: bool
    reward_weights: Annotated[Keywords, AfterValidator(_reward_weights)]


class RolloutSection(Section):
    """How episodes are made."""

    runner: str
    batch_size_run: Count
    test_batch_size_run: Steps
    n_workers: Annotated[Steps, RECORD]
    copies_per_worker: Annotated[Steps, RECORD]
    worker_timeout: Annotated[Positive, RECORD]
    on_worker_failure: Annotated[Literal["stop", "restart"], RECORD]
    max_worker_restarts: Annotated[Steps, RECORD]
    ray_address: Annotated[Name, RECORD]
    ray_cpus_per_worker: Annotated[Positive, RECORD]
    collect_ahead: Annotated[Whole, Field(ge=0, le=64)]


class ReplaySection(Section):
    """What is kept and how often it is learned from."""

    batch_size: Count
    buffer_size: Count
    buffer_cpu_only: bool
    buffer_dtype: Literal["auto", "float32", "float16"]
    updates_per_episode: Positive


class PolicySection(Section):
    """Controller, network and exploration."""

    mac: str
    policy_model: Annotated[str, WEIGHTS]
    agent_args: Annotated[Keywords, WEIGHTS]
    agent_output_type: Annotated[Literal["q", "pi_logits"], WEIGHTS]
    rnn_hidden_dim: Annotated[Width, WEIGHTS]
    mlp_hidden_dims: Annotated[tuple[Width, ...], WEIGHTS] = Field(min_length=1)
    dueling: Annotated[bool, WEIGHTS]
    obs_agent_id: Annotated[bool, WEIGHTS]
    obs_last_action: Annotated[bool, WEIGHTS]
    obs_is_state: Annotated[bool, PRIOR]
    scale_inputs: Annotated[bool, PLAYERS]
    action_selector: str
    epsilon_start: Unit
    epsilon_finish: Unit
    epsilon_anneal_time: Count
    epsilon_decay: Literal["linear", "exp"]
    temperature: Annotated[Positive, PLAYERS]
    mask_before_softmax: bool


class TeamSection(Section):
    """Mixed teams: one learning agent among frozen others."""

    multi_algs: Annotated[bool, _BY_POOL]
    team: Annotated[str, _BY_POOL]
    team_algs: Annotated[Keywords, _BY_POOL]
    train_alg: Annotated[str, _BY_POOL]
    init_param_path: Annotated[Text, Mark(place=True, study="Give the method a prior")]
    is_agent_shift: bool
    agent_shift: Steps
    agent_shift_mode: Literal["rotate", "random"]
    learning_role: str
    opponent_pool: Annotated[Text, Mark(place=True, study="It is the pool of the pipeline")]
    opponent_members: Annotated[tuple[str, ...], Mark(study="Headroom sets it")]
    lineup_mode: Literal["homologue", "mixed"]
    opponent_epsilon: Unit


class OpponentModelSection(Section):
    """What the learning agent infers about the others."""

    am_model: Annotated[str, PRIOR]
    am_hidden_dim: Annotated[Width, PRIOR]
    am_lr: Positive
    am_args: Annotated[Keywords, PRIOR]
    oracle_kind: Literal["future", "target"]
    oracle_steps: Count
    store_inference: bool
    am_feature: Annotated[Literal["latent", "decoded", "both"], WEIGHTS]
    am_present: Annotated[bool, WEIGHTS]
    am_history: Annotated[bool, PRIOR]
    liam_embed_dim: Annotated[Width, PRIOR]
    liam_action_weight: Annotated[Real, Field(ge=0)]
    liam_others_actions: Annotated[bool, PRIOR]


class MelibaSection(Section):
    """The belief about the others' character and mood (`meliba_am`)."""

    meliba_permanent_dim: Annotated[Width, PRIOR]
    meliba_temporal_dim: Annotated[Width, PRIOR]
    meliba_kl_weight: Annotated[Real, Field(ge=0)]
    meliba_decodes: Steps


class TypesSection(Section):
    """The belief over the training opponents (`types_am`)."""

    types_max: Annotated[Width, PRIOR]
    types_feature: Annotated[Literal["most_probable", "belief"], WEIGHTS]
    types_belief_floor: Annotated[Unit, PLAYERS]
    types_teacher: bool


class MoaSection(Section):
    """The goal-conditioned action model of every other player (`moa`)."""

    moa_goal: Annotated[Literal["discrete", "subgoal", "none"], PRIOR]
    moa_update_time: Count
    moa_batch_size: Count
    moa_min_size: Steps
    moa_lr: Positive
    moa_belief_floor: Annotated[Unit, PLAYERS]
    moa_count_discount: Unit
    moa_save_dir: Annotated[Text, Mark(place=True)]


class SubgoalSection(Section):
    """The subgoal model (`omg_am`) and its learner."""

    subgoal_dim: Annotated[Width, PRIOR]
    subgoal_inference: Annotated[Literal["cvae", "mlp"], WEIGHTS]
    subgoal_horizon: Width
    subgoal_mode: Annotated[
        Literal["optimistic", "conservative", "random", "fixed", "event"],
        BeforeValidator(_subgoal_mode),
    ]
    subgoal_horizons: Annotated[tuple[Count, ...], WEIGHTS]
    subgoal_modes: Annotated[Count, WEIGHTS]
    subgoal_fixed_k: Count
    subgoal_source: Annotated[Literal["state", "opponents", "places"], PRIOR]
    subgoal_posterior: Annotated[Literal["sample", "mean"], PLAYERS]
    subgoal_feature: Annotated[Literal["latent", "decoded", "both", "none"], WEIGHTS]
    subgoal_spread: Annotated[bool, WEIGHTS]
    subgoal_condition: Annotated[bool, WEIGHTS]
    subgoal_target: Literal["same", "next"]
    subgoal_value: Literal["mean", "max"]
    subgoal_epsilon_start: Unit
    subgoal_epsilon_finish: Unit
    subgoal_epsilon_anneal_time: Count
    am_kl_weight: Annotated[Real, Field(ge=0)]
    am_others_weight: Annotated[Real, Field(ge=0)]
    prior_kl_weight: Annotated[Real, Field(ge=0)]
    prior_measure: Literal["cells", "variance"]
    prior_min_accuracy: Annotated[Unit, ASIDE]  # asked before anything is learned


class QLearningSection(Section):
    """Value learning."""

    learner: str
    learner_args: Keywords
    gamma: Unit
    lr: Positive
    lr_finish: Unit
    standardise_rewards: bool
    optimizer: Literal["rmsprop", "adam"]
    optim_alpha: Unit
    optim_eps: Positive
    grad_norm_clip: Positive
    double_q: bool
    q_lambda: Unit
    mixer: Annotated[str | None, BeforeValidator(_none)]
    mixer_args: Keywords
    mixing_embed_dim: Width
    hypernet_layers: Annotated[Whole, Field(ge=1, le=2)]
    hypernet_embed: Width
    target_update_interval: Count
    target_update_tau: Unit
    qtran_arch: Literal["qtran_paper", "coma_critic"]
    opt_loss: Annotated[Real, Field(ge=0)]
    nopt_min_loss: Annotated[Real, Field(ge=0)]


class PolicyGradientSection(Section):
    """Actors and their critics: COMA, PPO."""

    critic: Annotated[str | None, BeforeValidator(_none)]
    critic_args: Keywords
    critic_hidden_dims: tuple[Width, ...] = Field(min_length=1)
    critic_lr: Positive
    critic_train_mode: Literal["batch", "seq"]
    share_trunk: bool
    value_coef: Positive
    td_lambda: Unit
    gae_lambda: Unit
    entropy_coef: Annotated[Real, Field(ge=0)]
    ppo_epochs: Count
    ppo_minibatches: Count
    eps_clip: Positive
    value_clip: Annotated[Real, Field(ge=0)]
    standardise_values: bool
    standardise_advantages: bool


class Config(
    RunSection,
    EnvSection,
    RolloutSection,
    ReplaySection,
    PolicySection,
    TeamSection,
    OpponentModelSection,
    MelibaSection,
    TypesSection,
    MoaSection,
    SubgoalSection,
    QLearningSection,
    PolicyGradientSection,
):
    """Every key of a run. Built by `omg.config.loader`, never changed afterwards."""

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        # Policies (on-policy) keep no more than the batch they learn from.
        if self.agent_output_type == "q" and self.batch_size > self.buffer_size:
            raise ValueError(
                f"batch_size={self.batch_size} episodes cannot be sampled from a buffer of "
                f"buffer_size={self.buffer_size}; lower the first or raise the second"
            )
        if self.subgoal_mode == "fixed" and self.subgoal_fixed_k > self.subgoal_horizon:
            raise ValueError(
                f"subgoal_fixed_k={self.subgoal_fixed_k} lies beyond "
                f"subgoal_horizon={self.subgoal_horizon}; raise the horizon"
            )
        beside = self.subgoal_condition or self.subgoal_spread or self.am_model != "omg_am"
        if self.subgoal_feature == "none" and not beside:
            raise ValueError(
                "subgoal_feature=none feeds the policy nothing of the subgoal; set "
                "subgoal_condition=true, or am_model=none_am for no opponent model"
            )
        if self.subgoal_modes > 1 and self.subgoal_inference == "mlp":
            raise ValueError(
                f"subgoal_modes={self.subgoal_modes} are modes of a distribution, and "
                "subgoal_inference=mlp has none; set one of them back"
            )
        if self.epsilon_finish > self.epsilon_start:
            raise ValueError(
                f"epsilon_finish={self.epsilon_finish} is above "
                f"epsilon_start={self.epsilon_start}; exploration only decays"
            )
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes get it by its values: mappings that cannot be changed do not travel."""
        return (type(self).model_validate, (self.as_dict(),))

    def as_dict(self) -> dict[str, Any]:
        """Plain nested values, as they would stand in YAML."""
        values = {key: getattr(self, key) for key in type(self).model_fields}
        plain: dict[str, Any] = _plain(values)
        return plain


# Other names of our keys: PyMARL's, and that of a cluster's address in every other command.
ALIASES = {"agent": "policy_model", "address": "ray_address"}
# Keys of PyMARL that have no place here, and what stands in their place.
NOT_TAKEN = {
    "repeat_id": "Use seed, and label to tell runs apart",
    "critic_q_fn": "Use critic",
    "critic_baseline_fn": "Use critic",
    "critic_train_reps": "The critic makes one step per update; with critic_train_mode=seq, one "
    "per time step",
    "q_nstep": "Targets are λ-returns: use td_lambda, in Q-learning q_lambda (0: one step)",
    "network_size": "QTRAN has PyMARL's small networks: size them with mixing_embed_dim",
}
