// Zeroed memory aligned to pages: large weights and caches, on huge pages where the system has them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace agentrt {

class Memory {
public:
    Memory() = default;
    explicit Memory(size_t size_bytes) : size_bytes_(size_bytes) {
        if (size_bytes == 0) return;
        data_ = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | kNoReserve, -1, 0);
        if (data_ == MAP_FAILED) {
            data_ = nullptr;
            throw std::bad_alloc();
        }
#ifdef MADV_HUGEPAGE
        madvise(data_, size_bytes, MADV_HUGEPAGE);
#endif
    }
    Memory(Memory&& other) noexcept { *this = std::move(other); }
    Memory& operator=(Memory&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_bytes_, other.size_bytes_);
        return *this;
    }
    ~Memory() {
        if (data_ != nullptr) munmap(data_, size_bytes_);
    }

    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }
    uint8_t* bytes() const { return as<uint8_t>(); }
    size_t size_bytes() const { return size_bytes_; }

private:
#ifdef MAP_NORESERVE
    static constexpr int kNoReserve = MAP_NORESERVE;
#else
    static constexpr int kNoReserve = 0;
#endif
    void* data_ = nullptr;
    size_t size_bytes_ = 0;
};

}  // namespace agentrt
