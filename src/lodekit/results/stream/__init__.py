"""Online filtering: a fitted model that processes rows as they arrive.

- ``stream``: the filter (square-root Kalman filter).
- ``state``: its state, in memory and in files.
- ``input_response``: the response to known inputs.
- ``cusum``: CUSUM alarms.
"""
