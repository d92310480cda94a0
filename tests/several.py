"""Several command lines in one job of MPI: ``mpirun -n RANKS python several.py '[["--eps", "0"], ...]'``.

Each is the program's own main on every rank, as mpirun would start it; only the ranks' start is saved. For command
lines that come to an end all ranks agree on: one that ends the job ends them all.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from mpi4py import MPI

from deot_mpi import run


def main() -> None:
    comm, told = MPI.COMM_WORLD, []
    for arguments in json.loads(sys.argv[1]):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run.main(arguments, comm)
        ranks = comm.gather((code, out.getvalue(), err.getvalue()))
        if ranks is not None:
            codes, outs, errs = zip(*ranks, strict=True)
            assert len(set(codes)) == 1, f"ranks disagree: {codes}"
            told.append({"code": codes[0], "out": "".join(outs), "err": "".join(errs)})
    if comm.rank == 0:
        print(json.dumps(told))


if __name__ == "__main__":
    main()
