# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts: installing what is missing, and building. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

packages_build=(meson ninja-build gcc libc6-dev pkg-config libdnnl-dev libcjson-dev libxxhash-dev zlib1g-dev
    libyaml-dev
    g++ libgloo-dev) # the module for ranks on several machines
packages_test=(libcmocka-dev python3)

# Installs the packages that are missing, and only those; needs no network if there are none.
install_packages() {
    local missing=() p
    for p in "$@"; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    local sudo=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "missing Debian packages: ${missing[*]}; install them as root: apt-get install ${missing[*]}"
        sudo=sudo
    fi
    say "installing with apt: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    if ! $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
        $sudo apt-get update -qq || die "apt-get update failed (no network?), and these packages are missing: ${missing[*]}"
        $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
            die "apt-get could not install: ${missing[*]}"
    fi
}

# configure DIR [meson options]: once. Uses Debian's tools, not others on PATH.
configure() {
    local dir=$1
    shift
    local meson=/usr/bin/meson
    [ -x "$meson" ] || meson=meson
    if [ ! -f "$dir/build.ninja" ]; then
        rm -rf "$dir"
        say "configuring $dir"
        local said
        said=$("$meson" setup "$dir" "$@" 2>&1) || { printf '%s\n' "$said"; die "meson setup failed"; }
    fi
}

# build DIR [meson options]: configures once, then builds.
build() {
    configure "$@"
    say "building $1"
    ninja -C "$1" --quiet || die "the build failed"
}

# The folder of CIFAR-10 that is at hand, or nothing.
find_cifar10() {
    local d
    for d in "${TESSERA_DATA:-}" data/cifar-10-batches-bin ../shared/data/cifar-10-batches-bin; do
        [ -n "$d" ] && [ -f "$d/data_batch_1.bin" ] && { (cd "$d" && pwd); return 0; }
    done
    return 1
}
