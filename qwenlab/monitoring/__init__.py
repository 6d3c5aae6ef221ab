"""Monitoring: what Prometheus asks, when it raises an alarm, what Grafana shows. Pure."""
