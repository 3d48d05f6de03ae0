#!/usr/bin/env bash
# Takes the pictures of docs/ui.md from a real cluster, which it brings up and takes away.
# OUT is the folder, NAME the cluster's name, WAIT how many seconds pods come and go first,
# so that the last hour has something to show.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
name=${NAME:-pictures} go=${GO:-go}
log=$(mktemp)
page=
finish() {
  [ -z "$page" ] || kill "$page" || true
  rm -f "$log"
  [ -n "${KEEP:-}" ] || $go run ./test/cluster/cmd/cluster down --name "$name"
}
trap finish EXIT
[ -n "${REUSE:-}" ] || $go run ./test/cluster/cmd/cluster up --name "$name"
state=/var/tmp/kubeslot/$name
export KUBECONFIG=$state/kubeconfigs/admin PATH=$state/bin:$PATH
kubectl apply -f "$here/scene.yaml"
kubectl kubeslot ui >"$log" &
page=$!
until grep -q ^http "$log"; do kill -0 "$page"; sleep 0.2; done
until kubectl apply -f "$here/pods.yaml"; do sleep 0.5; done
for ((end = SECONDS + ${WAIT:-60}; SECONDS < end; )); do
  kubectl -n plant scale deployment historian --replicas=$((RANDOM % 5 + 3))
  kubectl -n ml scale deployment inference --replicas=$((RANDOM % 4 + 5))
  kubectl -n security scale deployment recorder --replicas=$((RANDOM % 2 + 2))
  sleep 5
done
kubectl -n plant scale deployment historian --replicas=7
kubectl -n ml scale deployment inference --replicas=7
kubectl -n security scale deployment recorder --replicas=3
sleep 4
$go run ./kubectl-kubeslot/ui/pictures -o "${OUT:-docs/pictures}" "$(cat "$log")"
