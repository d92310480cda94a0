"""Many runs in one job of MPI: ``mpirun -n 16 python -m reproduction.agents RUNS.json FOLDER``.

Each is the program itself, as ``mpirun -n 16 python -m deot_mpi.run ARGUMENTS --json FILE`` would run it; only the
ranks' start is saved, which takes seconds where 16 of them share two cores.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from pathlib import Path

from mpi4py import MPI
from processes import announce

from deot_mpi import run


def main() -> int:
    comm, folder = MPI.COMM_WORLD, Path(sys.argv[2])
    for number, arguments in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        path, started = folder / f"{number}.json", time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):  # its table; what goes wrong is said elsewhere
            code = run.main([*arguments, "--json", str(path), "--progress", "none"], comm)
        seconds = time.perf_counter() - started
        if comm.rank == 0 and path.exists():  # also that of a run that diverged, whose code is 1
            announce(number=number, seconds=seconds)
        if code == 2:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
