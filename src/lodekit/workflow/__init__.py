"""Complete runs from files to results, for the command line, the studio and scripts.

`pipeline` reads a system and data, fits, and writes the results. `new_data` reads further files for a fitted model and
monitors growing ones. `system_proposal` proposes a system file for a data file.
"""
