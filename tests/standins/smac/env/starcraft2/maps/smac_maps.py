"""Stand-in for SMAC's map registry (see tests/standins/README.md), from our own table of maps."""

from omg.envs.sc2.args import MAPS


def get_smac_map_registry():
    return {
        name: {
            "n_agents": info.n_agents,
            "n_enemies": info.n_enemies,
            "limit": info.limit,
            "a_race": info.races[0],
            "b_race": info.races[1],
            "unit_type_bits": info.type_bits,
            "map_type": "marines",
        }
        for name, info in MAPS.items()
    }
