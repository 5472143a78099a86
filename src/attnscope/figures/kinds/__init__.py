"""One module a kind of figure."""
