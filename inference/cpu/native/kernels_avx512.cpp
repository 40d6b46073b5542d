#include "kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)

#include "simd_avx512.h"

#include "kernels_impl.h"

namespace agentrt {

const Kernels* avx512_kernels() {
    static constexpr Kernels kTable = table("avx512");
    return &kTable;
}

}  // namespace agentrt

#else

namespace agentrt {

const Kernels* avx512_kernels() { return nullptr; }

}  // namespace agentrt

#endif
