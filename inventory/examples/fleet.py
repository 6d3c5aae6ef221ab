"""A small lab: hosts in groups, each group with its own purpose. Copy what you need into inventory/lab.py.

    pyinfra inventory/examples/fleet.py plays/plan.py      # what would run on each, and why; changes nothing

Nothing here says how many cards a host has or how to split the model: that is read from the host.
"""

# One person at a time, answers as fast as the cards can give them.
desks = [
    ("desk-3090", {"ssh_hostname": "192.0.2.11"}),
    ("desk-5090", {"ssh_hostname": "192.0.2.12", "qwen_workload": "edit"}),
]

# A team's agents: many requests at once, reached by others with a key that you choose.
racks = (
    [
        ("rack1", {"ssh_hostname": "192.0.2.21"}),
        ("rack2", {"ssh_hostname": "192.0.2.22", "qwen_port": 8080}),
    ],
    {
        "qwen_workload": "batch",
        "qwen_api_key_file": "~/.qwen-key",
    },
)

# Whole books and repositories in one prompt.
readers = ([("reader", {"ssh_hostname": "192.0.2.31", "ssh_user": "admin"})], {"qwen_workload": "long"})
