#!/usr/bin/env bash
# Prints a folder that holds librocksdb.so of the version that the crate `rocksdb` wraps, fetching it once.
# The file is RocksDB's own Java build: it exports the whole C interface and needs nothing of a JVM.
# Fails, printing why, where the artifact cannot be had; the caller then builds from source.
set -euo pipefail
version=10.4.2
jar_sha256=34a9b9ab5bdb128c058363d72a83ab5d0a498a97df9cf1291f1a6e9260bb70b1
folder=${OZONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ozone}/rocksdb-$version
library=$folder/librocksdb.so

if [ ! -e "$library" ]; then
    [ "$(uname -sm)" = "Linux x86_64" ] || { echo "rocksdb-prebuilt: only for Linux on x86_64" >&2; exit 1; }
    for tool in mvn unzip; do
        command -v $tool >/dev/null || { echo "rocksdb-prebuilt: $tool is not installed" >&2; exit 1; }
    done
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    timeout 300 mvn -q -B dependency:copy "-Dartifact=org.rocksdb:rocksdbjni:$version:jar:linux64" "-DoutputDirectory=$work" >&2
    echo "$jar_sha256  $work/rocksdbjni-$version-linux64.jar" | sha256sum --quiet -c - >&2
    unzip -q -o "$work/rocksdbjni-$version-linux64.jar" librocksdbjni-linux64.so -d "$work"
    mv "$work/librocksdbjni-linux64.so" "$library"
fi
echo "$folder"
