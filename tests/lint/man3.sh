#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The manual pages of the calls are set without a warning, and links lead to pages. usage: man3.sh FOLDER_WITH_MAN3
cd "$1" || exit 1
command -v groff >/dev/null || { echo "skipped: no groff"; exit 77; }
links=$(grep -l '^\.so' man3/*.3)
pages=$(grep -L '^\.so' man3/*.3)
[ "$(echo "$pages" | wc -l)" -ge 500 ] || { echo "few pages: $(echo "$pages" | wc -l)"; exit 1; }
for link in $links; do
    [ -f "$(sed -n 's/^\.so //p' "$link")" ] || { echo "$link leads nowhere"; exit 1; }
done
said=$(echo "$pages" | xargs groff -man -Tutf8 -ww -z 2>&1)
[ -z "$said" ] || { printf '%s\n' "$said" | head -40; exit 1; }
echo "$(echo "$pages" | wc -l) pages, $(echo "$links" | wc -l) links"
