"""A host whose owner knows better than the planner in one point; the plan says what each override costs."""

special = [
    (
        "special",
        {
            "ssh_hostname": "192.0.2.41",
            "qwen_cards": ["0", "1"],  # leave the third card to something else
            "qwen_tensor_parallel": 2,
            "qwen_context": 131_072,
            "qwen_engine_args": {"max-num-seqs": 6},
            "qwen_engine_env": {"NCCL_DEBUG": "INFO"},
        },
    ),
]
