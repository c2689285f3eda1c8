"""Games on a grid whose players go for targets: Stag Hunt and Snowdrift."""
