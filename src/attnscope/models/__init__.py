"""Loads models by name: built-ins, folders, GGUF files, the Hub, and adapters on top of any of them.

Start at `attnscope.models.load.load`. This package imports nothing, so built-ins can be listed without torch.
"""
