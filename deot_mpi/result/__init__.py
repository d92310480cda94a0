"""What a run gives back: named values, who took part, how it went, what it cost."""

from deot_mpi.result.account import AgentSummary, EdgeTraffic, LedgerReport, Traffic, summarise_ledger
from deot_mpi.result.base import LostAgent, Result, SelfTermPoint, TracePoint, Values
from deot_mpi.result.problems import (
    AdaptResult,
    EOTResult,
    EpsChoice,
    EpsScore,
    ErrorDecomposition,
    GromovReference,
    GromovResult,
    ReferenceValues,
    SelfCosts,
    StartReport,
)

__all__ = [
    "AdaptResult", "AgentSummary", "EOTResult", "EdgeTraffic", "EpsChoice", "EpsScore", "ErrorDecomposition",
    "GromovReference", "GromovResult", "LedgerReport", "LostAgent", "ReferenceValues", "Result", "SelfCosts",
    "SelfTermPoint", "StartReport", "TracePoint", "Traffic", "Values", "summarise_ledger",
]  # fmt: skip
