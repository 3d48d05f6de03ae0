#!/usr/bin/env bash
# Builds lint and the generators, whose versions hack/tools/go.mod gives, into _output/tools/.
set -euo pipefail
cd "$(dirname "$0")/tools"
mkdir -p ../../_output/tools
GOWORK=off go build -o ../../_output/tools/ tool ./lint ./protocompile
