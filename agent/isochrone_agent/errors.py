"""What can go wrong in the agent that is not data. A failed probe is data: it is a Sample and raises nothing.

AgentError
├── SettingsError      the person who wrote the flag, variable or file must correct it
├── CredentialError    the operator must provide the key, or the plan names a host the key is not meant for
├── SpoolError         the operator must look at the disk or the folder
│   └── SpoolDamaged   ... or nobody: what can be read is salvaged, and what cannot is counted
├── PlanRefused        whoever applied the plan must correct it; the agent runs on with the last good one
└── CollectorRefused   the operators must act; nothing is pushed until then, and measuring goes on
"""

from isochrone_wire.errors import IsochroneError


class AgentError(IsochroneError):
    """Root of the tree."""


class SettingsError(AgentError):
    """A flag, an environment variable or a settings file is wrong."""

    exit_code = 2


class CredentialError(AgentError):
    """A provider key is missing, or must not be sent where the plan wants it sent."""

    exit_code = 2


class SpoolError(AgentError):
    """The spool cannot be opened or written."""


class SpoolDamaged(SpoolError):  # noqa: N818  # reads as what happened
    """The spool's file does not hold what was written."""


class PlanRefused(AgentError):  # noqa: N818  # reads as what happened
    """A plan names something this agent cannot do."""


class CollectorRefused(AgentError):  # noqa: N818  # reads as what happened
    """The collector will not take what this agent says, or says what cannot be."""
