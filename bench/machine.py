"""The machine and the packages of a run."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path

PACKAGES = ("torch", "transformers", "attnscope", "transformer-lens", "nnsight")

_ASK = """
import importlib.metadata as metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def versions(python: Path) -> dict[str, str]:
    """The versions of PACKAGES in an interpreter's environment."""
    process = subprocess.run([python, "-c", _ASK, *PACKAGES], capture_output=True, text=True, check=True)
    by_package: dict[str, str] = json.loads(process.stdout)
    return by_package


def description() -> dict[str, str]:
    one, five, _ = os.getloadavg()
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB",
        "load before": f"{one:.2f} (1 min), {five:.2f} (5 min)",
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
