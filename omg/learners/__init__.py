"""Learners: batches of episodes to better weights. They return metrics and never log."""

from omg.learners.base import Learner, Metrics, Progress
from omg.registry import PartRegistry

LEARNERS: PartRegistry[Learner] = PartRegistry(
    "learner",
    {
        "q_learner": "omg.learners.q_learner:QLearner",
        "q_learner_4am": "omg.learners.q_learner:QLearner",
        "omg_learner": "omg.learners.q_learner:OMGLearner",
        "qtran_learner": "omg.learners.qtran_learner:QtranLearner",
        "coma_learner": "omg.learners.coma_learner:ComaLearner",
        "ppo_learner": "omg.learners.ppo_learner:PPOLearner",
        "ppo_learner_4am": "omg.learners.ppo_learner:PPOLearner",
        "omg_ppo_learner": "omg.learners.ppo_learner:OMGPPOLearner",
        "am_learner": "omg.learners.am_learner:ModelLearner",
    },
    base=Learner,
    given=("config", "spec", "mac", "device"),
    args_key="learner_args",
)

__all__ = ["LEARNERS", "Learner", "Metrics", "Progress"]
