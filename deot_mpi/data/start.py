"""Where a run starts: at zero, or at the potentials of an earlier one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from deot_mpi.agent import Agents
from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role
from deot_mpi.setting import Setting

Start = Callable[[Agents], ArrayLike | None]
"""This agent's potential of an earlier run, in cost units, once the agent knows who it is."""


def given_start(potential: ArrayLike | None) -> Start:
    """A start that is at hand."""
    return lambda agents: potential


def agree_on_start(setting: Setting, start: Start | None) -> Floats | None:
    """Load and check this agent's start. All agents have one or none has. Collective."""
    agents, collectives = setting.agents, setting.collectives
    own = collectives.all_or_none(
        lambda: _checked(start, agents, (setting.samples.count,), "potential", "use a potential of the same samples")
    )
    table = collectives.share(Kind.CONTROL, np.array([float(own is not None)]))
    has = {role: table.of(role)[:, 0] > 0 for role in Role}
    if any(flags.any() for flags in has.values()):
        for role, flags in has.items():
            if not flags.all():
                raise InputError(
                    f"{role.value} agent {int(np.argmin(flags))} has no potential to start from, but others have; give "
                    "one to every agent or to none."
                )
    return own


def agree_on_alignment(setting: Setting, alignment: Start | None) -> Floats | None:
    """P to start from, if source agent 0 has one: the same on every agent. Collective."""
    agents, collectives = setting.agents, setting.collectives
    shape = (setting.sizes.dimensions[Role.SOURCE], setting.sizes.dimensions[Role.TARGET])
    own = collectives.all_or_none(
        lambda: _checked(alignment, agents, shape, "alignment", "its sides are the dimensions of the two domains")
    )
    table = collectives.share(Kind.CONTROL, np.array([float(own is not None)]))
    if not table.source[0, 0]:
        return None
    told = np.zeros(shape) if own is None else own
    collectives.broadcast(Kind.MOMENTS, told, root=agents.rank_of(Role.SOURCE, 0))
    return told


def _checked(start: Start | None, agents: Agents, shape: tuple[int, ...], what: str, hint: str) -> Floats | None:
    given = None if start is None else start(agents)
    if given is None:
        return None
    whose = f"{agents.name}: the {what} to start from"
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{whose} is not an array of numbers ({error}).") from error
    if array.shape != shape:
        raise InputError(f"{whose} has shape {array.shape}, {shape} is needed; {hint}.")
    if not np.isfinite(array).all():
        raise InputError(f"{whose} has values that are not finite; leave it out.")
    return array
