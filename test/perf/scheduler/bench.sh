#!/usr/bin/env bash
# Runs the scheduler benchmark and compares its arms:
#   COUNT   repeats, in each of which all arms run (6)
#   NODES   nodes of the cluster (500)
#   PODS    pods measured in each run (2000), but in full
#   DRAPODS pods measured in runs of DRA's arms, which take longer (250; shared 20)
#   SHAPES  of dense,two,sparse,shared,full (all); two without DRA's arms
#   ARMS    of plain,ours,strict,signed,dra-extended,dra-claim,dra-consumable,dra-kubeslot (all but signed)
#   PREQUEUEING=true enables SchedulerPreQueueingHints
#   BATCHING=true enables OpportunisticBatching, which scheduler_perf disables, and
#           ends the default topology constraints, with which it does nothing
#   PROFILE=cpu writes CPU profiles of what is measured, <shape>-<arm>.pprof
#   OUT     where results go (_output/bench-scheduler)
set -euo pipefail
cd "$(dirname "$0")"
out=$(realpath -m "${OUT:-../../../_output/bench-scheduler}")
mkdir -p "$out/bin"

# etcd is the real cluster's. It syncs nothing to disk: the disk's latency is not what is
# measured.
CGO_ENABLED=1 GOFLAGS= go -C ../../.. build -trimpath -buildvcs=false -gcflags=all=-dwarf=false -tags=netgo,osusergo \
  -o "$out/bin/etcd-server" go.etcd.io/etcd/server/v3
printf '#!/bin/sh\nexec %q --unsafe-no-fsync "$@"\n' "$out/bin/etcd-server" >"$out/bin/etcd"
chmod +x "$out/bin/etcd"
export GOWORK=off # a module of its own
go tool -n benchstat >/dev/null # now, not after the runs
go test -c -o "$out/bin/scheduler.test" .
# Upstream's API server for tests looks for files beside its source. With -trimpath, which make sets, it
# finds them by these.
modules=$(go env GOMODCACHE)
export TEST_SRCDIR=${modules%/*} TEST_WORKSPACE=${modules##*/}

openssl genpkey -algorithm ed25519 -out "$out/signing.key" # of the arm signed
temp=$(mktemp -d /dev/shm/bench-scheduler.XXXXXX)
trap 'rm -rf "$temp"' EXIT
export PATH="$out/bin:$PATH" TMPDIR=$temp

# run measures one arm on one shape, in a process of its own.
run() {
  case $1-$2 in
    two-dra-*) echo "shape=$1/arm=$2: skipped, as the pods of DRA's arms ask for one kind of device"; return ;;
  esac
  local profile=()
  [ "${PROFILE:-}" = cpu ] && profile=(-profile "$out/$1-$2.pprof")
  local pods=${PODS:-2000}
  case $1-$2 in
    shared-dra-*) pods=${DRAPODS:-20} ;;
    *-dra-*) pods=${DRAPODS:-250} ;;
  esac
  "$out/bin/scheduler.test" -test.run '^$' -test.bench '^BenchmarkPerfScheduling$' -test.benchtime 1x \
    -test.timeout 2h -data-items-dir "$temp/items" -v 0 "${profile[@]}" \
    -signing-key "$out/signing.key" -shapes "$1" -arms "$2" -nodes "${NODES:-500}" -pods "$pods" -batching="${BATCHING:-false}" \
    -pre-queueing="${PREQUEUEING:-false}" \
    >"$temp/log" 2>&1 || { cat "$temp/log" >&2; return 1; }
  # A line of the result is a benchmark's, or says on what it ran.
  grep -E '^(Benchmark.* 1	|goos:|goarch:|pkg:|cpu:)' "$temp/log" >>"$out/raw.txt"
  sed -nE 's/.*(shape=[^ ]*)-[0-9]+ .*	 *([0-9.]+) pods\/s	.*/\1 \2 pods\/s/p' "$temp/log"
}

# The arms alternate, to and fro, so that what else the machine does, or a drift
# of its speed, hits all of them alike.
: >"$out/raw.txt"
IFS=, read -ra shapes <<<"${SHAPES:-dense,two,sparse,shared,full}"
IFS=, read -ra arms <<<"${ARMS:-plain,ours,strict,dra-extended,dra-claim,dra-consumable,dra-kubeslot}"
for ((n = 0; n < ${COUNT:-6}; n++)); do
  for shape in "${shapes[@]}"; do
    for ((i = 0; i < ${#arms[@]}; i++)); do
      run "$shape" "${arms[n % 2 ? ${#arms[@]} - 1 - i : i]}"
    done
  done
done

echo
go tool benchstat -col '/arm@(plain ours strict signed dra-extended dra-claim dra-consumable dra-kubeslot)' -row /shape,/nodes \
  -filter '.unit:(pods/s OR cpu-ms/pod OR writes/pod OR events/pod OR heap-MB)' "$out/raw.txt" | tee "$out/table.txt"
