"""The commands that build and fetch bundles."""
