"""Monitoring: files, alerts, dashboard, card figures."""
