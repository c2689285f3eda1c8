"""Stand-in for pysc2 (see ../README.md): the exceptions of its protocol, nothing else."""
