"""Settings of every host. Uncomment a line to change it; group_data/<group>.py and the inventory win over this file.

docs/settings.md says the same as a table.
"""

# Where pyinfra logs in as another user than root it uses sudo; with a password: _sudo_password or --same-sudo-password.

# --- every setting with its default (python -m qwenlab settings --write keeps this list) ---

# == Which vLLM is built into a release, and where its parts come from.
#   vLLM build: `cuda` for NVIDIA cards, `cpu` for trying qwenlab out
# qwen_engine = "cuda"
#   vLLM version; none: the pinned default of the engine
# qwen_vllm = None
#   Python of the engine, e.g. `3.12`; none: the distribution's python3 where the release supports it
# qwen_python = None
#   where uv fetches a Python that the host lacks; none: uv's own default
# qwen_python_mirror = None
#   package index (PEP 503) for uv and the engine
# qwen_index_url = "https://pypi.org/simple"
#   further package indexes, searched before the main one
# qwen_extra_index_urls = []
#   pages or folders that list wheels beyond the index; none: those that the pinned release needs
# qwen_find_links = None
#   folder of wheels on the host, looked into before any index
# qwen_wheel_directory = None
#   directory of an offline bundle that the deploy uses alone: on the control machine, or `host:/DIR` for one that
#   lies on the host (docs/offline.md); none: the network is used
# qwen_offline = None
#   releases kept beside the current one, for going back
# qwen_keep_releases = 2
#   uv's cache on the host
# qwen_uv_cache_directory = "/var/cache/qwen/uv"

# == What is applied to vLLM beside the series that qwenlab carries.
#   other patch series {source, sha256, order}, applied after qwenlab's own; see docs/porting.md
# qwen_extra_patches = []

# == What the cpu engine serves. It is for trying qwenlab out: a small checkpoint, no planning.
#   hub repository that the cpu engine serves, `owner/name`
# qwen_cpu_checkpoint = None
#   commit of that repository, all 40 digits
# qwen_cpu_revision = None
#   engines side by side, each with a port and a unit of its own
# qwen_cpu_engines = 1
#   longest prompt and answer together [tokens]
# qwen_cpu_context = 2048
#   requests answered at the same time
# qwen_cpu_seats = 4
#   memory for the KV cache [GiB]
# qwen_cpu_kv_gib = 1

# == Where checkpoints come from.
#   address of the model hub
# qwen_hub_endpoint = "https://huggingface.co"
#   access token for gated or private repositories; better kept in a file
# qwen_hub_token = None
#   file on the control machine that holds the access token
# qwen_hub_token_file = None
#   where checkpoints come from: `hub`; `peer`: one host fetches from the hub, the others from it; `path`: what lies
#   at qwen_model_path
# qwen_model_source = "hub"
#   directory or tar archive on the host that holds the checkpoints, for `path`
# qwen_model_path = None
#   how files come from the hub; `auto`: from its Xet storage where they are there, over plain HTTP otherwise;
#   `ranges`: over plain HTTP
# qwen_fetcher = "auto"
#   how each deploy verifies checkpoints that are there; `digest` reads every byte
# qwen_verify_models = "size"
#   port on which a host serves checkpoints to the others while a deploy runs
# qwen_peer_port = 8719
#   address at which the other hosts reach this one; none: the one that SSH uses
# qwen_peer_address = None

# == What the host is asked to be good at, and overrides. An override wins; the plan says what it costs.
#   what to be good at: `chat` (1 to 4 people), `batch` (8 and more requests at once), `long` (150,000 tokens of
#   context and more), `edit` (answers quote the prompt)
# qwen_workload = "chat"
#   tokens that one request must be able to hold; none: as many as fit, up to the model's own limit [tokens]
# qwen_context = None
#   requests at the same time over the whole host; none: the workload's usual
# qwen_concurrency = None
#   load the vision tower and take images
# qwen_vision = False
#   weight formats: `speed` takes the fastest, `balanced` asks 4-bit weights to be a tenth faster than 8-bit ones,
#   `fidelity` takes 8 bits and more only
# qwen_quality = "balanced"
#   catalogue key, weight format or repository to serve: `int4-autoround`, `int4-prepared`, `int4-autoround-prepared`,
#   `int4-fast`, `w8a16`, `fp8`, `fp8-channel`, `nvfp4`, `nvfp4-unsloth`, `bf16`, `qwen3.6-fp8`, `qwen3.6-bf16`; none:
#   the planner's choice
# qwen_checkpoint = None
#   speculative decoding; none: the planner's choice
# qwen_speculation = None
#   draft tokens per step; none: the planner's choice
# qwen_draft_tokens = None
#   data type of the KV cache: `bfloat16`, `fp8`, `int4_per_token_head`, `int8_per_token_head`; none: the planner's
#   choice
# qwen_kv_cache_dtype = None
#   cards, on the cpu engine processes, that share every layer; none: the planner's choice
# qwen_tensor_parallel = None
#   pipeline stages of an engine; none: the planner's choice
# qwen_pipeline_parallel = None
#   copies of an engine behind one port; none: the planner's choice
# qwen_data_parallel = None
#   decoder layers of each pipeline stage, first stage first, 64 in all; none: solved for speed
# qwen_layer_split = None
#   cards to plan with, by UUID, PCI bus id or nvidia-smi index; none: every usable card
# qwen_cards = None
#   engines may use NVLink multicast; turn it off where several tenants share one NVSwitch host
# qwen_nvlink_multicast = True
#   vLLM's tree holds configurations of its Triton block-FP8 kernel tuned on the host's cards of compute capability
#   8.9 (e.g. by `qwen_extra_patches`); FP8 weights then run on it there instead of on Marlin
# qwen_tuned_block_fp8 = False
#   vLLM arguments that win over the plan's, by their YAML name, e.g. `max-num-seqs: 16`
# qwen_engine_args = {}
#   environment variables of the engines that win over the plan's
# qwen_engine_env = {}

# == How the engines are reached and started.
#   address that the API listens on; none: all addresses with an API key, loopback without one
# qwen_bind = None
#   port of the first engine; further engines take the next ones
# qwen_port = 8000
#   key that requests must carry; better kept in a file
# qwen_api_key = None
#   file on the control machine that holds the API key
# qwen_api_key_file = None
#   without a key of your own: make one on the first deploy and show it once; off: no key, loopback alone
# qwen_generate_api_key = True
#   names under which the API offers the model
# qwen_served_model_names = ['qwen']
#   how long an engine may take from start to its first answer [seconds]
# qwen_start_timeout_s = 1800
#   how long answers that have begun may go on once an engine is told to stop; new requests are refused meanwhile
#   [seconds]
# qwen_stop_timeout_s = 60
#   how long a start waits for what may pass: a dying process that still holds a card or the port [seconds]
# qwen_gate_wait_s = 60
#   how often a serving engine is asked for a few tokens; 0: never [seconds]
# qwen_liveness_interval_s = 60
#   how long an engine may generate nothing before it is restarted [seconds]
# qwen_liveness_limit_s = 300
#   a deploy whose engines do not answer, or fail verification, brings the former release and plan back
# qwen_auto_rollback = True
#   hosts that a deploy restarts at the same time; when one fails, those after it are left as they serve; none: all at
#   once
# qwen_serial = None
#   deploy what failed on a host before and was rolled back; for one run: --data qwen_retry_failed=True
# qwen_retry_failed = False
#   verify every engine after each deploy, as plays/verify.py does
# qwen_verify = False
#   how far a rate may fall below the last verification [%]
# qwen_verify_limit_percent = 20.0
#   plays/verify.py also tests peer access between the cards, value by value, and later plans go by it
# qwen_verify_peers = False
#   plays/rehearse.py stops what serves on the planned cards and starts it again after; off: it refuses
# qwen_rehearse_stop = False
#   plays/calibrate.py measures engines too whose measurement still holds: --data qwen_calibrate_again=True
# qwen_calibrate_again = False
#   plays/status.py prints one line of JSON a host instead of a table
# qwen_status_json = False
#   share of the host's memory that all engines may use [%]
# qwen_memory_percent = 90
#   disk that the host's logs may take [MiB]
# qwen_journal_max_mib = 2048

# == One endpoint for all engines of a host, with TLS where asked for; see docs/gateway.md.
#   one endpoint for all engines of the host (HAProxy) at qwen_bind; the engines listen on loopback alone
# qwen_gateway = False
#   port of that endpoint; none: 8443 with TLS, 8080 without
# qwen_gateway_port = None
#   PEM file on the control machine: the host's certificate, then those that lead to its authority
# qwen_gateway_certificate = None
#   PEM file on the control machine: the key of qwen_gateway_certificate
# qwen_gateway_key = None
#   folder on the control machine of a certificate authority of your own: made at its first use, gives each host a
#   certificate; clients trust its ca.crt
# qwen_gateway_lab_ca = None
#   names and addresses in the certificate of qwen_gateway_lab_ca, beside those that the host is known by
# qwen_gateway_names = []
#   how long client or engine may be silent within a request, e.g. while a long prompt is read; also how long streams
#   go on beside a reloaded gateway [seconds]
# qwen_gateway_silence_s = 3600

# == What every component stands on.
#   service user that owns checkpoints and runs the engine
# qwen_user = "qwen"
#   home of the service user: compile caches that survive restarts
# qwen_home = "/var/lib/qwen"
#   where engine releases are built and kept
# qwen_release_directory = "/opt/qwen"
#   where checkpoints are kept
# qwen_model_directory = "/srv/qwen/models"
#   disk that must be free for a release; none: what the pinned release takes [GiB]
# qwen_min_release_gib = None
#   disk that must be free for checkpoints; none: 40 for cuda, 2 for cpu [GiB]
# qwen_min_model_gib = None
#   memory that a host must have; none: what the pinned release needs [GiB]
# qwen_min_ram_gib = None
#   how far the host's clock may be off the control machine's [seconds]
# qwen_max_clock_skew_s = 300

# == How a host reaches package indexes and the model hub.
#   proxy for http addresses: apt, uv and the hub
# qwen_http_proxy = None
#   proxy for https addresses: apt, uv and the hub
# qwen_https_proxy = None
#   host names and domains reached without the proxy
# qwen_no_proxy = []
#   PEM files on the control machine that hosts shall trust beside their own certificates
# qwen_extra_ca_certificates = []
#   how long apt waits for another apt, e.g. unattended-upgrades [seconds]
# qwen_apt_lock_timeout_s = 600

# == The driver, the compiler for kernels, reboots and power. A driver that works is left alone.
#   driver branch to have; none: 580 (long-lived) where no driver works, else the one that works
# qwen_driver_branch = None
#   exact driver version to have, e.g. `580.126.09`; none: the newest of the branch
# qwen_driver_version = None
#   kernel module; `auto`: open where every card has it, else proprietary
# qwen_driver_flavour = "auto"
#   accept a branch that no longer drives some of the host's cards
# qwen_driver_allow_drop = False
#   NVIDIA's package repository or a mirror of it
# qwen_driver_repository = "https://developer.download.nvidia.com/compute/cuda/repos"
#   fingerprint of the repository's signing key, 40 hex digits; none: NVIDIA's own for the distribution
# qwen_driver_key_fingerprint = None
#   reboot a host when its driver needs that, at most once
# qwen_allow_reboot = False
#   hosts that may be rebooting at the same time
# qwen_reboot_serial = 1
#   how long a host may take to come back [seconds]
# qwen_reboot_timeout_s = 900
#   compiler for kernels made at run time: `pip` takes the pinned wheels of the release, `apt` NVIDIA's toolkit
#   packages, `none` leaves it to the host
# qwen_cuda_from = "pip"
#   power limit of each card: a number, a dict from model name to number, or `advised`; none: not touched
# qwen_power_limit_w = None

# == Prometheus for all hosts of the inventory, on the hosts of the group `monitoring`; see docs/monitoring.md.
#   deploy.py lets this host serve; off: it is in the inventory for monitoring alone
# qwen_serve = True
#   this host runs Prometheus for every host of the inventory; group_data/monitoring.py turns it on
# qwen_prometheus = False
#   address that Prometheus listens on; it asks nobody for a password
# qwen_prometheus_bind = "127.0.0.1"
#   port of Prometheus
# qwen_prometheus_port = 9090
#   how long figures are kept [days]
# qwen_prometheus_days = 30
#   disk that figures may take [GiB]
# qwen_prometheus_max_gib = 10
#   Alertmanagers that are told of alerts, `host:port`
# qwen_alertmanagers = []
#   temperature at which a card is reported [C]
# qwen_card_hot_c = 88
#   addresses and networks whose Prometheus may read this host's figures: a node exporter's, and through the gateway
#   the engines'; none: no node exporter
# qwen_scraped_from = []
