/* SPDX-License-Identifier: Apache-2.0 */
/* The names of of_f32.h for f64. */
#define T double
#define VT vd
#define VMASK vlong
#define LANES (W / 2)
#define VEC(op) vd##op
#define BY(name) name##_f64
