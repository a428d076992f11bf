#!/usr/bin/env bash
# Prints a folder of programs (aws, python3 with boto3) of the versions that integration-tests/clients/requirements.txt
# pins, installing them once into the cache. AWS CLI 1 comes from the Python registry; version 2 is not published there.
set -euo pipefail
requirements=$(cd "$(dirname "$0")/.." && pwd)/integration-tests/clients/requirements.txt
folder=${OZONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ozone}/clients-$(sha256sum "$requirements" | cut -c1-12)

if [ ! -e "$folder/complete" ]; then
    echo "installing clients into $folder" >&2
    mkdir -p "$(dirname "$folder")"
    exec 9>"$folder.lock"
    flock 9 # two test runs on a fresh machine
    if [ ! -e "$folder/complete" ]; then
        rm -rf "$folder"
        python3 -m venv "$folder" >&2
        "$folder/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
        touch "$folder/complete"
    fi
fi
echo "$folder/bin"
