"""The live page: static files for browsers, which read everything else from the HTTP interface."""
