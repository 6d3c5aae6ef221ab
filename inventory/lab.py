"""Your hosts: one line each. The name is what ssh takes (~/.ssh/config is honoured).

    pyinfra inventory/lab.py deploy.py

A setting of one host stands beside its name, a setting of all hosts in group_data/all.py.
"""

lab: list[str | tuple[str, dict[str, object]]] = [
    # "rack1.example.org",
    # ("rack2", {"ssh_hostname": "10.0.0.12", "ssh_user": "admin", "qwen_port": 8080}),
]
