"""Files appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import pytest

from deot_mpi.errors import InputError
from deot_mpi.report.files import check_writable, make_folder
from deot_mpi.report.plot import check_plot
from deot_mpi.writing import write_whole


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_whole(path, lambda file: file.write(b"old"))

    def torn(file: IO[bytes]) -> None:
        file.write(b"ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, torn)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_whole(tmp_path / "whole", lambda file: file.write(b""))
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_places_that_cannot_be_written_are_found_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    unwritable = Path("/proc/self/r.json")  # whoever may write it by its mode
    for path in (tmp_path, tmp_path / "no" / "r.json", tmp_path / "file" / "r.json", unwritable):
        with pytest.raises(InputError, match="--json"):
            check_writable(str(path), "--json")
    with pytest.raises(InputError, match="rank 3: --save"):
        make_folder(str(tmp_path / "file"), "--save", "rank 3")
    with pytest.raises(InputError, match="pictures are"):
        check_plot("picture.doc")
