#!/bin/sh
# Gathers what a machine without farthing's libraries needs to run it: the program, the plugins, the op tests and the
# shared libraries they use, C library and CUDA excepted.
#
#     bench/cuda/pack.sh [build folder] [target folder]
set -eu
build=${1:-build}
target=${2:-carry}
rm -rf "$target"
mkdir -p "$target/lib"
for file in farthing farthing_cuda.so farthing_reference.so tests/test_backend_ops tests/test_backend_dropout \
    tests/test_backend_updates tests/test_backend_first_layer tests/test_backend_step tests/test_backend_synchronized \
    tests/test_backend_collectives tests/test_backend_text tests/test_model_against_torch; do
    [ -e "$build/$file" ] || { echo "pack: there is no $build/$file" >&2; exit 1; }
    cp "$build/$file" "$target/"
done
for file in farthing_gloo.so bench_text_step tests/encode_texts; do # where they were built
    [ ! -e "$build/$file" ] || cp "$build/$file" "$target/"
done
for file in "$target"/farthing "$target"/*.so "$target"/test_* "$target"/bench_*; do
    [ -e "$file" ] || continue
    strip "$file"
    ldd "$file"
done | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
    grep -v -E '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux[^/]*|libcudnn|libcublas|libcublasLt)\.so' |
    while read -r library; do
        cp -L "$library" "$target/lib/"
        strip --strip-unneeded "$target/lib/$(basename "$library")" 2>/dev/null || true
    done
du -sh "$target"
# One file to carry: the libraries shrink to a quarter.
tar -C "$target" -cf - . | xz -T2 -1 > "$target.tar.xz"
rm -rf "${target:?}"/*
mv "$target.tar.xz" "$target/"
du -sh "$target"
