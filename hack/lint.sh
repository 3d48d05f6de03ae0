#!/usr/bin/env bash
# gofmt, the length of new lines, the checks of go vet and staticcheck, GitHub's workflows, and generated
# files up to date. Says how long each step took.
#   LINT_BASE  new lines are those added since this commit (HEAD~1)
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

# added prints the lines that the working tree adds to Go files since LINT_BASE, new files included, as
# file:line:<tab>text, with four columns for a tab in the text.
added() {
  local base file
  base=${LINT_BASE:-$(git rev-parse -q --verify HEAD~1 || echo HEAD)} # a clone of one commit has no HEAD~1
  {
    git rev-parse -q --verify "$base^{commit}" >/dev/null || { echo "LINT_BASE=$base is no commit" >&2; return 1; }
    git -c core.quotePath=false diff -U0 --no-color --no-ext-diff --src-prefix=a/ --dst-prefix=b/ "$base" -- '*.go' || return 1
    git ls-files -o --exclude-standard '*.go' | while read -r file; do
      printf '+++ b/%s\n@@ -0,0 +1 @@\n' "$file"
      sed 's/^/+/' "$file"
    done
  } | awk '
    /^\+\+\+ b\// { file = substr($0, 7); next }
    /^@@ / { split($3, at, /[+,]/); line = at[2]; next }
    /^\+/ { text = substr($0, 2); gsub(/\t/, "    ", text); print file ":" line++ ":\t" text }'
}

# New lines have at most 120 columns. Longer ones may be what gofmt and Go leave no choice for: raw strings and
# tags, addresses, directives, and generated files.
short() {
  local lines long
  lines=$(added) || return 1
  long=$(LC_ALL=C.UTF-8 grep -P '^[^\t]*\t.{121}' <<<"$lines" |
    grep -vP '^types/client/|zz_generated|\.pb\.go:|`|https?://|\t\s*//(go:| ?\+)' | cut -f 1) || true
  [ -z "$long" ] || { echo "new lines of more than 120 columns:"; echo "$long"; return 1; }
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
step "new lines" short
step "build the tools" hack/tools.sh
step "vet and staticcheck" check
step "workflows" _output/tools/actionlint -shellcheck= -pyflakes=
step "generated files" hack/check-generated.sh
