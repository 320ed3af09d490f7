# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What scripts/gpu-check packs for a machine that has GPUs but no compiler. Sourced, not run: takes
# here, pack, build, data, emulated and fast, and fail().
# shellcheck disable=SC2154

# Whether a library belongs to the C library, which the other machine has in a version of its own:
# only those define versions named GLIBC_.
is_of_glibc() {
    objdump -p "$1" | sed -n '/^Version definitions/,/^$/p' | grep -q ' GLIBC_[0-9]'
}

# Libraries that each machine has, and those of CUDA, are not carried.
is_everywhere() {
    case ${1##*/} in
    linux-vdso* | ld-linux* | libstdc++* | libgcc_s* | libcuda* | libcu[a-z]* | libnv* | libnccl* | libtessera*) ;;
    *) is_of_glibc "$1" ;;
    esac
}

# put PROGRAM: into libexec, and a script that runs it with what is carried into bin.
put() {
    local name=${1##*/}
    [ -f "$pack/libexec/$name" ] && return 0
    if ! cp "$1" "$pack/libexec/$name" || ! strip "$pack/libexec/$name"; then fail "no $1"; fi
    cat >"$pack/bin/$name" <<'TEXT'
#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH=$here/lib${TESSERA_CHECK_LIBRARIES:+:$TESSERA_CHECK_LIBRARIES}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$here/libexec/$(basename "$0")" "$@"
TEXT
    chmod +x "$pack/bin/$name"
}

# The programs among the tests that are told where the module is: name, seconds, variables, program
# and arguments, between tabs. Arguments that are built programs are packed, too.
list_tests() {
    "$meson" introspect --tests "$build" | /usr/bin/env python3 -c '
import json, os, sys
build, seen = os.path.realpath(sys.argv[1]), {}
for t in json.load(sys.stdin):
    cmd, env = t["cmd"], t["env"]
    own = [os.path.realpath(c).startswith(build + "/") for c in cmd]
    if "TESSERA_CUDA_MODULE" not in env or not own[0]:
        continue
    name = os.path.basename(cmd[0]).removeprefix("test_")
    given = " ".join(k + "=" + v for k, v in sorted(env.items())
                     if k not in ("TESSERA_CUDA_MODULE", "TESSERA_TEST_DEVICE", "LD_LIBRARY_PATH")
                     and (k, v) != ("TESSERA_CUDA_COMM", "local") and not k.startswith("EMULATED"))
    words = ["@/" + os.path.basename(c) if o else c for c, o in zip(cmd, own)]
    if tuple(words) not in seen:
        seen[tuple(words)] = name
        name += "" if list(seen.values()).count(name) == 1 else "_%d" % len(seen)
        print("\t".join([name, str(t["timeout"]), given] + words))
        for c, o in zip(cmd, own):
            if o:
                print(os.path.relpath(os.path.realpath(c), build), file=sys.stderr)' "$build" 2>"$pack/programs" >"$pack/tests.txt"
}

# Without --data the other machine draws its own.
pack_data() {
    local to=$pack/share/data/cifar-10-batches-bin i
    [ -n "$data" ] || return 0
    [ -f "$data/data_batch_1.bin" ] || data=$data/cifar-10-batches-bin
    mkdir -p "$to"
    for i in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
        head -c $((200 * 3073)) "$data/$i.bin" >"$to/$i.bin" || fail "--data: no $data/$i.bin"
    done
}

# The compute capability of the GPUs that are here, as -Dgpu-arch wants it: of several kinds the
# least, whose kernels the others take too. Nothing where there is none.
present_arch() {
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. \r' |
        grep -xE '[0-9]{2,3}' | sort -n | head -1
}

pack_all() {
    local root program library own arch module=kernels/cuda/libtessera_cuda.so
    root=$(cd "$here/.." && pwd)
    meson=/usr/bin/meson
    [ -x "$meson" ] || meson=$(command -v meson) || fail "meson is needed to build"
    $emulated && module=tests/cuda/libtessera_cuda_emulated.so
    [ ! -e "$pack" ] || [ -z "$(ls -A "$pack")" ] || [ -f "$pack/tests.txt" ] ||
        fail "--pack: $pack holds something else"
    rm -rf "${pack:?}"/{bin,libexec,lib,share}
    mkdir -p "$pack"/{bin,libexec,lib,share/{python,experiments,data}} || exit 2
    pack=$(cd "$pack" && pwd)
    own=$build
    build=${build:-$root/build-gpu}
    arch=$(present_arch)
    if [ ! -f "$build/build.ninja" ]; then
        "$meson" setup "$build" "$root" --buildtype=release -Dcuda=enabled -Donednn=disabled \
            ${arch:+"-Dgpu-arch=$arch"} || fail "meson setup failed"
    elif [ -z "$own" ] && [ -n "$arch" ]; then
        "$meson" configure "$build" "-Dgpu-arch=$arch" || fail "meson configure failed"
    fi
    list_tests || fail "no list of tests"
    printf '%s\n' src/cli/tessera examples/{mobilenet_v2,synthetic}_cifar10 \
        examples/{ddp_train,ddp_trainer,rank_skips,async_all_reduce,mnist_ddp_amp} \
        tests/bench/bench_cuda_{step,kernels} >>"$pack/programs"
    [ -n "$own" ] || xargs ninja -C "$build" "$module" <"$pack/programs" || fail "the build failed"
    [ -f "$build/$module" ] || fail "there is no $build/$module"
    while read -r program; do put "$build/$program"; done <"$pack/programs"
    rm -f "$pack/programs"
    cp -L "$build/libtessera.so.0" "$pack/lib/"
    cp "$build/$module" "$pack/lib/libtessera_cuda.so"
    while read -r library; do
        is_everywhere "$library" || cp -L "$library" "$pack/lib/"
    done < <(ldd "$pack"/libexec/* "$pack"/lib/* 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u)
    chmod u+w "$pack"/lib/*
    strip --strip-unneeded "$pack"/lib/*
    cp "$root"/tests/models/{parity,peer,fixture,fixture_runs,experiments,architectures,step_values}.py \
        "$root/tests/models/fixture.json" "$root"/tests/bench/{gpu_peer,torch_peer,torch_nets,bench_data,ncu_table}.py "$pack/share/python/"
    cp "$root"/examples/experiments/*.yaml "$pack/share/experiments/"
    cp "$root/tests/cuda/examples.sh" "$pack/share/"
    cp "$here"/gpu-{check,report.sh,bench.sh} "$pack/"
    pack_data
    echo "$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown), $(uname -m)" >"$pack/version.txt"
    echo "packed into $pack: $(du -sm "$pack" | cut -f1) MB, $(wc -l <"$pack/tests.txt") tests"
}

# write_pack FILE: one archive, whose folder is tessera-gpu. The programs hold much of the same code,
# which a dictionary of their whole size finds again.
write_pack() {
    local file=$1 level=6 work
    [[ $file == *.tar.xz ]] || fail "--pack $file: the archive's name must end in .tar.xz"
    [ -d "$(dirname "$file")" ] || fail "--pack: there is no folder $(dirname "$file")"
    command -v xz >/dev/null || fail "xz is needed to pack"
    $fast && level=1
    work=$(mktemp -d)
    # shellcheck disable=SC2064 # as it is now
    trap "rm -rf '$work'" EXIT
    pack=$work/tessera-gpu
    pack_all
    if ! tar -C "$work" --owner=0 --group=0 -cf - tessera-gpu | xz -T1 --lzma2="preset=$level,dict=128MiB" >"$file.new"; then
        rm -f "$file.new"
        fail "the archive could not be written"
    fi
    mv "$file.new" "$file"
    printf '%s: %d bytes; there: tar -xJf %s && tessera-gpu/gpu-check --part 1\n' "$file" "$(stat -c %s "$file")" "${file##*/}"
}
