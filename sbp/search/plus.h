/* SPDX-License-Identifier: Apache-2.0 */
/* Inner loops over cost tables. Additions, minima and maxima only, so that every processor gives
 * the same bits. */
#ifndef TESSERA_SBP_SEARCH_PLUS_H
#define TESSERA_SBP_SEARCH_PLUS_H

/* out[cols] = min over i of h[i] + a[i][j]. */
void tsri_plus_min(const double *h, const double *a, int rows, int cols, double *out);

/* The most that t[j] is above s[j], over those j where s[j] is below INFINITY; -INFINITY if there
 * are none. */
double tsri_plus_excess(const double *t, const double *s, int count);

#endif
