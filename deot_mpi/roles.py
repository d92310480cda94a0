"""The two roles of an agent."""

from __future__ import annotations

from enum import Enum

from deot_mpi.errors import InputError


class Role(Enum):
    """A source agent holds samples of mu and a block of u; a target agent samples of gamma and a block of v."""

    SOURCE = "source"
    TARGET = "target"

    @property
    def other(self) -> Role:
        return Role.TARGET if self is Role.SOURCE else Role.SOURCE


def as_role(name: str | Role) -> Role:
    try:
        return Role(name)
    except ValueError as error:
        raise InputError(f"role {name!r} is not known; an agent is a 'source' or a 'target'.") from error
