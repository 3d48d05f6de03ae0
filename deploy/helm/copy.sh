#!/usr/bin/env bash
# Copies what the chart and the kustomization have in common into the chart, since helm
# reads no file outside of it. With -check it says whether that has been done.
set -euo pipefail
cd "$(dirname "$0")/.."
chart=helm/kubeslot
to=$chart
if [ "${1:-}" = -check ]; then
  to=$(mktemp -d)
  trap 'rm -rf "$to"' EXIT
fi
rm -rf "$to/files" "$to/charts/crds/files"
mkdir -p "$to"/files/{rbac,policies,monitoring/dashboards} "$to/charts/crds/files"
cp crds/*.yaml "$to/charts/crds/files/"
cp rbac/*.yaml "$to/files/rbac/"
cp policies/*.yaml "$to/files/policies/"
cp flowschema.yaml webhook.yaml "$to/files/"
cp monitoring/rules.yaml "$to/files/monitoring/"
cp monitoring/dashboards/*.json "$to/files/monitoring/dashboards/"
if [ "${1:-}" = -check ]; then
  for folder in files charts/crds/files; do
    diff -r "$to/$folder" "$chart/$folder" || { echo "the chart's $folder is not that of deploy/: run make generate" >&2; exit 1; }
  done
fi
