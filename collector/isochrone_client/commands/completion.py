"""`isochrone completion`: the completion script of a shell."""

from isochrone_common.cli.command_line import completion_command

completion = completion_command(
    "isochrone",
    bash="~/.local/share/bash-completion/completions/isochrone",
    zsh="~/.zfunc/_isochrone",
    fish="~/.config/fish/completions/isochrone.fish",
)
