"""The files that a kit carries to install itself. They run there, and are never imported here."""
