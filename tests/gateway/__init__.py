"""The gateway: its files, its certificates, and HAProxy with them."""
