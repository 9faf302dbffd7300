"""The command lines of all programs: the group of commands, `join`, and logs."""
