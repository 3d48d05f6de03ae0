#!/usr/bin/env bash
# Runs staticcheck over each Go module of the repository that has code, without generated clients.
set -euo pipefail
cd "$(dirname "$0")/.."

staticcheck=$(go -C hack/tools tool -n staticcheck)
for module in $(git ls-files '*go.mod'); do
  directory=$(dirname "$module")
  [ -n "$(git ls-files "$directory" | grep '\.go$')" ] || continue
  packages=$(go -C "$directory" list ./... | grep -v '/types/client/\(clientset\|informers\|listers\)')
  # shellcheck disable=SC2086
  (cd "$directory" && "$staticcheck" $packages)
done
