#!/usr/bin/env bash
# Create the virtual environment and install the package with its development extras, pinned by
# constraints.txt. Usage: scripts/setup.sh VENV
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
# uv resolves and installs the same packages from the same index as pip, several times faster.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
VIRTUAL_ENV="$PWD/$venv" "$venv/bin/uv" pip install --quiet --constraint constraints.txt \
    --build-constraint constraints.txt --editable '.[dev]'
