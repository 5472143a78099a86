"""What a measurement costs, against the plain forward and against other tools: `python -m bench`.

Nothing here imports attnscope or torch until a child process does: a contestant's environment holds only its own
packages, and the parent stays small so that it takes no memory or core from what it measures.
"""
