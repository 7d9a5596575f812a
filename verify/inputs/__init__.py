"""How inputs are drawn: each an integer function of seed and index."""
