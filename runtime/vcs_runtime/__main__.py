"""Run the command line by `python -m vcs_runtime`."""

from vcs_runtime.cli import main

if __name__ == "__main__":
    main()
