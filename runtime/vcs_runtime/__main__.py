"""`python -m vcs_runtime` is `vcs-runtime`."""

from vcs_runtime.cli import main

if __name__ == "__main__":
    main()
