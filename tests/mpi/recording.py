"""A communicator that keeps a copy of every buffer it is asked to send."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from mpi4py import MPI


@dataclass
class Sent:
    """One hand-over of bytes to MPI: to one rank, or (destination None) to a collective."""

    call: str
    destination: int | None
    content: bytes
    tag: int | None = None
    within: bool = False
    """On a communicator of some of the ranks, whose numbers the destination is of."""


@dataclass
class Record:
    sent: list[Sent] = field(default_factory=list)
    held: int = 0
    """Communicators and persistent requests made and not yet freed."""

    def add(
        self, call: str, destination: int | None, buffer: object, tag: int | None = None, within: bool = False
    ) -> None:
        self.sent.append(Sent(call, destination, np.asarray(buffer).tobytes(), tag, within))


def holds_samples(content: bytes, rows: np.ndarray, centre: np.ndarray) -> bool:
    """Whether any coordinate of any row, as given or centred, stands in these bytes, or two in a row in single
    precision (one has too few bits: now and then a number of seconds has the same)."""
    wanted = np.concatenate([rows.ravel(), (rows - centre).ravel()])
    doubles = np.frombuffer(content[: len(content) // 8 * 8], dtype=np.float64)
    singles = np.frombuffer(content[: len(content) // 4 * 4], dtype=np.float32)
    with np.errstate(invalid="ignore"):  # bits and masks read as numbers may be anything
        near = np.abs(doubles[:, None] - wanted[None, :]) <= 1e-10 * np.abs(wanted)[None, :]
    short = wanted.astype(np.float32)
    pairs = (singles[:-1, None] == short[None, :-1]) & (singles[1:, None] == short[None, 1:])
    return bool(near.any() or pairs.any())


class RecordingRequest(MPI.Prequest):
    """A persistent send: what counts is what the buffer holds whenever it is started."""

    def remember(
        self, record: Record, buffer: object, destination: int | None, within: bool = False
    ) -> RecordingRequest:
        """Note a new request; a receive has no destination."""
        record.held += 1
        self.record, self.buffer, self.destination, self.within = record, buffer, destination, within
        return self

    def Start(self) -> None:  # noqa: N802
        if self.destination is not None:
            self.record.add("Start", self.destination, self.buffer, within=self.within)
        super().Start()

    def Free(self) -> None:  # noqa: N802
        self.record.held -= 1
        super().Free()


#: Calls that move no data of the caller's.
SILENT = {
    "Idup", "Split", "Split_type", "Free", "Irecv", "Recv_init", "Get_rank", "Get_size", "rank", "size", "Ibarrier",
    "Barrier", "handle", "group", "name", "topology",
}  # fmt: skip
RECORDED = {"Isend", "Send_init", "Iallreduce", "Ireduce", "Ibcast", "Igatherv"}


class RecordingComm(MPI.Intracomm):
    """Forwards what this project uses and records it; any other way to send raises instead of escaping notice."""

    record: Record
    within = False

    def __getattribute__(self, name: str) -> object:
        if not name.startswith("_") and name not in SILENT | RECORDED | {"record", "recording", "within"}:
            raise AssertionError(f"communicator call {name} is not recorded")
        return super().__getattribute__(name)

    def recording(self, record: Record) -> RecordingComm:
        self.record = record
        return self

    def Idup(self, info: MPI.Info = MPI.INFO_NULL):  # type: ignore[no-untyped-def]  # noqa: N802
        self.record.held += 1
        duplicate, request = super().Idup()
        return duplicate.recording(self.record), request

    def Split(self, color: int = 0, key: int = 0) -> RecordingComm:  # noqa: N802
        self.record.held += 1
        part = RecordingComm(super().Split(color, key)).recording(self.record)
        part.within = True
        return part

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> RecordingComm:  # noqa: N802
        self.record.held += 1
        return RecordingComm(super().Split_type(split_type, key)).recording(self.record)

    def Free(self) -> None:  # noqa: N802
        self.record.held -= 1
        super().Free()

    def Isend(self, buf, dest, tag=0):  # type: ignore[no-untyped-def]  # noqa: N802
        self.record.add("Isend", dest, buf, tag, self.within)
        return super().Isend(buf, dest, tag)

    def Send_init(self, buf, dest, tag=0):  # type: ignore[no-untyped-def]  # noqa: N802
        return RecordingRequest(super().Send_init(buf, dest, tag)).remember(self.record, buf, dest, self.within)

    def Recv_init(self, buf, source, tag=0):  # type: ignore[no-untyped-def]  # noqa: N802
        return RecordingRequest(super().Recv_init(buf, source, tag)).remember(self.record, buf, None)

    def Iallreduce(self, sendbuf, recvbuf, op=MPI.SUM):  # type: ignore[no-untyped-def]  # noqa: N802
        self.record.add("Iallreduce", None, recvbuf if sendbuf is MPI.IN_PLACE else sendbuf)
        return super().Iallreduce(sendbuf, recvbuf, op)

    def Ireduce(self, sendbuf, recvbuf, op=MPI.SUM, root=0):  # type: ignore[no-untyped-def]  # noqa: N802
        self.record.add("Ireduce", None, recvbuf if sendbuf is MPI.IN_PLACE else sendbuf)
        return super().Ireduce(sendbuf, recvbuf, op, root)

    def Ibcast(self, buf, root=0):  # type: ignore[no-untyped-def]  # noqa: N802
        if self.rank == root:
            self.record.add("Ibcast", None, buf)
        return super().Ibcast(buf, root)

    def Igatherv(self, sendbuf, recvbuf, root=0):  # type: ignore[no-untyped-def]  # noqa: N802
        self.record.add("Igatherv", None, sendbuf)
        return super().Igatherv(sendbuf, recvbuf, root)
