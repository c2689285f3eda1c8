"""An opponent model of one's own: where the others stand and what they do.

It compresses what the agent sees into a few numbers, from which it must tell the others' places
and actions. The policy is fed these numbers. Worth it where not all is seen. From this folder:

    omg pool add pools/scripts --script=nearest_food
    omg train --config=iql_am --env-config=foraging --opponent_pool=pools/scripts \\
        --am_model=my_opponent_model:WhereAndWhat --am_args.embed_dim=8 \\
        with env_args.key=Foraging-2s-8x8-2p-3f-v3
"""

import torch
from torch import nn
from torch.nn import functional

from omg.modules.opponent_models.base import MemorylessModel, SubgoalSource
from omg.types import OmgError


class WhereAndWhat(MemorylessModel):
    """Feature: the embedding. Loss: square error of the others' places + action_weight times the
    cross-entropy of their actions."""

    def __init__(self, *, spec, own_dim, config, embed_dim=16, action_weight=1.0):
        super().__init__()
        if not spec.agent_features:
            raise OmgError(f"WhereAndWhat must know whose features are whose in {spec.name}.")
        self.feature_dim = embed_dim
        self._action_weight = action_weight
        self._others, self._actions = spec.n_agents - 1, spec.n_actions
        self._source = SubgoalSource(spec)
        others_last = self._others * self._actions
        self.encoder = nn.Sequential(
            nn.Linear(own_dim + others_last, config.am_hidden_dim),
            nn.ReLU(),
            nn.Linear(config.am_hidden_dim, embed_dim),
            nn.Tanh(),
        )
        self.where = nn.Linear(embed_dim, self._source.place_dim)
        self.what = nn.Linear(embed_dim, self._others * self._actions)

    def embed(self, rows):
        """What is known at R moments to R embeddings; before the first step no action is known."""
        last = functional.one_hot(rows.others_last + 1, self._actions + 1)[..., 1:]
        return self.encoder(torch.cat([rows.own, last.flatten(1).to(rows.own)], -1))

    def feature(self, rows):
        with torch.no_grad():
            return self.embed(rows)

    def loss(self, rows):
        embedding = self.embed(rows)
        places = self._source.place(rows.state, rows.state, rows.seats)  # relative to oneself
        where = (self.where(embedding) - places).square().mean()
        logits = self.what(embedding).view(-1, self._actions)
        actions = rows.others_actions.flatten()
        what = functional.cross_entropy(logits, actions)
        right = (logits.argmax(-1) == actions).float().mean()
        return {
            "am_loss": where + self._action_weight * what,
            "am_where": where.detach(),
            "am_what": what.detach(),
            "am_accuracy": right,
        }

    def files(self):
        return {"where_and_what": self}
