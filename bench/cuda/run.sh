#!/bin/bash
# Tests and measurements on a machine with a GPU, from a folder made by pack.sh or from a build folder.
#
#     bench/cuda/run.sh [-d folder] tests | sanitize tool | faults | runs | collectives | bench [case ...] |
#                                       profile case | text [option ...] | text-against-torch [option ...] |
#                                       accuracy [option ...] | text-runs folder
#
# tests: the op tests, and those of convolutions in small parts of the batch. sanitize: the same under compute-sanitizer (memcheck or racecheck). faults: a GPU that hangs, one that
# is lost, a batch too large for it. runs: training through the program, stopped, killed, resumed and moved to the CPU,
# final weights compared. collectives: sums among GPUs, as a group of one through NCCL, with what that costs a step; and two
# workers on this GPU through shared memory and through gloo, with synchronized batch norms, against one. bench/engine/run --device cuda compares with PyTorch.
#
# text: steps of a text model (bench/text/step.c; build bench_text_step before packing); text-against-torch: bench/text/gpu.
# accuracy: bench/text/accuracy, e.g. --data ag_news --weights minilm --precision bf16. text-runs: runs, with a BERT on the texts in a folder.
#
# Cases: mnist-cnn cifar-cnn resnet18-64 resnet50-224 vgg19-224. CUDA's libraries are taken from the system or from
# Python's packages (nvidia/*/lib). PRECISION (default bf16), SECONDS_EACH (default 5).
set -u
folder=carry
if [ "${1:-}" = -d ]; then
    folder=$2
    shift 2
fi
here=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "$folder" && pwd)
if [ -e "$folder/carry.tar.xz" ]; then
    mkdir -p /tmp/farthing-carry
    tar -C /tmp/farthing-carry -xJf "$folder/carry.tar.xz"
    folder=/tmp/farthing-carry
fi
python=$(command -v python3)
nvidia=$("$python" - <<'PY'
import glob, os, site, sys
found = []
for base in site.getsitepackages():
    found += glob.glob(os.path.join(base, "nvidia", "*", "lib"))
print(":".join(found))
PY
)
libraries="$folder/lib:$nvidia:/usr/local/cuda/lib64"
export FARTHING_PLUGINS="$folder" TEST_DATA="$here/tests"
with() { env LD_LIBRARY_PATH="$libraries" "$@"; }

size_of() {
    case $1 in
    mnist-cnn) echo "--model mnist-cnn --batch 64" ;;
    cifar-cnn) echo "--model cifar-cnn --batch 64" ;;
    resnet18-64) echo "--model resnet18 --batch 256 --height 64 --width 64 --classes 200" ;;
    resnet50-224) echo "--model resnet50 --batch 256 --height 224 --width 224 --classes 1000" ;;
    vgg19-224) echo "--model vgg19 --batch 128 --height 224 --width 224 --classes 1000" ;;
    *) echo "run.sh: no case $1" >&2; exit 2 ;;
    esac
}

bench_one() { # case precision
    # shellcheck disable=SC2046
    with "$folder/farthing" bench --device cuda $(size_of "$1") --precision "$2" --seconds "${SECONDS_EACH:-5}"
}

# Training through the program, in the folder $runs.
failed=0
go() { with timeout 200 "$folder/farthing" train --device "${on:-cuda}" --runs "$runs" "$@" > "$runs/log" 2>&1; }
go_killed() { # name, options: killed as soon as there is a checkpoint, then resumed
    name=$1
    shift
    env LD_LIBRARY_PATH="$libraries" "$folder/farthing" train --device cuda --runs "$runs" "$@" --name "$name" > "$runs/log" 2>&1 &
    victim=$!
    for _ in $(seq 200); do
        sleep 0.05
        ls "$runs/$name/checkpoints"/step-*.json > /dev/null 2>&1 && break
    done
    kill -9 $victim
    wait $victim 2> /dev/null
    go --resume "$name" || { tail -3 "$runs/log"; failed=1; }
}
resumes() { grep -c '"resume' "$runs/$1/events.jsonl"; }
sum() { sha256sum < "$runs/$1/last.safetensors" | cut -c1-16; }
same() { # what, one, other
    if [ "$(sum "$2")" = "$(sum "$3")" ]; then echo "same weights: $1"; else echo "DIFFERENT: $1"; failed=1; fi
}

op_tests="test_backend_ops test_backend_first_layer test_backend_dropout test_backend_updates test_backend_step
test_backend_synchronized test_backend_collectives test_backend_text"
what=${1:-quick}
[ $# -gt 0 ] && shift
case $what in
tests)
    failed=0
    for test in $op_tests test_model_against_torch; do
        echo "== $test"
        with "$folder/$test" 2>&1 | grep -v -E '^\[ (RUN|      OK) ' | tail -60
        [ "${PIPESTATUS[0]}" = 0 ] || failed=1
    done
    for test in test_backend_ops test_backend_step; do
        echo "== $test, in parts"
        FARTHING_CUDA_PART_ELEMENTS=500 FARTHING_CUDA_TUNE=0 with "$folder/$test" 2>&1 | grep -v -E '^\[ (RUN|      OK) ' | tail -60
        [ "${PIPESTATUS[0]}" = 0 ] || failed=1
    done
    exit $failed
    ;;
sanitize)
    failed=0
    tool=${1:-memcheck}
    for job in step first_layer dropout updates ops:f32 ops:bf16 ops:f16; do
        begun=$(date +%s)
        filter=
        [ "${job%:*}" = "$job" ] || filter="${job#*:}:*"
        FARTHING_CUDA_TUNE=0 with timeout "${LIMIT:-120}" compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "$folder/test_backend_${job%:*}" ${filter:+"$filter"} > /tmp/sanitize.log 2>&1
        code=$?
        echo "$tool $job: exit $code, $(($(date +%s) - begun)) s, $(grep -c '      OK' /tmp/sanitize.log) tests passed," \
            "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' /tmp/sanitize.log | tail -1)"
        [ $code = 0 ] || { failed=1; grep -E '=========|FAILED|ERROR' /tmp/sanitize.log | head -12; }
    done
    exit $failed
    ;;
faults)
    failed=0
    runs=$(mktemp -d)
    train() { with timeout 200 "$folder/farthing" train --device cuda --runs "$runs" --data shapes "$@" 2>&1; }
    begun=$(date +%s)
    said=$(FARTHING_CUDA_TEST_FAULT=hang:30:20 FARTHING_CUDA_TIMEOUT=3 train --model cifar-cnn --steps 100 --name hung)
    code=$? took=$(($(date +%s) - begun))
    echo "a GPU that hangs for 20 s, deadline 3 s: exit $code after $took s: $(echo "$said" | tail -1)"
    [ $code = 1 ] && [ $took -lt 15 ] && echo "$said" | grep -q "did not finish its work within 3 s" || failed=1
    sleep 2
    said=$(FARTHING_CUDA_TEST_FAULT=trap:30 train --model cifar-cnn --steps 100 --checkpoint-every 10 --name lost)
    code=$?
    echo "a GPU that is lost: exit $code: $(echo "$said" | tail -1)"
    [ $code = 1 ] && echo "$said" | grep -q "is lost" || failed=1
    said=$(train --resume lost)
    code=$?
    echo "resumed: exit $code: $(echo "$said" | tail -1)"
    [ $code = 0 ] || failed=1
    said=$(with "$folder/farthing" bench --device cuda --model vgg19 --batch 20000 --height 224 --width 224 --precision bf16 2>&1)
    echo "too large: $(echo "$said" | tail -1)"
    fits=$(echo "$said" | sed -n 's/.*--batch \([0-9]*\) would fit.*/\1/p')
    [ -n "$fits" ] || failed=1
    with "$folder/farthing" bench --device cuda --model vgg19 --batch "${fits:-1}" --height 224 \
        --width 224 --precision bf16 --seconds 1 || failed=1
    rm -rf "$runs"
    exit $failed
    ;;
runs)
    runs=$(mktemp -d)
    for precision in f32 bf16 f16 auto; do
        options="--model resnet18 --data shapes --steps 300 --batch 64 --precision $precision --augment flip-crop --checkpoint-every 40"
        # shellcheck disable=SC2086
        {
            go $options --name "$precision-a" || { tail -3 "$runs/log"; failed=1; }
            FARTHING_DATA_ON_DEVICE=0 go $options --name "$precision-b" || failed=1
            go_killed "$precision-c" $options
        }
        same "$precision, data on the host" "$precision-a" "$precision-b"
        same "$precision, killed and resumed ($(resumes "$precision-c") resume)" "$precision-a" "$precision-c"
        sed -n 's/.*"precision": *"\([a-z0-9]*\)".*/  computed in \1/p' "$runs/$precision-a/run.json" | tail -1
    done
    # Clipping and AdamW; accumulated batches, which update apart.
    for extra in "--optimizer adamw --clip 1" "--accumulate 2"; do
        for name in x1 x2; do
            # shellcheck disable=SC2086
            go --model cifar-cnn --data shapes --steps 100 $extra --name $name || { tail -3 "$runs/log"; failed=1; }
        done
        same "cifar-cnn $extra, twice" x1 x2
        rm -rf "$runs/x1" "$runs/x2"
    done
    if go --model cifar-cnn --data shapes --steps 60 --name moved && on=cpu go --resume moved --steps 120 &&
        go --resume moved --steps 180; then
        echo "moved to the CPU and back"
    else
        tail -3 "$runs/log"
        failed=1
    fi
    rm -rf "$runs"
    exit $failed
    ;;
quick)
    bench_one mnist-cnn bf16
    bench_one resnet18-64 bf16
    ;;
collectives)
    failed=0
    for test in test_backend_synchronized test_backend_collectives; do
        echo "== $test"
        with "$folder/$test" 2>&1 | grep -v -E '^\[ (RUN|      OK) ' | tail -40
        [ "${PIPESTATUS[0]}" = 0 ] || failed=1
    done
    echo "== what NCCL costs a step, one rank (at most 2 %)"
    for case in "resnet50 256 224 20" "resnet18 256 64 50" "vgg19 128 224 20"; do
        # shellcheck disable=SC2086
        with "$folder/test_backend_collectives" cost $case 2>&1 | grep -E ' us a step|ERROR|SKIP' || failed=1
    done
    echo "== two workers on one GPU"
    runs=$(mktemp -d)
    method="--device ${on:-cuda} --model resnet20 --data digits --share 1/50 --batch 64 --steps 10 --lr 0.001 --seed 3"
    method="$method --precision f32 --runs $runs"
    loss() { sed -n 's/^trained .* loss \([0-9.]*\), .*/\1/p' "$runs/log-$1"; }
    pair() { # name, transport
        for rank in 0 1; do
            # shellcheck disable=SC2086
            RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
                with timeout 200 "$folder/farthing" train --strategy data-parallel --transport "$2" \
                --batch-norm synchronized --name "$1" $method > "$runs/log-$1-$rank" 2>&1 &
        done
        wait
        cat "$runs/log-$1-0" "$runs/log-$1-1" > "$runs/log-$1"
        port=$((port + 1))
    }
    port=$((20000 + RANDOM % 10000))
    # shellcheck disable=SC2086
    with timeout 200 "$folder/farthing" train --name one $method > "$runs/log-one" 2>&1
    pair shm shm
    pair gloo gloo
    pair auto auto
    echo "validation loss after 10 steps: one worker $(loss one), two through shm $(loss shm), gloo $(loss gloo), auto $(loss auto)"
    for name in shm gloo auto; do
        awk -v a="$(loss one)" -v b="$(loss $name)" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d * d < 1e-4 * a * a) }' || {
            failed=1
            tail -3 "$runs/log-$name"
        }
    done
    rm -rf "$runs"
    exit $failed
    ;;
text)
    with "$folder/bench_text_step" "$@"
    ;;
accuracy)
    "$python" "$here/bench/text/accuracy" --device cuda --libraries "$libraries" --farthing "$folder/farthing" \
        --encoder "$folder/encode_texts" "$@"
    ;;
text-runs)
    runs=$(mktemp -d)
    data=$1
    for precision in f32 bf16; do
        options="--model bert-tiny --data $data --vocab-size 2000 --optimizer adamw --lr 5e-4 --clip 1 --layer-decay 0.9 --warmup 10% --schedule linear
            --by-length --steps 400 --batch 32 --precision $precision --checkpoint-every 60"
        # shellcheck disable=SC2086
        go $options --name "$precision-a" || { tail -3 "$runs/log"; failed=1; }
        # shellcheck disable=SC2086
        go_killed "$precision-b" $options
        same "text in $precision, killed and resumed ($(resumes "$precision-b") resume)" "$precision-a" "$precision-b"
        if on=cpu go --resume "$precision-a" --steps 430 && go --resume "$precision-a" --steps 460; then
            echo "text in $precision, moved to the CPU and back: $(grep ^trained "$runs/log" | cut -c1-100)"
        else
            tail -3 "$runs/log"
            failed=1
        fi
    done
    rm -rf "$runs"
    exit $failed
    ;;
text-against-torch)
    FARTHING_LIBRARIES="$libraries" "$here/bench/text/gpu" --step "$folder/bench_text_step" --python "$python" "$@"
    ;;
bench)
    for case in "${@:-mnist-cnn}"; do bench_one "$case" "${PRECISION:-bf16}"; done
    ;;
profile)
    FARTHING_PROFILE=1 SECONDS_EACH=1 bench_one "$1" "${PRECISION:-bf16}"
    ;;
esac
