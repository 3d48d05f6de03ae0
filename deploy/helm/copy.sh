#!/usr/bin/env bash
# Copies what the chart and the kustomization have in common into the chart, since helm
# reads no file outside of it. With -check it says whether that has been done.
set -euo pipefail
cd "$(dirname "$0")/.."
to=helm/kubeslot/files
if [ "${1:-}" = -check ]; then
  to=$(mktemp -d)
  trap 'rm -rf "$to"' EXIT
fi
rm -rf "$to"
mkdir -p "$to"/{crds,rbac,policies}
cp crds/*.yaml "$to/crds/"
cp rbac/*.yaml "$to/rbac/"
cp policies/*.yaml "$to/policies/"
cp flowschema.yaml "$to/"
if [ "${1:-}" = -check ]; then
  diff -r "$to" helm/kubeslot/files || { echo "the chart's files are not those of deploy/: run make generate" >&2; exit 1; }
fi
