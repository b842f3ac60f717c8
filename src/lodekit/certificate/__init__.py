"""Whether the curves that users get satisfy the equations that users wrote: what is proved, and what is measured."""
