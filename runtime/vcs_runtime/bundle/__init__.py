"""The bundle: the contract between `vcs_export`, which writes one, and this runtime, which reads it."""
