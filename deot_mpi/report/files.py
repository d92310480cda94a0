"""Results on disk. Every file appears whole or not at all."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from deot_mpi.data.files import potential_file
from deot_mpi.errors import InputError
from deot_mpi.privacy.findings import AuditResult
from deot_mpi.result import AdaptResult, GromovResult, Result
from deot_mpi.writing import write_whole


def check_writable(path: str | None, flag: str) -> None:
    """Find out before the work, not after it, that a result could not be written."""
    if path is None:
        return
    folder = Path(path).parent
    if Path(path).is_dir():
        raise InputError(f"{flag} {path}: is a folder; name a file in it.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"{flag} {path}: the folder {folder} does not exist or cannot be written ({error}); make it first."
        ) from error


def make_folder(path: str | None, flag: str, owner: str) -> None:
    """Make the folder results are saved in, on this agent's own host."""
    if path is None:
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(f"{owner}: {flag} {path} cannot be written ({error}).") from error


def write_json(result: Result | AuditResult, path: str) -> None:
    text = json.dumps(json_ready(result.to_dict()), indent=2, allow_nan=False) + "\n"
    write_whole(Path(path), lambda file: file.write(text.encode()))


def save_potential(result: Result, folder: str) -> None:
    """This agent's block of u or v, in cost units; P, where there is one; what the plan has brought it."""
    arrays: dict[str, Any] = {
        "potential": result.potential,
        "role": np.array(result.role.value),
        "agent": np.array(result.index),
        "eps": np.array(result.eps),
        "rounds": np.array(result.rounds),
    }
    if isinstance(result, GromovResult):
        arrays["alignment"] = result.alignment
    if isinstance(result, AdaptResult):
        arrays |= {"predictions": result.predictions, "scores": result.scores, "mapped": result.mapped}
        arrays["classes"] = np.array(result.classes)
    write_whole(potential_file(folder, result.role, result.index), lambda file: np.savez(file, **arrays))


def json_ready(value: Any) -> Any:
    """JSON has no infinities and no NaN: a diverged run's become null."""
    if isinstance(value, dict):
        return {str(key): json_ready(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(entry) for entry in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
