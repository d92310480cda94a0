"""The solvers: MRBCD (Algorithm 1), kept partial sums, and the block Sinkhorn step."""

from deot_mpi.solvers.base import Measure, Solver, SolverState, Status
from deot_mpi.solvers.kept import KeptSums, Sinkhorn
from deot_mpi.solvers.mrbcd import MRBCD

__all__ = ["MRBCD", "KeptSums", "Measure", "Sinkhorn", "Solver", "SolverState", "Status"]
