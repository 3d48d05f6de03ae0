#!/usr/bin/env bash
# Generates deep copies, clients and CRDs from types/akri/v0, and the plugin arguments' deep copies.
set -euo pipefail
cd "$(dirname "$0")/.."

tool() { go tool -modfile=hack/tools/go.mod "$@"; }
api=github.com/kubeslot/kubeslot/types/akri/v0
client=github.com/kubeslot/kubeslot/types/akri/client
header=hack/boilerplate.go.txt

rm -rf types/akri/client
tool deepcopy-gen --output-file zz_generated.deepcopy.go --go-header-file "$header" "$api"
tool deepcopy-gen --output-file zz_generated.deepcopy.go --go-header-file "$header" github.com/kubeslot/kubeslot/kube-scheduler/config
tool client-gen --clientset-name versioned --input-base "" --input "$api" \
  --output-pkg "$client/clientset" --output-dir types/akri/client/clientset --go-header-file "$header"
tool lister-gen --output-pkg "$client/listers" --output-dir types/akri/client/listers \
  --go-header-file "$header" "$api"
tool informer-gen --output-pkg "$client/informers" --output-dir types/akri/client/informers \
  --versioned-clientset-package "$client/clientset/versioned" --listers-package "$client/listers" \
  --go-header-file "$header" "$api"
tool controller-gen crd paths=./types/akri/v0 output:crd:dir=deploy/crds
