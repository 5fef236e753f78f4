#!/usr/bin/env bash
# Builds the libFuzzer binaries with coverage and AddressSanitizer on the stable toolchain, and runs them one by one.
#   fuzz/run.sh build [TARGET...]
#   fuzz/run.sh run MINUTES [TARGET...]     each target for so many minutes of processor time
#   fuzz/run.sh results [TARGET...]         a table of what the logs say
# CARGO_TARGET_DIR, FUZZ_LOGS and FUZZ_CORPUS (inputs that are found, beside the committed seeds) may be set.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
triple=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$here/../target/fuzz}
logs=${FUZZ_LOGS:-$CARGO_TARGET_DIR/logs}
found=${FUZZ_CORPUS:-$CARGO_TARGET_DIR/corpus}

# What cargo-fuzz passes. `--target` keeps build scripts and macros as they are. `--cfg fuzzing` is left out on purpose:
# some dependencies turn checks off under it.
build() {
    local flags=(
        -Cpasses=sancov-module
        -Cllvm-args=-sanitizer-coverage-level=4
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
        -Cllvm-args=-sanitizer-coverage-pc-table
        -Cllvm-args=-sanitizer-coverage-trace-compares
        -Cllvm-args=-sanitizer-coverage-stack-depth
        -Cllvm-args=-simplifycfg-branch-fold-threshold=0
        -Zsanitizer=address
        -Cforce-frame-pointers=yes
    )
    local IFS=$'\x1f'
    (cd "$here/targets" && CARGO_ENCODED_RUSTFLAGS="${flags[*]}" RUSTC_BOOTSTRAP=1 \
        cargo build --release --locked --target "$triple" "$@")
}

# Rounds of two minutes by the clock until a target has had its processor time: on a busy machine the clock says little.
# A crash ends the run of its target: its input is kept in the logs' directory, and the other targets still run.
run() {
    local seconds=$((${1%.*} * 60)) name failed=0 spent round TIMEFORMAT='%U %S'
    shift
    mkdir -p "$logs"
    for name in "$@"; do
        mkdir -p "$found/$name"
        spent=0
        while ((spent < seconds)); do
            { time RAYON_NUM_THREADS=1 RUST_BACKTRACE=1 ASAN_OPTIONS=detect_leaks=0 nice -n 19 \
                "$CARGO_TARGET_DIR/$triple/release/$name" "$found/$name" "$here/corpus/$name" \
                -max_total_time=$((seconds - spent < 120 ? seconds - spent : 120)) -max_len=16384 -timeout=60 \
                -rss_limit_mb=3072 -malloc_limit_mb=256 -reload=0 -print_final_stats=1 \
                -artifact_prefix="$logs/$name-" >>"$logs/$name.log" 2>&1; } 2>"$logs/$name.time" \
                || { failed=1; echo "$name failed: see $logs/$name.log"; break; }
            round=$(awk '{ printf "%d", $1 + $2 + 1 }' "$logs/$name.time")
            spent=$((spent + round))
            echo "processor: $round s" >>"$logs/$name.log"
        done
    done
    return $failed
}

results() {
    local name
    echo "| target | minutes | executions | edges |"
    echo "|---|---|---|---|"
    for name in "$@"; do
        [ -e "$logs/$name.log" ] || continue
        awk -v name="$name" '
            /^Done [0-9]+ runs in/ { runs += $2 }
            /^processor: / { seconds += $2 }
            / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:" && $(i + 1) + 0 > edges) edges = $(i + 1) }
            END { printf "| `%s` | %.1f | %d | %d |\n", name, seconds / 60, runs, edges }' "$logs/$name.log"
    done
}

command=${1:-}
shift || true
minutes=1
if [ "$command" = run ]; then minutes=${1:?minutes}; shift; fi
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    for file in "$here"/targets/src/bin/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi
case $command in
    build) build "${targets[@]/#/--bin=}" ;;
    run) run "$minutes" "${targets[@]}" ;;
    results) results "${targets[@]}" ;;
    *) sed -n '2,6p' "$0" | cut -c3-; exit 2 ;;
esac
