"""`python -m omg …` is the `omg` command."""

from omg.cli.app import main

if __name__ == "__main__":
    main()
