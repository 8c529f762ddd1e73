#!/bin/bash
# Tests and measurements on a machine with a GPU, from a folder made by pack.sh or from a build folder.
#
#     bench/cuda/run.sh [-d folder] tests | quick | bench [case ...] | profile case | peer case
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

what=${1:-quick}
[ $# -gt 0 ] && shift
case $what in
tests)
    failed=0
    for test in test_backend_ops test_backend_first_layer test_backend_dropout test_backend_updates test_model_against_torch; do
        echo "== $test"
        with "$folder/$test" 2>&1 | grep -v -E '^\[ (RUN|      OK) ' | tail -120
        [ "${PIPESTATUS[0]}" = 0 ] || failed=1
    done
    exit $failed
    ;;
quick)
    bench_one mnist-cnn bf16
    bench_one resnet18-64 bf16
    ;;
bench)
    for case in "${@:-mnist-cnn}"; do bench_one "$case" "${PRECISION:-bf16}"; done
    ;;
profile)
    FARTHING_PROFILE=1 SECONDS_EACH=1 bench_one "$1" "${PRECISION:-bf16}"
    ;;
peer)
    batch=$(size_of "$1" | sed 's/.*--batch \([0-9]*\).*/\1/')
    "$python" "$PEER" "$1" --batch "$batch" --device cuda --amp --channels-last --compile reduce-overhead
    ;;
esac
