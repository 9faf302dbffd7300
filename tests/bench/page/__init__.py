"""The live page, measured: its first view, a long series, and the load of a hundred open pages."""
