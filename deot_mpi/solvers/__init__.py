"""The solvers: one-pass Sinkhorn (the default), kept partial sums, and MRBCD (Algorithm 1)."""

from deot_mpi.solvers.base import Closing, Measure, Solver, SolverState, Status
from deot_mpi.solvers.kept import KeptSums
from deot_mpi.solvers.mrbcd import MRBCD
from deot_mpi.solvers.sinkhorn import Sinkhorn

__all__ = ["MRBCD", "Closing", "KeptSums", "Measure", "Sinkhorn", "Solver", "SolverState", "Status"]
