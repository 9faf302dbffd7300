"""What can go wrong in the agent that is not data. A failed probe is data: it is a Sample and raises nothing.

AgentError
├── SettingsError      the person who wrote the flag, variable or file must correct it
├── CredentialError    the operator must provide the key, or the plan names a host the key is not meant for
├── SpoolError         the operator must look at the disk or the folder
│   └── SpoolDamaged   ... or nobody: what can be read is salvaged, and what cannot is counted
├── PlanRefused        whoever applied the plan must correct it; the agent runs on with the last good one
├── JoinFailed         whoever joins must look at the token or the address, as the hint says
│   └── CollectorUnreachable    ... or wait until the collector answers (exit 3)
└── CollectorRefused   the operators must act; nothing is pushed until then, and measuring goes on
"""


class AgentError(Exception):
    """Root of the tree. `hint` tells who reads the message what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


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


class JoinFailed(AgentError):  # noqa: N818  # reads as what happened
    """A join token could not be traded for a credential."""


class CollectorUnreachable(JoinFailed):
    """No collector answers where it should be."""

    exit_code = 3
