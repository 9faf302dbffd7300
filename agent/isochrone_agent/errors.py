"""The agent's errors. A failed probe is not an error but data: a Sample with its outcome."""

from isochrone_wire.errors import IsochroneError


class AgentError(IsochroneError):
    """Root of the tree."""


class SettingsError(AgentError):
    """A flag, an environment variable or a settings file is wrong. Action: correct it."""

    exit_code = 2


class CredentialError(AgentError):
    """A provider key is missing, or must not be sent to the host in the plan. Action: correct either."""

    exit_code = 2


class SpoolError(AgentError):
    """The spool cannot be opened or written. Action: check the disk and the folder."""


class SpoolDamaged(SpoolError):  # noqa: N818  # reads as what happened
    """The spool's file is damaged. No action: readable samples are recovered, and lost ones are counted."""


class PlanRefused(AgentError):  # noqa: N818  # reads as what happened
    """A plan contains something that this agent cannot do. Action: correct it; the last valid one keeps running."""


class CollectorRefused(AgentError):  # noqa: N818  # reads as what happened
    """The collector refuses this agent, or its reply is inconsistent; until then nothing is pushed."""
