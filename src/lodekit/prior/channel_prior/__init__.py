"""channel_prior."""
