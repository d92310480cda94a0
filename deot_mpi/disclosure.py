"""What a run lets others see, in plain words; attached to every result."""

from __future__ import annotations

from deot_mpi.options import EOTOptions
from deot_mpi.protocol import ProtocolReport
from deot_mpi.reference import POT_TOLERANCE
from deot_mpi.result import ReferenceValues
from deot_mpi.roles import Role
from deot_mpi.setting import Setting

_RECOVERY = ((100.0, "1 %"), (30.0, "5 %"), (15.0, "10 %"), (5.0, "30 %"), (2.0, "60 %"))
"""Median relative error of a linear SVM that knows the projections, by Q/D, on Gaussian samples."""


def privacy_notes(setting: Setting, options: EOTOptions) -> tuple[str, ...]:
    notes = []
    dimension = setting.sizes.dimension
    if options.kernel == "raw":
        notes.append(
            "Privacy: the raw kernel sends the targets' samples themselves to the sources they have an edge with."
            if options.solver == "sinkhorn"
            else "Privacy: the raw kernel sends the samples themselves to every neighbour."
        )
    elif dimension == 1:
        notes.append(
            "Privacy: with one column, the norm of a centred sample is the sample up to its sign. Nothing is hidden."
        )
    else:
        ratio = options.bits / dimension
        error = next((words for limit, words in _RECOVERY if ratio >= limit), None)
        known = (
            f"a neighbour that knows the projections recovers a typical row to within about {error}"
            if error
            else "recovery of rows was not measured at so few bits, which is no promise"
        )
        notes.append(
            f"Privacy: sketches are not secret. At Q/D = {ratio:.3g} {known}; less is needed if it holds similar rows."
        )
    if options.scale is not None:
        for role in Role:
            if setting.agents.count(role) == 1:
                notes.append(
                    f"Privacy: there is one {role.value} agent, so the mean of its domain, which --eps-scale makes "
                    "known to all, is its own (its row, if it has one). Give --eps to avoid that."
                )
    if options.centre and setting.agents.comm.size == 2:
        notes.append("Privacy: with two agents, the global mean tells each the other's mean.")
    if options.reference:
        notes.append("Privacy: the reference pooled all samples on rank 0.")
    return tuple(notes)


def protocol_notes(report: ProtocolReport) -> tuple[str, ...]:
    notes = []
    for role, isolated in (("source", report.isolated_sources), ("target", report.isolated_targets)):
        if isolated:
            agents = ", ".join(str(index) for index in isolated)
            notes.append(f"Protocol: {role} agent(s) {agents} have no partner in E; their samples do not count.")
    if report.components > 1:
        notes.append(
            f"Protocol: E falls into {report.components} parts that exchange no mass; the values are of that problem."
        )
    if not report.is_storage:
        bound = (
            "tau is not positive here, and the paper's bound tau sigma says nothing."
            if report.tau_sigma is None
            else f"The paper bounds the difference to the centralised value by tau sigma = {report.tau_sigma:.3g}"
            + ("." if report.tau_pairs == "all" else ", with tau measured on E's edges only.")
        )
        notes.append(
            f"Protocol: E is not the storage protocol (sigma = {report.sigma:.3g}); the values are those of E's own "
            f"marginals and support. {bound}"
        )
    return tuple(notes)


def reference_notes(reference: ReferenceValues | None) -> tuple[str, ...]:
    if reference is None or reference.error <= POT_TOLERANCE:
        return ()
    return (
        f"Reference: POT used all its rounds and is at a marginal error of {reference.error:.1e} (L2); the "
        "parts of the error are no better known than that.",
    )
