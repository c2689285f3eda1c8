"""Stand-in for the package smacv2 (see ../README.md). It is not SMACv2."""
