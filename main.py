"""`python main.py --config=qmix --env-config=foraging …`, as in PyMARL."""

import sys

from omg.cli.train import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
