"""Services of alerting: raise, silence and deliver alerts, over the rules of `alerts`."""
