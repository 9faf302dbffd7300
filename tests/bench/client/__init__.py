"""The processor time of the clients: the transports beside plain httpx, the gateway beside LiteLLM's proxy."""
