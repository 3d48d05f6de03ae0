#!/usr/bin/env bash
# Says whether hack/generate.sh would change anything. The pages of docs/reference, which are of all of the Go code,
# and the chart's README are made anew each time, in seconds. For the rest it generates in a copy of the tree, unless
# it found nothing to change before, in the same files: all that generated files are made from, and they themselves.
set -euo pipefail
cd "$(dirname "$0")/.."
trees=(types deploy kube-scheduler/config)
stamp=_output/tools/generated

stale() { echo "generated files are not up to date: run make generate"; exit 1; }

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
go run ./hack/reference "$copy/docs/reference" "$copy/README.md"
diff -r docs/reference "$copy/docs/reference" || stale
diff deploy/helm/kubeslot/README.md "$copy/README.md" || stale

# Files that git does not know yet belong to the tree, too.
files() {
  git ls-files -z --cached --others --exclude-standard "$@" | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
  done
}
imported=$(go list -deps -f '{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}' ./types/... ./kube-scheduler/config ./deploy/monitoring/cmd/monitoring)
# shellcheck disable=SC2086
sum=$({ go version; sha256sum _output/tools/*-gen* _output/tools/protocompile
  files "${trees[@]}" hack go.mod go.sum $imported | xargs -0 sha256sum; } | sha256sum)
[ "$sum" != "$(cat "$stamp" 2>/dev/null)" ] || exit 0

files | xargs -0 cp --parents -Pt "$copy"
TOOLS=$PWD/_output/tools "$copy/hack/generate.sh" >"$copy/generate.log" 2>&1 || { cat "$copy/generate.log"; exit 1; }
for tree in "${trees[@]}"; do
  diff -r -x '*.rej' "$tree" "$copy/$tree" || differs=yes
done
[ -z "${differs:-}" ] || stale
echo "$sum" >"$stamp"
