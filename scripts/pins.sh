#!/usr/bin/env bash
# Write the constraints files anew: names, versions and hashes of all packages that set-up installs, for every
# supported Python (with environment markers) and every platform. They contain no URLs.
# Usage: scripts/pins.sh VENV
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

lock() { # lock FILE TITLE ARGUMENT... <REQUIREMENTS
    local file=$1 title=$2
    shift 2
    "$venv/bin/uv" pip compile --quiet --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
        --generate-hashes "$@" --output-file "$work/lock"
    {
        echo "# $title. Made by \`make pins\`; do not edit by hand."
        cat "$work/lock"
    } >"$file"
}

# The installer, and what builds packages that have no wheel, this one among them.
printf 'uv\nhatchling\neditables\nsetuptools\nwheel\n' |
    lock constraints-build.txt "What builds what set-up installs" --universal --python-version 3.10 -
lock constraints.txt "What set-up installs" --universal --python-version 3.10 \
    --constraint constraints-build.txt --extra dev pyproject.toml
# The image of docker/ has one Python and one kind of platform, and fewer packages.
lock docker/constraints.txt "What the trial image installs" --python-version 3.12 --python-platform linux \
    --constraint constraints.txt --extra s3 --extra spark pyproject.toml

# The clouds' official providers, for the tests of their logins. They come without their dependencies, because Google's
# don't agree with what set-up installs, but with the libraries that their hooks import.
mapfile -t installed < <(sed -n 's/^\([a-z0-9._-]*\)==.*/--no-emit-package=\1/p' constraints.txt | sort -u)
printf '%s\n' aiohttp azure-datalake-store azure-identity azure-storage-blob azure-storage-file-datalake \
    gcloud-aio-auth google-api-python-client google-auth-httplib2 google-cloud-secret-manager msrest |
    lock tests/cloud_providers/libraries.txt "What the hooks of the clouds' providers import in the tests" \
        --universal --python-version 3.10 --constraint constraints.txt "${installed[@]}" -
printf 'apache-airflow-providers-%s\n' amazon google microsoft-azure |
    lock tests/cloud_providers/providers.txt "The clouds' providers, without dependencies, for the tests" \
        --universal --python-version 3.10 --no-deps -

# The Azure emulator of the tests. What npm copies of its packages' pages (licenses, funding) holds addresses.
if command -v npm >/dev/null; then
    (cd tests/azurite && npm install --package-lock-only --ignore-scripts --silent --no-audit --no-fund)
    "$venv/bin/python" - tests/azurite/package-lock.json <<'END'
import json, pathlib, sys

path = pathlib.Path(sys.argv[1])
lock = json.loads(path.read_text())
for package in lock["packages"].values():
    package.pop("funding", None)
    package.pop("license", None)
path.write_text(json.dumps(lock, indent=2) + "\n")
END
else
    echo "pins: no npm; tests/azurite/package-lock.json stays as it is" >&2
fi
