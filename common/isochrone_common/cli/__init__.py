"""The command lines of all programs: the group of commands, `join`, health checks, and logs."""
