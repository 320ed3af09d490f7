/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header that Gloo's installed headers include and Debian's package leaves out. Gloo's pair has
 * a reference to a buffer in it; the rest of it is used by reference alone, inside Gloo.
 */
#ifndef TESSERA_COMM_GLOO_COMPAT_GLOO_COMMON_MEMORY_H
#define TESSERA_COMM_GLOO_COMPAT_GLOO_COMMON_MEMORY_H

#include <memory>

namespace gloo {

template <typename T> class NonOwningPtr;
template <typename T> class ShareableNonOwningPtr;

/* As large as Gloo's, which wraps the same. */
template <typename T> class WeakNonOwningPtr final {
    std::weak_ptr<T> ptr_;
};

} // namespace gloo

#endif
