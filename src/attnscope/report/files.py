"""What a report consists of: its files with their checksums, so that a changed or missing one is noticed."""

from __future__ import annotations

import json
from pathlib import Path

from attnscope.analysis.run import Run
from attnscope.figures import KINDS
from attnscope.runs.integrity import file_sha256, is_intact

PAGE, EVIDENCE, EVIDENCE_DATA, ANSWER = "report.html", "evidence.md", "evidence.json", "answer.json"
FIGURES, COMPARISONS = "figures", "comparisons"
INDEX = "report.json"


def write_index(run: Run) -> None:
    """List the report's files as they are now; the last step of a report."""
    files = [run.path / name for name in (PAGE, EVIDENCE, EVIDENCE_DATA, ANSWER)]
    files += [path for folder in (FIGURES, COMPARISONS) for path in sorted((run.path / folder).glob("[!.]*"))]
    content = {**_made_from(run), "files": {_name(run, path): file_sha256(path) for path in files if path.is_file()}}
    partial = run.path / f".{INDEX}.partial"
    partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    partial.replace(run.path / INDEX)


def written_answer(run: Run) -> list[str]:
    """The answer to the study's question as the report gives it; none if there is no report of the run as it is now."""
    digest = (_index(run) or {}).get(ANSWER)
    if digest is None or not is_intact(run.path / ANSWER, digest):
        return []
    sentences: list[str] = json.loads((run.path / ANSWER).read_text(encoding="utf-8"))
    return sentences


def is_reported(path: Path) -> bool:
    """Whether a run has a report, made from the run as it is now, with every file as it was written."""
    run = Run(path)
    index = _index(run)
    return index is not None and not _changed(run, index)


def changed_files(path: Path) -> list[str]:
    """The files of a run's report that are missing or were changed since; none if the run has moved on anyway."""
    run = Run(path)
    index = _index(run)
    return [] if index is None else _changed(run, index)


def _index(run: Run) -> dict[str, str] | None:
    try:
        content = json.loads((run.path / INDEX).read_text(encoding="utf-8"))
        files = {str(name): str(digest) for name, digest in content.pop("files").items()}
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return files if content == _made_from(run) and PAGE in files else None


def _made_from(run: Run) -> dict[str, object]:
    evidence = [run.manifest.evidence, run.statistics_key]  # more of it may be there than when it was written
    return {"run": run.manifest.key, "tables": run.tables_key, "evidence": evidence, "plugins": KINDS.fingerprints}


def _changed(run: Run, files: dict[str, str]) -> list[str]:
    return [name for name, digest in files.items() if not is_intact(run.path / name, digest)]


def _name(run: Run, path: Path) -> str:
    return path.relative_to(run.path).as_posix()
