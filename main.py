"""`python main.py --config=qmix --env-config=foraging …`, as in PyMARL."""

import sys

from omg.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
