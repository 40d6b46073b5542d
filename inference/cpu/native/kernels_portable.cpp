#include "simd_portable.h"

#include "kernels_impl.h"

namespace agentrt {

const Kernels* portable_kernels() {
    static constexpr Kernels kTable = table("portable");
    return &kTable;
}

}  // namespace agentrt
