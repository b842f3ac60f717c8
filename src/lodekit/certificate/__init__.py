"""Whether the curves that users get satisfy the equations that users wrote: what is proved, and what is measured.

`certify` is all of it (docs/bands.md says what it shows). `written` evaluates the equations from their text, `pieces`
differentiates curves that are known by values, `measure` puts the one into the other, `sense` says in which sense
equations with white noise hold.
"""
