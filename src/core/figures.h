/* SPDX-License-Identifier: Apache-2.0 */
/* Figures for readers: three digits and a unit, in powers of 1000; whole numbers of the smallest
 * unit as they are. */
#ifndef TESSERA_CORE_FIGURES_H
#define TESSERA_CORE_FIGURES_H

enum { TSRI_FIGURE_MAX = 32 };

/* A number of the first of n units, in that of them in which it has three digits. Returns buf, as
 * all of these. */
char *tsri_scaled_text(double v, const char *const *units, int n, char buf[TSRI_FIGURE_MAX]);
/* "1.50 MB", "12 B". */
char *tsri_bytes_text(double bytes, char buf[TSRI_FIGURE_MAX]);
/* "3.20 ms", "450 ns". */
char *tsri_seconds_text(double s, char buf[TSRI_FIGURE_MAX]);

#endif
