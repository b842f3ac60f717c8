"""Online filtering: a fitted model that processes rows as they arrive.

- `stream`: the filter (square-root Kalman filter).
- `input_response`: the response to known inputs.
- `cusum`: CUSUM alarms.
"""
