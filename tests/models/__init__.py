"""Models load whole or are refused with a reason."""
