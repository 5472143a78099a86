"""One of everything that a package can add to attnscope, a module each."""
