"""GPUs that are not here: their machine code is compiled, counted, and executed on the CPU.

Nothing of this runs unless it is asked for by name, and what it gives is predicted, never measured.
"""
