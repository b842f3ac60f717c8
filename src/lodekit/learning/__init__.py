"""Starts, optimiser, standard errors, result object."""
