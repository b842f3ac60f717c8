"""Responses of linear state spaces to known inputs, from rest, with derivatives in the parameters."""
