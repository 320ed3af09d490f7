/* SPDX-License-Identifier: Apache-2.0 */
/* Ends what of_f32.h or of_f64.h began. */
#undef T
#undef VT
#undef VMASK
#undef LANES
#undef VEC
#undef BY
