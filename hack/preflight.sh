#!/usr/bin/env bash
# Says everything that this machine lacks for the given needs, all at once:
#   hack/preflight.sh go gcc root
set -u
missing=()

for need in "$@"; do
  case "$need" in
    go)
      want=$(sed -n 's/^go //p' "$(dirname "$0")/../go.mod")
      if ! command -v go >/dev/null; then
        missing+=("Go is not on PATH: install Go $want or newer from https://go.dev/dl")
      else
        have=$(GOTOOLCHAIN=local go env GOVERSION); have=${have#go}
        oldest=$(printf '%s\n%s\n' "$want" "${have%% *}" | sort -V | head -n 1)
        [ "$oldest" = "$want" ] || missing+=("Go is $have, and Go $want or newer is needed: install it from https://go.dev/dl")
      fi ;;
    gcc)
      command -v gcc >/dev/null || missing+=("gcc is not on PATH (runc and the race detector need cgo): apt-get install gcc libc6-dev") ;;
    root)
      [ "$(uname -s)" = Linux ] || missing+=("this is $(uname -s): the cluster needs Linux")
      [ "$(id -u)" = 0 ] || missing+=("not root: the cluster makes namespaces, mounts and cgroups; run it with sudo") ;;
    *)
      echo "preflight: unknown need '$need'" >&2; exit 2 ;;
  esac
done

[ ${#missing[@]} -eq 0 ] && exit 0
echo "Cannot start, something is missing:" >&2
printf '  - %s\n' "${missing[@]}" >&2
exit 1
