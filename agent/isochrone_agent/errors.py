"""The agent's errors. A failed probe is not an error but data: a Sample with its outcome.

AgentError
├── SettingsError      correct the flag, environment variable or settings file
├── CredentialError    provide the key, or correct the plan that sends it to a host it is not meant for
├── SpoolError         check the disk and the folder
│   └── SpoolDamaged   no action: readable samples are recovered, and lost ones are counted
├── PlanRefused        correct the plan; the agent keeps running the last valid one
└── CollectorRefused   act on the collector's reason; until then the agent measures but does not push
"""

from isochrone_wire.errors import IsochroneError


class AgentError(IsochroneError):
    """Root of the tree."""


class SettingsError(AgentError):
    """A flag, an environment variable or a settings file is wrong."""

    exit_code = 2


class CredentialError(AgentError):
    """A provider key is missing, or must not be sent to the host in the plan."""

    exit_code = 2


class SpoolError(AgentError):
    """The spool cannot be opened or written."""


class SpoolDamaged(SpoolError):  # noqa: N818  # reads as what happened
    """The spool's file is damaged."""


class PlanRefused(AgentError):  # noqa: N818  # reads as what happened
    """A plan contains something that this agent cannot do."""


class CollectorRefused(AgentError):  # noqa: N818  # reads as what happened
    """The collector refuses this agent, or its reply is inconsistent."""
