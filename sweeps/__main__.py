"""Entry point of ``python -m sweeps``."""

from sweeps.cli import main

if __name__ == "__main__":
    main()
