"""``python -m fishtts``."""

from fishtts.cli import main

if __name__ == "__main__":
    main()
