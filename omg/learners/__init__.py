"""Learners: batches of episodes to better weights. They return metrics and never log."""

from omg.learners.base import Learner, Metrics, Progress
from omg.registry import Registry

LEARNERS: Registry[type[Learner]] = Registry(
    "learner",
    {
        "q_learner": "omg.learners.q_learner:QLearner",
        "am_learner": "omg.learners.am_learner:PriorLearner",
        "omg_learner": "omg.learners.omg_learner:OMGLearner",
        "coma_learner": "omg.learners.coma_learner:ComaLearner",
        "qtran_learner": "omg.learners.qtran_learner:QtranLearner",
        "ppo_learner": "omg.learners.ppo_learner:PPOLearner",
        "ppo_learner_4am": "omg.learners.ppo_learner_4am:LearningAgentPPOLearner",
        "omg_ppo_learner": "omg.learners.omg_ppo_learner:OMGPPOLearner",
        "q_learner_4am": "omg.learners.q_learner_4am:LearningAgentQLearner",
    },
    base=Learner,
)

__all__ = ["LEARNERS", "Learner", "Metrics", "Progress"]
