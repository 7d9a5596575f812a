"""The ways in: the command line, pytest's plugin, Python."""
