"""Decentralised entropic optimal transport over MPI."""

try:
    from mpi4py import MPI as _MPI  # noqa: F401
except (ImportError, RuntimeError) as _error:
    raise ImportError(
        "deot_mpi found no MPI library: pip install 'deot_mpi[mpi]' brings one, on a cluster load its MPI module."
    ) from _error

from deot_mpi.adapt import adapt
from deot_mpi.adaptation.transport import DistributedTransport
from deot_mpi.audit import audit
from deot_mpi.eot import eot
from deot_mpi.errors import DeotError, InputError
from deot_mpi.gromov import gromov
from deot_mpi.options import AdaptOptions, AuditOptions, EOTOptions, GromovOptions
from deot_mpi.privacy.findings import AuditResult
from deot_mpi.result import AdaptResult, EOTResult, GromovResult

__version__ = "0.1.0"

__all__ = [
    "AdaptOptions",
    "AdaptResult",
    "AuditOptions",
    "AuditResult",
    "DeotError",
    "DistributedTransport",
    "EOTOptions",
    "EOTResult",
    "GromovOptions",
    "GromovResult",
    "InputError",
    "__version__",
    "adapt",
    "audit",
    "eot",
    "gromov",
]
