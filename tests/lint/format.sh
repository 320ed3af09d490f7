#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Holds the sources to .clang-format. usage: format.sh CLANG_FORMAT ROOT
cd "$2" || exit 1
find include placement sbp kernels src models examples tests \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' \) \
    ! -name mobilenet_v2_names.h |
    sort | xargs "$1" --dry-run -Werror
