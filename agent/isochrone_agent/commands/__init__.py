"""One module per subcommand, each with its `command`; loaded when called, so that `--help` waits for nothing."""
