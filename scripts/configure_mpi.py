"""Make a plain ``mpirun -n 16`` work with the Open MPI inside this Python environment.

Writes settings into the environment's own files, so they hold for every mpirun of this environment and touch nothing
outside it: more ranks than cores are welcome and give way to each other (host by host, by slots: without that word Open
MPI 5 would put them all on the first host), and transports for fabrics that a single
machine does not have are not searched for (that takes longer than a small job). Not for a cluster's own MPI.
"""

from __future__ import annotations

import sys
from pathlib import Path

SETTINGS = {
    "prte-mca-params.conf": ["rmaps_default_mapping_policy = slot:oversubscribe"],
    "openmpi-mca-params.conf": ["btl = ^ofi,uct", "mtl = ^ofi", "pml = ob1", "mpi_yield_when_idle = 1"],
}
ROOT = ["export OMPI_ALLOW_RUN_AS_ROOT=1", "export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
BEGIN, END = "# deot_mpi: begin", "# deot_mpi: end"


def add_lines(path: Path, lines: list[str]) -> None:
    """Append our lines between two marks; a second run replaces them."""
    text = path.read_text() if path.exists() else ""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2].lstrip("\n") if rest else ""
    path.write_text("\n".join([before.rstrip("\n"), BEGIN, *lines, END, after]).lstrip("\n"))


def main() -> int:
    if sys.prefix == sys.base_prefix:
        print("configure_mpi: this Python is not in a virtual environment; nothing was changed", file=sys.stderr)
        return 2
    environment = Path(sys.prefix)
    if not (environment / "bin" / "mpirun").exists():
        print("configure_mpi: no MPI in this environment (pip install 'deot_mpi[mpi]'); nothing was changed")
        return 0
    for name, lines in SETTINGS.items():
        add_lines(environment / "etc" / name, lines)
    # Open MPI lets root run from the environment only; whoever activates this one as root has chosen to.
    add_lines(environment / "bin" / "activate", ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
