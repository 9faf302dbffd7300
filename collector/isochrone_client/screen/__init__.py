"""Drawing on a terminal, for the demo and `isochrone watch`: boards and their tables, the screen, keys, signals."""
