#!/usr/bin/env bash
# Says everything that this machine lacks for the given needs, all at once:
#   hack/preflight.sh go gcc root disk:5 memory:3 cluster:demo
# disk:5 is what a first build leaves in Go's build cache, in GB: later ones leave less, 1 at least. Until it ends, go
# build keeps what the cluster's programs are made of, up to 4 GB, once more in _output. memory:3 is what must be available.
# cluster:demo is the name of a demo's cluster, which must not be there.
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
      if [ "$(id -u)" != 0 ]; then
        missing+=("not root: the cluster makes namespaces, mounts and cgroups; run it with sudo")
      elif [ $((0x$(awk '/^CapEff:/ { print $2 }' /proc/self/status) >> 21 & 1)) = 0 ]; then # CAP_SYS_ADMIN
        missing+=("root without CAP_SYS_ADMIN: in a container, run it with --privileged")
      elif [ ! -e /dev/kmsg ]; then
        missing+=("/dev/kmsg is missing, which the kubelet watches: in a container, pass it with --device /dev/kmsg")
      fi ;;
    disk:*)
      cache=$(go env GOCACHE 2>/dev/null) modules=$(go env GOMODCACHE 2>/dev/null)
      # What an earlier build has left in the cache need not be made again.
      there=$(du -sk "$cache" 2>/dev/null | awk '{ printf "%d", $1 / 1000000 }')
      want=$((${need#disk:} - ${there:-0}))
      [ "$want" -ge 1 ] || want=1
      again=$((want < 4 ? want : 4))
      unset wants places; declare -A wants places
      for at in "$want:$cache" "$again:$(cd "$(dirname "$0")/.." && pwd)" "1:$modules" "1:${TMPDIR:-/tmp}" 1:/var/tmp; do
        directory=${at#*:}
        # It may not be there yet.
        while [ "${directory#/}" != "$directory" ] && [ ! -d "$directory" ]; do directory=${directory%/*}; done
        directory=${directory:-/}
        filesystem=$(df -P "$directory" 2>/dev/null | awk 'NR == 2 { print $6 }')
        filesystem=${filesystem:-$directory}
        wants[$filesystem]=$((${wants[$filesystem]:-0} + ${at%%:*}))
        [[ ", ${places[$filesystem]:-}, " == *", $directory, "* ]] || places[$filesystem]+="${places[$filesystem]:+, }$directory"
      done
      for filesystem in "${!wants[@]}"; do
        want=${wants[$filesystem]}
        free=$(df -Pk "$filesystem" 2>/dev/null | awk 'NR == 2 { printf "%d", $4 / 1000000 }')
        [ "${free:-$want}" -ge "$want" ] || missing+=("$filesystem has $free GB free, and the build takes up to $want GB there (${places[$filesystem]}): make room, or set GOCACHE, GOMODCACHE and TMPDIR to directories elsewhere")
      done ;;
    memory:*)
      want=${need#memory:}
      free=$(awk '/^(MemAvailable|SwapFree):/ { n += $2 } END { printf "%d", n / 1000000 }' /proc/meminfo 2>/dev/null)
      # A container may have less than its machine.
      for file in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
        limit=$(awk '/^[0-9]+$/ { printf "%d", $1 / 1000000000 }' "$file" 2>/dev/null)
        [ "${limit:-$free}" -ge "${free:-0}" ] || free=$limit
      done
      [ "${free:-$want}" -ge "$want" ] || missing+=("$free GB of memory are available, and building and running the cluster takes $want GB: end other programs, or add swap") ;;
    cluster:*)
      name=${need#cluster:}
      down="make demo-down"
      [ "$name" = demo ] || down="make demo-down NAME=$name"
      for file in "/var/tmp/kubeslot/$name"/*; do
        # Logs outlive a cluster.
        [ -e "$file" ] && [ "${file##*/}" != logs ] || continue
        missing+=("the cluster \"$name\" is there already (${file%/*}): take it down with \"$down\", or choose another name with NAME=")
        break
      done ;;
    *)
      echo "preflight: unknown need '$need'" >&2; exit 2 ;;
  esac
done

[ ${#missing[@]} -eq 0 ] && exit 0
echo "Cannot start:" >&2
printf '  - %s\n' "${missing[@]}" >&2
exit 1
