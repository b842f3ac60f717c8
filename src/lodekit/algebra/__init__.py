"""Exact arithmetic only: operator matrices over Q(parameters)[d], their normal forms and what these prove."""
