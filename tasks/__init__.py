"""Deploys, one file per component: functions only, nothing runs at import."""
