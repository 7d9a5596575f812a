"""Families of kernels: where the truth of one kind of kernel comes from, and what its elements may be. What a kind of
kernel shares lives here, so that a kernel of it is an oracle, its facts and one call."""
