#!/usr/bin/env bash
# Generates deep copies, clients and CRDs from the API types, the plugin arguments' deep copies, the
# discovery protocol, and dashboards.
set -euo pipefail
cd "$(dirname "$0")/.."

tool() { go tool -modfile=hack/tools/go.mod "$@"; }
types=github.com/kubeslot/kubeslot/types
apis=("$types/akri/v0" "$types/kubeslot/v1alpha1")
client=$types/client
header=hack/boilerplate.go.txt

rm -rf types/client/{clientset,informers,listers}
for api in "${apis[@]}" github.com/kubeslot/kubeslot/kube-scheduler/config; do
  tool deepcopy-gen --output-file zz_generated.deepcopy.go --go-header-file "$header" "$api"
done
tool client-gen --clientset-name versioned --input-base "" --input "${apis[0]}" --input "${apis[1]}" \
  --output-pkg "$client/clientset" --output-dir types/client/clientset --go-header-file "$header"
tool lister-gen --output-pkg "$client/listers" --output-dir types/client/listers \
  --go-header-file "$header" "${apis[@]}"
tool informer-gen --output-pkg "$client/informers" --output-dir types/client/informers \
  --versioned-clientset-package "$client/clientset/versioned" --listers-package "$client/listers" \
  --go-header-file "$header" "${apis[@]}"
tool controller-gen crd paths=./types/akri/v0 paths=./types/kubeslot/v1alpha1 output:crd:dir=deploy/crds
go -C hack/tools run ./protocompile ../.. types/discovery/v0/discovery.proto
go run ./deploy/monitoring/cmd/monitoring deploy/monitoring
deploy/helm/copy.sh
