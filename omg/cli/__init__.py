"""The `omg` command: one file per subcommand."""
