"""The optional gateway: a program beside a service that routes the requests of clients in any language. See
docs/clients.md; `isochrone gateway` starts it.
"""
