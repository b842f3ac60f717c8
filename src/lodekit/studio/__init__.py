"""The studio: type equations, drop data, see the answer. A page in the browser over the public API."""
