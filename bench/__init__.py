"""What a measurement costs, compared with a plain forward pass and with other tools: `python -m bench`.

Nothing here imports attnscope or torch until a child process does: a contestant's environment has only its own
packages, and the parent stays small, so that it takes no memory or core away from what it measures.
"""
