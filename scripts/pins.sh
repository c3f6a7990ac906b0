#!/usr/bin/env bash
# Make constraints.txt anew: names and versions of everything that set-up installs, for every Python
# that is supported (markers tell them apart). Usage: scripts/pins.sh VENV
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pins=$(mktemp)
trap 'rm -f "$pins"' EXIT
# Beside the dependencies: the installer and the build backend.
printf 'uv\nhatchling\neditables\n' |
    "$1/bin/uv" pip compile --quiet --universal --python-version 3.10 --no-emit-index-url \
        --no-annotate --no-header --extra dev pyproject.toml - --output-file "$pins"
{
    echo "# What set-up installs, by name and version. Made by \`make pins\`; do not edit by hand."
    cat "$pins"
} >constraints.txt
