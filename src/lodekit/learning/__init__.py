"""Learning: the objective, starts, searches, the curvature with its standard errors, warnings and tables."""
