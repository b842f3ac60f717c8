"""What the user says: equations as text, parameters, and the facts that the algebra finds out about them."""
