#!/usr/bin/env bash
# Builds the binding, starts five nodes, and runs YCSB's workloads a, b and c, and half updates of
# 16 KiB (large), on registers:
#
#   bench/ycsb/run.sh [replicated|coded|treas-opt|oreas|ares ...]      default: replicated coded
#
# FERMATA names the program (default: target/release/fermata), THREADS the clients (default: 3),
# WORKLOADS what is run (default: "a b c large").
# Results go to target/ycsb/STORAGE-WORKLOAD.txt.
set -euo pipefail
cd "$(dirname "$0")/../.."
fermata=${FERMATA:-target/release/fermata}
threads=${THREADS:-3}
base=${BASE_PORT:-7600}
read -ra workloads <<<"${WORKLOADS:-a b c large}"
storages=("$@")
[ ${#storages[@]} -gt 0 ] || storages=(replicated coded)

[ -x "$fermata" ] || { echo "$fermata is not there: cargo build --release -p fermata" >&2; exit 1; }
mvn -q -B -f bench/ycsb/pom.xml package
out=target/ycsb
mkdir -p "$out"

"$fermata" dev --sites 5 --base-port "$base" >"$out/dev.log" 2>&1 &
dev=$!
trap 'kill -INT "$dev" 2>/dev/null || true; wait "$dev" 2>/dev/null || true' EXIT
until grep -qx ready "$out/dev.log"; do
  kill -0 "$dev" || { cat "$out/dev.log" >&2; exit 1; }
  sleep 0.2
done
grpc=127.0.0.1:$base
rest=127.0.0.1:$((base + 1)),127.0.0.1:$((base + 11)),127.0.0.1:$((base + 21))

ycsb() {
  java -cp "bench/ycsb/target/fermata-ycsb-0.1.0.jar:bench/ycsb/target/lib/*" site.ycsb.Client \
    -db fermata.ycsb.FermataClient -threads "$threads" -s \
    -p "fermata.endpoints=$rest" "$@" 2>>"$out/ycsb.log"
}

for storage in "${storages[@]}"; do
  name=ycsb-$storage
  options=()
  [ "$storage" = replicated ] || options=(--f 1 --whole-below 0)
  "$fermata" --endpoint "$grpc" keyspace create "$name" --purpose registers \
    --storage "$storage" "${options[@]}"
  for table in a large; do
    ycsb -load -P "bench/ycsb/workloads/$table" -p "fermata.keyspace=$name" \
      >"$out/$storage-load-$table.txt"
  done
  for workload in "${workloads[@]}"; do
    result=$out/$storage-$workload.txt
    ycsb -t -P "bench/ycsb/workloads/$workload" -p "fermata.keyspace=$name" >"$result"
    echo "$storage, workload $workload"
    grep -E 'Throughput|(READ|UPDATE|VERIFY)\], (AverageLatency|95thPercentile|Return=)' "$result"
    if grep -E 'Return=' "$result" | grep -qv 'Return=OK'; then
      echo "some operations failed: see $result" >&2
      exit 1
    fi
  done
done
