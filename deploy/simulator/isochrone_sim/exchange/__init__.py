"""Values of one request and its response, shared by dialects, faults and the server."""
