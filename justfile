# `just` alone runs what a change must pass before it is committed.

default: check

# format, lint, imports, types, tests
check:
    ruff format --check .
    ruff check .
    lint-imports
    mypy
    pytest -q

# mend what can be mended by machine
fix:
    ruff check --fix .
    ruff format .

# tests that need a CUDA device
gpu:
    pytest -q -m gpu

# tests that need a recogniser (FISHTTS_JUDGES names the folder that recipes/minnow/judges.py made)
quality:
    pytest -q -m quality

# how fast, with machine and versions printed
bench:
    python bench/say.py

# how fast the kernels are (needs a CUDA device)
bench-kernels:
    python bench/kernels.py

# regenerate the command reference; a test fails when it is out of date
docs:
    python docs/make_cli.py
