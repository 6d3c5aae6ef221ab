"""What keeps a service running for months: pure parts of gate, diagnosis, verification, drift and calibration."""
