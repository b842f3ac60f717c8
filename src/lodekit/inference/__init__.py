"""Evidence with its gradient, and the posterior."""
