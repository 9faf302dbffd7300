"""`isochrone-agent completion`: the completion script of a shell."""

from isochrone_common.cli.command_line import completion_command

command = completion_command(
    "isochrone-agent",
    bash="~/.local/share/bash-completion/completions/isochrone-agent",
    zsh="~/.zfunc/_isochrone-agent",
    fish="~/.config/fish/completions/isochrone-agent.fish",
)
