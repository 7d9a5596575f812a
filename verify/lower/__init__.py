"""Ways to compute a kernel: eager, Inductor, Triton, Metal, a user's own; how each is called."""
