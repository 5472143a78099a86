"""Where attnscope keeps files that it can download or create again."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """The cache: ATTNSCOPE_CACHE if set, else the user's cache folder. It may not exist yet."""
    override = os.environ.get("ATTNSCOPE_CACHE")
    return Path(override).expanduser().absolute() if override else user_cache_path("attnscope")
