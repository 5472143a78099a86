"""A name becomes a loaded model: built-ins, folders, GGUF files, the Hub, and adapters on top of any of them.

The way in is `attnscope.models.load.load`. This package imports nothing, so built-ins are listed without torch.
"""
