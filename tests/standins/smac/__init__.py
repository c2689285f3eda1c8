"""Stand-in for the package smac (see ../README.md). It is not SMAC."""
