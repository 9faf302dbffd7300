"""A report: what a window of rounds says, as one page for a browser or as Markdown."""
