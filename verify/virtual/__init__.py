"""GPUs that are not here: their machine code is compiled, counted, and executed on the CPU.

Nothing here runs unless it is named, and its results are predictions, never measurements.
"""
