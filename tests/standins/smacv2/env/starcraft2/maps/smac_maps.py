"""Stand-in for SMACv2's map registry (see tests/standins/README.md)."""


def get_smac_map_registry():
    return {
        f"10gen_{name}": {
            "n_agents": 10,
            "n_enemies": 10,
            "limit": 200,
            "a_race": race,
            "b_race": race,
            "unit_type_bits": 3,
            "map_type": f"{name}_gen",
            "map_name": "32x32_flat",
        }
        for name, race in (("terran", "T"), ("protoss", "P"), ("zerg", "Z"))
    }
