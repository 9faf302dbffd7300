"""`isochrone completion`: what a shell needs to complete this command."""

import click
from click.shell_completion import get_completion_class

from isochrone_client.commands import options


@click.command(
    "completion",
    epilog=options.example(
        "isochrone completion bash > ~/.local/share/bash-completion/completions/isochrone",
        "isochrone completion zsh > ~/.zfunc/_isochrone",
        "isochrone completion fish > ~/.config/fish/completions/isochrone.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print the completion script of a shell."""
    completer = get_completion_class(shell)
    assert completer is not None, "click completes each of the shells offered"
    root = context.find_root()
    click.echo(completer(root.command, {}, "isochrone", "_ISOCHRONE_COMPLETE").source())
