"""Stand-in for smacv2.env (see tests/standins/README.md): the battle of the other stand-in, with
SMACv2's further arguments and its wrapper, which writes into the configuration it is given."""

import smac.env

from smacv2.env.starcraft2.maps import smac_maps

__all__ = ["StarCraft2Env", "StarCraftCapabilityEnvWrapper"]


class StarCraft2Env(smac.env.StarCraft2Env):
    """Not SMACv2: a stand-in with its interface."""

    def __init__(
        self,
        map_name="8m",
        step_mul=8,
        move_amount=2,
        difficulty="7",
        game_version=None,
        seed=None,
        continuing_episode=False,
        obs_all_health=True,
        obs_own_health=True,
        obs_last_action=False,
        obs_pathing_grid=False,
        obs_terrain_height=False,
        obs_instead_of_state=False,
        obs_timestep_number=False,
        obs_own_pos=False,
        obs_starcraft=True,
        conic_fov=False,
        num_fov_actions=12,
        state_last_action=True,
        state_timestep_number=False,
        reward_sparse=False,
        reward_only_positive=True,
        reward_death_value=10,
        reward_win=200,
        reward_defeat=0,
        reward_negative_scale=0.5,
        reward_scale=True,
        reward_scale_rate=20,
        use_unit_ranges=False,
        min_attack_range=2,
        kill_unit_step_mul=2,
        fully_observable=False,
        capability_config={},  # noqa: B006 - as there
        replay_dir="",
        replay_prefix="",
        window_size_x=1920,
        window_size_y=1200,
        heuristic_ai=False,
        heuristic_rest=False,
        debug=False,
        prob_obs_enemy=1.0,
        action_mask=True,
    ):
        super().__init__(
            map_name="3m",
            seed=seed,
            continuing_episode=continuing_episode,
            state_last_action=state_last_action,
            replay_dir=replay_dir,
            replay_prefix=replay_prefix,
        )
        params = smac_maps.get_smac_map_registry()[map_name]
        team = capability_config["team_gen"]
        self._set_sizes(params, team["n_units"], team["n_enemies"])
        self.max_reward = self.n_enemies * reward_death_value + reward_win
        self.episode_limit, self.map_name = params["limit"], map_name

    def reset(self, episode_config={}):  # noqa: B006 - as there
        assert episode_config["team_gen"]
        return super().reset()


class StarCraftCapabilityEnvWrapper:
    """Not SMACv2: a stand-in with its interface."""

    def __init__(self, **kwargs):
        self.distribution_config = kwargs["capability_config"]
        for key, config in self.distribution_config.items():
            if key not in ("n_units", "n_enemies"):
                config["env_key"] = key
                config["n_units"] = self.distribution_config["n_units"]
                config["n_enemies"] = self.distribution_config["n_enemies"]
        self.env = StarCraft2Env(**kwargs)

    def reset(self):
        return self.env.reset({"team_gen": {"ally_team": [], "enemy_team": [], "id": 0}})

    def __getattr__(self, name):
        if hasattr(self.env, name):
            return getattr(self.env, name)
        raise AttributeError

    def get_avail_actions(self):
        raise ValueError("some versions unpack two values here, which fails")

    def step(self, actions):
        return self.env.step(actions)

    def close(self):
        return self.env.close()
