"""Kernels: what an agent shows of its samples, and the log-kernel between what two agents show."""

from deot_mpi.kernel.base import Disclosure, Kernel, LogPairs, ShiftedPairs, Shown, log_block, parted, stacked
from deot_mpi.kernel.distance import RawKernel, SketchKernel, distance_pairs

__all__ = [
    "Disclosure", "Kernel", "LogPairs", "RawKernel", "ShiftedPairs", "Shown", "SketchKernel", "distance_pairs",
    "log_block", "parted", "stacked",
]  # fmt: skip
