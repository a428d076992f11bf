# Sourced by ./run, ./test and developers: build folders and the prebuilt RocksDB. Plain `cargo build` works without it,
# but then compiles RocksDB from source (docs/building.md).
#
# OZONE_CACHE            where builds and tools are kept between clones (default ~/.cache/ozone)
# OZONE_ROCKSDB=source   build RocksDB from source instead of linking the prebuilt library
OZONE_CACHE=${OZONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ozone}
export OZONE_CACHE
export CARGO_BUILD_JOBS=${CARGO_BUILD_JOBS:-$(nproc)}

_ozone_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ "${OZONE_ROCKSDB:-prebuilt}" = source ]; then
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$OZONE_CACHE/target-rocksdb-source}
    export CC=${CC:-clang} CXX=${CXX:-clang++}
    unset ROCKSDB_LIB_DIR
elif _ozone_lib=$("$_ozone_root/scripts/rocksdb-prebuilt.sh"); then
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$OZONE_CACHE/target}
    mkdir -p "$CARGO_TARGET_DIR/lib"
    # The run path of every binary points at <target dir>/lib (.cargo/config.toml).
    ln -sf "$_ozone_lib/librocksdb.so" "$CARGO_TARGET_DIR/lib/librocksdb.so"
    export ROCKSDB_LIB_DIR=$_ozone_lib
else
    echo "scripts/env.sh: no prebuilt RocksDB; building it from source (12-16 minutes once)" >&2
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$OZONE_CACHE/target-rocksdb-source}
    export CC=${CC:-clang} CXX=${CXX:-clang++}
fi
unset _ozone_root _ozone_lib
