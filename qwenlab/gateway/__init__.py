"""The gateway: one endpoint for every engine of a host. Its files, and the certificates that it shows."""
