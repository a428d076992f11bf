# Sourced by ./run and ./test: installs what they need and is not there, through the system's package manager, without questions.
# Everything that is there already is left alone, and nothing is asked of the network then.

# packages NAME...: installs those Debian packages.
_ozone_packages() {
    if ! command -v apt-get >/dev/null; then
        echo "this system has no apt-get; install these yourself (names are Debian's): $*" >&2
        return 1
    fi
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "not root and no sudo; install these first: $*" >&2; return 1; }
        as_root=(sudo)
    fi
    echo "installing: $*" >&2
    # The lists may be old or absent: a first attempt without them saves the update where they are good.
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2 && return
    "${as_root[@]}" apt-get update -q >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
}

_ozone_have_libclang() {
    local library
    for library in /usr/lib/llvm-*/lib/libclang.so /usr/lib/*/libclang*.so ${LIBCLANG_PATH:+"$LIBCLANG_PATH"/libclang*.so}; do
        [ -e "$library" ] && return
    done
    return 1
}

# What a build needs.
install_for_build() {
    local missing=() cache=${OZONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ozone}
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    command -v c++ >/dev/null || missing+=(g++)
    _ozone_have_libclang || missing+=(libclang-dev) # bindgen reads RocksDB's C header
    if [ "${OZONE_ROCKSDB:-prebuilt}" = source ] || [ "$(uname -sm)" != "Linux x86_64" ]; then
        command -v clang++ >/dev/null || missing+=(clang) # a third faster than gcc at RocksDB
    elif ! compgen -G "$cache/rocksdb-*/librocksdb.so" >/dev/null; then
        command -v mvn >/dev/null || missing+=(maven)
        command -v unzip >/dev/null || missing+=(unzip)
    fi
    command -v git >/dev/null || missing+=(git)
    if [ ${#missing[@]} -gt 0 ]; then
        _ozone_packages "${missing[@]}" || return 1
    fi
    [ -e "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
    if ! command -v cargo >/dev/null; then
        _ozone_packages rustup || {
            echo "no Rust toolchain, and no package of rustup: install Rust (rust-toolchain.toml names the version) and try again" >&2
            return 1
        }
    fi
    # Where cargo is rustup's, this fetches the version that rust-toolchain.toml names.
    if ! (cd "$(dirname "${BASH_SOURCE[0]}")/.." && cargo --version >/dev/null); then
        echo "cargo does not run: install the Rust version that rust-toolchain.toml names" >&2
        return 1
    fi
}

# What the end-to-end tests need besides.
install_for_clients() {
    local missing=()
    command -v curl >/dev/null || missing+=(curl)
    command -v python3 >/dev/null || missing+=(python3)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    if [ ${#missing[@]} -gt 0 ]; then
        _ozone_packages "${missing[@]}" || return 1
    fi
}
