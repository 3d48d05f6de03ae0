#!/usr/bin/env bash
# Copies what the chart and the kustomization have in common into the chart, since helm
# reads no file outside of it.
set -euo pipefail
cd "$(dirname "$0")/.."
to=helm/kubeslot
rm -rf "$to/files" "$to/charts/crds/files"
mkdir -p "$to"/files/{rbac,policies,scheduler-claims,monitoring/dashboards} "$to/charts/crds/files"
cp crds/*.yaml "$to/charts/crds/files/"
cp rbac/*.yaml "$to/files/rbac/"
cp policies/*.yaml "$to/files/policies/"
cp scheduler-claims/{rbac,policy}.yaml "$to/files/scheduler-claims/"
cp flowschema.yaml webhook.yaml "$to/files/"
cp helm/uninstall-policy.yaml "$to/files/"
cp monitoring/rules.yaml "$to/files/monitoring/"
cp monitoring/dashboards/*.json "$to/files/monitoring/dashboards/"
