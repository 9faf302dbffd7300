"""Reports: all results of a window as one HTML page or as Markdown."""
