# Sourced by the other scripts: everything they need, from python3 alone (and root, for Debian packages).
# shellcheck shell=sh

UV_VERSION=0.13.9
LAB_PACKAGES="debootstrap systemd-container nftables iproute2 openssh-client e2fsprogs python3-venv haproxy"

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

say() { printf '==> %s\n' "$*"; }
die() {
    printf '%s\n' "$*" >&2
    exit 1
}

# Debian packages of the lab; called by scripts that boot hosts.
install_lab_packages() {
    missing=
    for package in $LAB_PACKAGES; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    say "installing$missing"
    apt-get -qq -o DPkg::Lock::Timeout=600 update
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=600 install --no-install-recommends $missing \
        >/dev/null
}

# uv in a folder of the repository unless one is on PATH, then the locked environment in .venv.
install_environment() {
    if ! command -v uv >/dev/null 2>&1; then
        if [ ! -x .cache/uv/bin/uv ]; then
            say "installing uv $UV_VERSION into .cache/uv"
            python3 -m venv .cache/uv || die "python3 cannot make virtual environments; install python3-venv"
            .cache/uv/bin/pip -q --disable-pip-version-check install "uv==$UV_VERSION"
        fi
        PATH="$root/.cache/uv/bin:$PATH"
        export PATH
    fi
    say "uv sync --frozen"
    uv sync --quiet --frozen
}
