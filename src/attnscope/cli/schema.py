"""`attnscope schema`: what a study file may hold, for editors and for you."""

from __future__ import annotations

import json


def schema() -> None:
    """Print the JSON schema of a study file, including what installed plugins add."""
    from attnscope.figures.validation import study_schema

    print(json.dumps(study_schema(), indent=1, ensure_ascii=False))  # noqa: T201
