"""Digests of `verify.decide` in C++ for the host."""
