#!/bin/sh
# Builds the image for both architectures with its SBOM (SPDX) and provenance, and pushes it.
#
#   deploy/image.sh REPOSITORY VERSION
#
# Any CI with Docker Buildx 0.10 or later can call it; BuildKit writes the SBOM itself.
# Not run by the tests: their machines have no Docker engine.
set -eu
repository=${1:?usage: deploy/image.sh REPOSITORY VERSION}
version=${2:?usage: deploy/image.sh REPOSITORY VERSION}
cd "$(dirname "$0")/.."
mkdir -p dist
docker buildx build . \
  --file deploy/Dockerfile \
  --platform linux/amd64,linux/arm64 \
  --tag "$repository:$version" \
  --sbom=true \
  --provenance=mode=max \
  --push
docker buildx imagetools inspect "$repository:$version" \
  --format '{{ json .SBOM }}' > "dist/podscale-$version.sbom.json"
