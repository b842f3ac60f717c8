"""The response of observables to known inputs: the prior mean and its derivatives, with dead times (delays).

- `hold`: steps between samples under zero-order and first-order hold, and their schedule.
- `response`: states, observables, Jacobians and adjoint-state gradients of a state space.
- `mean`: the response of one record, or of chunks of a long record.
"""
