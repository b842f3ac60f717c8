"""The studio: a page in the browser for equations, data and fits, based on the public API."""
