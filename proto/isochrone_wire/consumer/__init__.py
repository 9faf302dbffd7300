"""What every consumer of route tables does with them; the rules are in docs/routing.md. Pure."""
