"""Opponent models: what is inferred about the others (who they are is `omg.opponents`)."""

from omg.config.schema import Config
from omg.modules.opponent_models.base import Inferred, ModelRows, OpponentModel
from omg.registry import PartRegistry

OPPONENT_MODELS: PartRegistry[OpponentModel] = PartRegistry(
    "am_model",
    {
        "none_am": "omg.modules.opponent_models.base:NoModel",
        "base_am": "omg.modules.opponent_models.base_am:NaiveModel",
        "liam_am": "omg.modules.opponent_models.liam_am:LiamModel",
        "meliba_am": "omg.modules.opponent_models.meliba_am:MelibaModel",
        "types_am": "omg.modules.opponent_models.types_am:TypesModel",
        "moa": "omg.modules.opponent_models.moa:MoaModel",
        "omg_am": "omg.modules.opponent_models.omg_am:SubgoalModel",
        "control_am": "omg.modules.opponent_models.control_am:ControlModel",
        "oracle_am": "omg.modules.opponent_models.control_am:OracleModel",
    },
    base=OpponentModel,
    given=("spec", "own_dim", "config"),
    args_key="am_args",
)

# MOA whose goals are OMG's subgoals is a model of another kind, with a prior.
_WITH_SUBGOALS = "omg.modules.opponent_models.moa_omg:MoaSubgoalModel"


def model_kind(config: Config) -> type[OpponentModel]:
    """The class of the configured model."""
    return OPPONENT_MODELS[model_name(config)]


def model_name(config: Config) -> str:
    """What the registry calls the configured model."""
    subgoals = config.am_model == "moa" and config.moa_goal == "subgoal"
    return _WITH_SUBGOALS if subgoals else config.am_model


__all__ = [
    "OPPONENT_MODELS",
    "Inferred",
    "ModelRows",
    "OpponentModel",
    "model_kind",
    "model_name",
]
