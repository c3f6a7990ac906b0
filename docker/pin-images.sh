#!/usr/bin/env bash
# Write the digests of the images that compose.yaml is made of into .env, as the registry has them for these
# tags today. Run it once, and again to take newer ones; in between the same images are used.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

digest() { # digest IMAGE:TAG
    local found
    found=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$1")
    if [[ ! $found =~ ^sha256:[0-9a-f]{64}$ ]]; then
        echo "pin-images: the registry gives no digest for $1" >&2
        exit 1
    fi
    echo "$found"
}

airflow=$(digest apache/airflow:slim-3.3.2-python3.12)
minio=$(digest minio/minio:latest)
mc=$(digest minio/mc:latest)
printf 'AIRFLOW_DIGEST=%s\nMINIO_DIGEST=%s\nMC_DIGEST=%s\n' "$airflow" "$minio" "$mc" >.env
