#include "kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "simd_avx2.h"

#include "kernels_impl.h"

namespace agentrt {

const Kernels* avx2_kernels() {
    static constexpr Kernels kTable = table("avx2");
    return &kTable;
}

}  // namespace agentrt

#else

namespace agentrt {

const Kernels* avx2_kernels() { return nullptr; }

}  // namespace agentrt

#endif
