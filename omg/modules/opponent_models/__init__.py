"""Opponent models: what is inferred about the others (who they are is `omg.opponents`)."""

from omg.modules.opponent_models.base import Inferred, ModelRows, OpponentModel
from omg.registry import PartRegistry

OPPONENT_MODELS: PartRegistry[OpponentModel] = PartRegistry(
    "am_model",
    {
        "none_am": "omg.modules.opponent_models.base:NoModel",
        "base_am": "omg.modules.opponent_models.base_am:NaiveModel",
        "liam_am": "omg.modules.opponent_models.liam_am:LiamModel",
        "omg_am": "omg.modules.opponent_models.omg_am:SubgoalModel",
        "control_am": "omg.modules.opponent_models.control_am:ControlModel",
        "oracle_am": "omg.modules.opponent_models.control_am:OracleModel",
    },
    base=OpponentModel,
    given=("spec", "own_dim", "config"),
    args_key="am_args",
)

__all__ = ["OPPONENT_MODELS", "Inferred", "ModelRows", "OpponentModel"]
