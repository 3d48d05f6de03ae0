#!/usr/bin/env bash
# gofmt, the checks of go vet and staticcheck, and generated files up to date. Says how long each step took.
set -euo pipefail
cd "$(dirname "$0")/.."

step() {
  local begin=$SECONDS
  "${@:2}" || { echo "lint: $1: failed after $((SECONDS - begin)) s"; return 1; }
  echo "lint: $1: $((SECONDS - begin)) s"
}

formatted() {
  local unformatted
  unformatted=$(git ls-files -z '*.go' | xargs -0 gofmt -l) || return 1
  [ -z "$unformatted" ] || { echo "not gofmt-clean:"; echo "$unformatted"; return 1; }
}

# Each module that has code, those within testdata too.
check() {
  local modules=()
  for module in $(git ls-files '*go.mod' | xargs -n 1 dirname); do
    [ -z "$(git ls-files "$module/*.go")" ] || modules+=("$module")
  done
  _output/tools/lint -clean _output/tools/lint.clean "${modules[@]}"
}

step "gofmt" formatted
step "build the tools" hack/tools.sh
step "vet and staticcheck" check
step "generated files" hack/check-generated.sh
