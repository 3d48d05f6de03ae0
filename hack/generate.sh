#!/usr/bin/env bash
# Generates deep copies, clients and CRDs from the API types, the plugin arguments' deep copies, the
# protocols of discovery and plugins, dashboards, and the pages of docs/reference.
set -euo pipefail
cd "$(dirname "$0")/.."

# Built before where hack/check-generated.sh runs this in a copy of the tree.
[ -n "${TOOLS:-}" ] || hack/tools.sh
tools=${TOOLS:-$PWD/_output/tools}
types=github.com/kubeslot/kubeslot/types
apis=("$types/akri/v0" "$types/kubeslot/v1alpha1")
client=$types/client
header=hack/boilerplate.go.txt

rm -rf types/client/{clientset,informers,listers}
"$tools/deepcopy-gen" --output-file zz_generated.deepcopy.go --go-header-file "$header" \
  "${apis[@]}" github.com/kubeslot/kubeslot/kube-scheduler/config
"$tools/client-gen" --clientset-name versioned --input-base "" --input "${apis[0]}" --input "${apis[1]}" \
  --output-pkg "$client/clientset" --output-dir types/client/clientset --go-header-file "$header"
"$tools/lister-gen" --output-pkg "$client/listers" --output-dir types/client/listers \
  --go-header-file "$header" "${apis[@]}"
"$tools/informer-gen" --output-pkg "$client/informers" --output-dir types/client/informers \
  --versioned-clientset-package "$client/clientset/versioned" --listers-package "$client/listers" \
  --go-header-file "$header" "${apis[@]}"
"$tools/controller-gen" crd paths=./types/akri/v0 paths=./types/kubeslot/v1alpha1 output:crd:dir=deploy/crds
for proto in types/discovery/v0/discovery types/plugin/registration/registration types/plugin/v1alpha1/plugin; do
  "$tools/protocompile" . "$proto.proto"
done
go run ./deploy/monitoring/cmd/monitoring deploy/monitoring
deploy/helm/copy.sh
go run ./hack/reference docs/reference deploy/helm/kubeslot/README.md
