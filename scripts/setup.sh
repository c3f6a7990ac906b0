#!/usr/bin/env bash
# Create the virtual environment and install the package with its development extras. The constraints files pin
# version and hashes of each download, whatever index it comes from.
# Usage: scripts/setup.sh VENV
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$1

python=""
for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.10; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null &&
        "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "setup: Python 3.10 to 3.13 is needed; none was found on the PATH." >&2
    exit 1
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq "python$version-venv"
    else
        echo "setup: $python lacks the venv module; install it with: sudo apt-get install python$version-venv" >&2
        exit 1
    fi
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "setup: installing into $venv (the first time takes a minute or two)"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
# Nothing is built in an environment of its own, whose packages would be fetched without hashes.
locked=(--require-hashes --no-build-isolation --requirement constraints.txt)
this=(--no-deps --no-build-isolation --editable .)

# uv installs the same packages as pip, several times faster, but doesn't know pip's settings. Those
# of the environment are handed on. Where several indexes have a package, uv takes it from the first
# one alone; where that hasn't the version of the lock, uv fails, and pip looks into all of them.
install_with_uv() {
    env VIRTUAL_ENV="$PWD/$venv" \
        ${PIP_INDEX_URL:+UV_DEFAULT_INDEX="$PIP_INDEX_URL"} \
        ${PIP_EXTRA_INDEX_URL:+UV_INDEX="$PIP_EXTRA_INDEX_URL"} \
        ${PIP_FIND_LINKS:+UV_FIND_LINKS="${PIP_FIND_LINKS// /,}"} \
        ${PIP_CERT:+SSL_CERT_FILE="$PIP_CERT"} \
        "$venv/bin/uv" pip install --quiet "$@"
}

# First what builds the others, wheels all of them, and uv.
"${pip[@]}" --require-hashes --only-binary :all: --requirement constraints-build.txt
if ! install_with_uv "${locked[@]}"; then
    echo "setup: uv didn't get through; installing with pip, which takes longer"
    "${pip[@]}" "${locked[@]}"
fi
# The package itself has no hash, and needs nothing more.
"${pip[@]}" "${this[@]}"
