#!/usr/bin/env bash
# Prints the packages that are tested with -race: those whose own files, code or tests, start
# goroutines: by go statements, tests in parallel, or servers and informers, which call from
# goroutines of their own. A lock or a channel alone is no reason: where no goroutine starts,
# there is nobody to race with. Packages that need a cluster are left out, and one that tests a
# limit of memory, which the race detector exceeds by itself; with SHORT=1 also plugins/load, for
# which plugins and all that they import are built with -race.
set -euo pipefail
cd "$(dirname "$0")/.."
clusters='test/(e2e|cluster|deviceplugin|helm|hostinstall|monitoring|perf|skew|release)'
meet='^\s*go (func|[a-zA-Z_.]+)\(|\.Go\(|\.Parallel\(\)|"testing/synctest"'
meet+='|"net/http/httptest"|"google\.golang\.org/grpc"|"k8s\.io/client-go/(informers|tools/cache)"'
for file in $(git ls-files -co --exclude-standard '*.go'); do [ ! -e "$file" ] || echo "$file"; done | # some may be deleted
  grep -vE "(^|/)testdata/|^(${SHORT:+plugins/load|}deploy/images|kubedevice-api|hack|kubecri/discoveryworker/memorylimit|$clusters)/" |
  xargs grep -lE "$meet" | xargs -n1 dirname | sort -u | sed 's|^|./|' |
  xargs go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}'
