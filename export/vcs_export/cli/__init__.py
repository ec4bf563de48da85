"""The commands `vcs-runtime export`, `engine` and `fetch`."""
