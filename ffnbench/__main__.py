"""`python -m ffnbench`."""

from ffnbench.cli import main

if __name__ == "__main__":
    main()
