#!/usr/bin/env bash
# Says whether hack/generate.sh would change anything. It generates in a copy of the tree.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# Files that git does not know yet belong to the tree, too.
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  [ ! -e "$file" ] || printf '%s\0' "$file"
done | xargs -0 cp --parents -Pt "$copy"
"$copy/hack/generate.sh" >"$copy/generate.log" 2>&1 || { cat "$copy/generate.log"; exit 1; }
for tree in types deploy kube-scheduler/config; do
  diff -r -x '*.rej' "$tree" "$copy/$tree" || stale=yes
done
[ -z "${stale:-}" ] || { echo "generated files are not up to date: run make generate"; exit 1; }
