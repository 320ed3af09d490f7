/* SPDX-License-Identifier: Apache-2.0 */
/* The names under which a template that is included once per dtype has f32: T is the C type, VT a
 * vector of LANES elements, VMASK a comparison's result, VEC(op) vec.h's name of op for such
 * vectors, BY(name) the template's own name of something. No include guard; see of_none.h. */
#define T float
#define VT vf
#define VMASK vint
#define LANES W
#define VEC(op) v##op
#define BY(name) name##_f32
