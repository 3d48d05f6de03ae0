#!/usr/bin/env bash
# `go mod tidy` for each module of the tree. Our own modules are taken from the tree: what one requires of
# another is the version that a release publishes, which may not be there yet.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off
types=github.com/kubeslot/kubeslot/types
for module in types . kubedevice-api kubedevice-api/testdata/oldplugin hack/tools test/perf/scheduler; do
  echo "tidy $module"
  if [ "$module" = . ]; then
    go mod edit -replace "$types=./types"
    go mod tidy || { go mod edit -dropreplace "$types"; exit 1; }
    go mod edit -dropreplace "$types"
  else
    go -C "$module" mod tidy
  fi
done
