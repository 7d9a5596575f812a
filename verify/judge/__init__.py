"""The judge: which region an element lies in, what it may be, and what a cell's status is."""
