"""Start values of the parameters: from the data, in several ways that fail in different places."""
