"""Families of kernels: the truth of one kind of kernel, and what its elements may be. A family holds what its kernels
share, so that a kernel is an oracle, its facts and one call."""
