"""Where jobs deliver to: one class for each kind of sink."""
