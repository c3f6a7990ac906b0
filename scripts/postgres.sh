#!/usr/bin/env bash
# Find PostgreSQL's programs, which tests/postgres_server.py starts throw-away servers with; install
# Debian's package where this is root on Debian or Ubuntu; otherwise say what to install. Only
# continuous integration insists: elsewhere the tests say why they are skipped.
# Usage: scripts/postgres.sh [DIRECTORY], the one with the programs of each version.
set -euo pipefail
directory=${1:-/usr/lib/postgresql}
settings=/etc/postgresql-common/createcluster.conf

have_postgres() {
    command -v initdb >/dev/null || compgen -G "$directory/*/bin/initdb" >/dev/null
}

# The package starts a server of its own, unless this setting is changed before the installation.
install_postgres() {
    apt-get update -qq &&
        apt-get install -y -qq postgresql-common &&
        sed -i 's/^#\? *create_main_cluster .*/create_main_cluster = false/' "$settings" &&
        apt-get install -y -qq postgresql
}

if ! have_postgres && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing PostgreSQL for the tests"
    install_postgres || true
fi
if ! have_postgres; then
    echo "setup: no PostgreSQL; its tests are skipped. Install a package that has initdb and pg_ctl" >&2
    echo "       (for example: sudo apt-get install postgresql)." >&2
    [ -z "${CI:-}" ]
fi
