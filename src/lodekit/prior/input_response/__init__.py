"""input_response."""
