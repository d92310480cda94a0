"""The communication protocol E: who talks to whom, and how much each pair counts."""

from deot_mpi.protocol.choose import choose_protocol
from deot_mpi.protocol.protocol import Protocol, ProtocolReport

__all__ = ["Protocol", "ProtocolReport", "choose_protocol"]
