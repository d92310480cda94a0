"""The options of a run, validated once, with the names the command line uses."""

from deot_mpi.options.adapt import METHODS, PENALTIES, READINGS, AdaptOptions
from deot_mpi.options.base import ACCELERATIONS, ESTIMATORS, KERNELS, ON_FAILURE, PRECISIONS, SOLVERS, STOPS, Options
from deot_mpi.options.gromov import MOMENTS, P_UPDATES, SELF_TERMS, GromovOptions
from deot_mpi.options.transport import AuditOptions, EOTOptions

__all__ = [
    "ACCELERATIONS", "ESTIMATORS", "KERNELS", "METHODS", "MOMENTS", "ON_FAILURE", "PENALTIES", "PRECISIONS",
    "P_UPDATES", "READINGS", "SELF_TERMS", "SOLVERS", "STOPS", "AdaptOptions", "AuditOptions", "EOTOptions",
    "GromovOptions", "Options",
]  # fmt: skip
