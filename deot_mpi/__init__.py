"""Decentralised entropic optimal transport over MPI."""

from deot_mpi.eot import eot
from deot_mpi.errors import DeotError, InputError
from deot_mpi.options import EOTOptions
from deot_mpi.result import EOTResult

__version__ = "0.1.0"

__all__ = ["DeotError", "EOTOptions", "EOTResult", "InputError", "__version__", "eot"]
