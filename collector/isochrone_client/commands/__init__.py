"""One module per command. To add one, write it here or elsewhere and name it in `cli.COMMANDS`."""
