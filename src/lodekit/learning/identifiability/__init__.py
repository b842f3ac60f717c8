"""Which parameters the data tell (docs/diagnosis.md).

`verdicts` asks three witnesses: `structure` by exact algebra, `motion` by the curves that were measured, `profiles` on
the `landscape` of the evidence by learning all else anew; `neighbours` are parameters that follow one at its bound.
Other values that fit as well are `rivals`; those among them that behave alike, whatever is measured, are `twins`.
"""
