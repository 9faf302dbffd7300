"""Samples as a file, for people's own notebooks: every one of a selection, with every field."""
