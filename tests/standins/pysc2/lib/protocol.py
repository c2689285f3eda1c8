"""Stand-in for pysc2.lib.protocol (see ../../README.md)."""


class ConnectionError(Exception):
    """As in pysc2, no relative of Python's ConnectionError."""


class ProtocolError(Exception):
    """The game answered with an error."""
