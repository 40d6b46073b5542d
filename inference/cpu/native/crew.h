// A few threads that go through the stages of a step together.
//
// A stage is a number of items. Whoever is there claims the next item, and a stage is over when all of its items are
// done; nobody waits for a thread to arrive. So a thread that the system has put to sleep holds up nothing but the item
// it is working on, where a barrier would hold up all (llama.cpp's two threads take 3 to 70 times as long beside another
// process). A thread that comes late finds every claim of its step refused, by the step's number in the claim, and leaves.
//
// Whoever starts a step must change what the stages read only between `begin` and `publish`: from then on a late thread's
// claims are refused, and no thread has begun the new step.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace agentrt {

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class Crew {
public:
    // `program` is called on every thread for every step: program(context, member, step).
    using Program = void (*)(void* context, int member, uint32_t step);

    Crew(int num_threads, int max_stages, Program program, void* context)
        : stages_(static_cast<size_t>(max_stages)), program_(program), context_(context) {
        for (int member = 1; member < num_threads; member++) threads_.emplace_back([this, member] { work(member); });
    }

    ~Crew() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            is_over_ = true;
        }
        wake_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

    // Refuses all claims of earlier steps.
    void begin() {
        const uint64_t tag = static_cast<uint64_t>(step_.load(std::memory_order_relaxed) + 1) << 32;
        for (Stage& stage : stages_) {
            stage.done.store(tag, std::memory_order_release);
            stage.next.store(tag, std::memory_order_release);
        }
    }

    // Starts the step that was begun and takes part in it; returns when all of its stages are over.
    void run() {
        const uint32_t step = step_.load(std::memory_order_relaxed) + 1;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            step_.store(step, std::memory_order_release);
        }
        if (num_sleeping_.load(std::memory_order_acquire) > 0) wake_.notify_all();
        program_(context_, 0, step);
    }

    // Does items of a stage until all are done. Returns false when the step is over already: leave it.
    template <class Item>
    bool stage(uint32_t step, int index, int num_items, Item&& item) {
        Stage& stage = stages_.at(static_cast<size_t>(index));
        for (;;) {
            uint64_t claim = stage.next.load(std::memory_order_acquire);
            if (static_cast<uint32_t>(claim >> 32) != step) return false;
            if (static_cast<uint32_t>(claim) >= static_cast<uint32_t>(num_items)) break;
            if (!stage.next.compare_exchange_weak(claim, claim + 1, std::memory_order_acq_rel)) continue;
            item(static_cast<int>(static_cast<uint32_t>(claim)));
            stage.done.fetch_add(1, std::memory_order_acq_rel);
        }
        for (int turns = 0;; turns++) {
            const uint64_t done = stage.done.load(std::memory_order_acquire);
            if (static_cast<uint32_t>(done >> 32) != step) return false;
            if (static_cast<uint32_t>(done) >= static_cast<uint32_t>(num_items)) return true;
            turns < kSpins ? relax() : std::this_thread::yield();
        }
    }

private:
    static constexpr int kSpins = 2000;         // then let others run
    static constexpr int kIdleSpins = 10000;    // between two steps; then sleep

    struct alignas(64) Stage {
        std::atomic<uint64_t> next{0};  // step << 32 | next item
        alignas(64) std::atomic<uint64_t> done{0};
    };

    void work(int member) {
        uint32_t seen = 0;
        for (;;) {
            for (int turns = 0; turns < kIdleSpins && step_.load(std::memory_order_acquire) == seen; turns++) relax();
            if (step_.load(std::memory_order_acquire) == seen) {
                std::unique_lock<std::mutex> lock(mutex_);
                num_sleeping_.fetch_add(1, std::memory_order_acq_rel);
                wake_.wait(lock, [&] { return is_over_ || step_.load(std::memory_order_acquire) != seen; });
                num_sleeping_.fetch_sub(1, std::memory_order_acq_rel);
                if (is_over_) return;
            }
            seen = step_.load(std::memory_order_acquire);
            program_(context_, member, seen);
        }
    }

    std::vector<Stage> stages_;
    Program program_;
    void* context_;
    std::atomic<uint32_t> step_{0};
    std::atomic<int> num_sleeping_{0};
    bool is_over_ = false;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> threads_;
};

}  // namespace agentrt
