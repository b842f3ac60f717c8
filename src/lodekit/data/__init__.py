"""Measurements: tidy series in memory, sums over what is larger, and the files that hold them (docs/fitting.md).

Read `observations` first (a series, and what users give), then `measurements`: all that is known of the data of one
record, which `records` puts together. `sources` is the way in, from anything that a fit accepts: `opening` finds the
tables, `planning` settles what is read of them, `gathering` reads them, with the rules of `tables` for columns and
cells; `clock` makes numbers of dates.

What is too large for memory: `streams` reads tables in pieces, `statistics` are the sums that are kept of them (by
`nufft`), `spool` has their rows on disk, `sampled` finds known inputs there. `inputs` are functions of time that are
known, `moves` what they did in gaps of their logs; `noise` and `units` are what engines ask of measurements beside
their values, `excerpts` shorter records to learn from first, `contradictions` what is refused.

Files that nobody has described yet: `looking` tells what their columns hold, `stepped` which ones somebody set.
`following` reads those that grow.
"""
