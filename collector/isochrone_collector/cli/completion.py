"""`isochrone-collector completion`: the completion script of a shell."""

from isochrone_common.cli.command_line import completion_command

completion = completion_command(
    "isochrone-collector",
    bash="~/.local/share/bash-completion/completions/isochrone-collector",
    zsh="~/.zfunc/_isochrone-collector",
    fish="~/.config/fish/completions/isochrone-collector.fish",
)
