"""From a selection to cells: what is to be done, and doing it, one job after the other."""
