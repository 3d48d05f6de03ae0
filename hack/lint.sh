#!/usr/bin/env bash
# gofmt, the checks of go vet and staticcheck, and generated files up to date. Says how long each step took.
set -euo pipefail
cd "$(dirname "$0")/.."

step() {
  local begin=$SECONDS
  "${@:2}" || { echo "lint: $1: failed after $((SECONDS - begin)) s"; return 1; }
  echo "lint: $1: $((SECONDS - begin)) s"
}

# files are those of the working tree, new ones too, that match.
files() {
  local file
  for file in $(git ls-files -co --exclude-standard "$@"); do [ ! -e "$file" ] || echo "$file"; done
}

formatted() {
  local unformatted
  unformatted=$(files '*.go' | xargs gofmt -l) || return 1
  [ -z "$unformatted" ] || { echo "not gofmt-clean:"; echo "$unformatted"; return 1; }
}

# Each module that has code, those within testdata too.
check() {
  local modules=()
  for module in $(files '*go.mod' | xargs -n 1 dirname); do
    [ -z "$(files "$module/*.go")" ] || modules+=("$module")
  done
  _output/tools/lint -clean _output/tools/lint.clean "${modules[@]}"
}

step "gofmt" formatted
step "build the tools" hack/tools.sh
step "vet and staticcheck" check
step "generated files" hack/check-generated.sh
