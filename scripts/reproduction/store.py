"""Finished runs, one file each, found again by what was run and by what program: so nothing is run twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import deot_mpi
from deot_mpi.writing import write_whole

_PACKAGE = Path(deot_mpi.__file__).parent
_SILENT = "report"
"""The room that no number depends on: how results are shown."""


def source_digest(beside: Iterable[Path] = ()) -> str:
    """Of every line that a number may depend on: the package, and the files ``beside`` it."""
    within = (
        path
        for path in _PACKAGE.rglob("*")
        if path.suffix in (".py", ".c") and path.relative_to(_PACKAGE).parts[0] != _SILENT
    )
    digest = hashlib.sha256(deot_mpi.__version__.encode())
    for path in [*sorted(within), *beside]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


class Store:
    """A folder of finished runs. A file is there whole or not at all, and is of these settings and this source."""

    def __init__(self, folder: Path, source: str) -> None:
        self._folder, self._source = folder, source
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, settings: dict[str, Any]) -> Path:
        text = json.dumps([self._source, settings], sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def get(self, settings: dict[str, Any]) -> dict[str, Any] | None:
        """What was found with these settings, None if they have not been run, or the file is damaged."""
        try:
            kept = json.loads(self._path(settings).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        found: dict[str, Any] | None = kept.get("found") if isinstance(kept, dict) else None
        return found

    def put(self, settings: dict[str, Any], found: dict[str, Any]) -> None:
        text = json.dumps({"settings": settings, "source": self._source, "found": found}) + "\n"
        write_whole(self._path(settings), lambda file: file.write(text.encode()))
