"""The decision of `verify.decide` in C++ for the host and in Triton for a GPU."""
