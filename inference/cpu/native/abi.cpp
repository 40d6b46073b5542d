#include "abi.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "step.h"

using namespace agentrt;

struct agentrt_cpu_model {
    std::unique_ptr<Model> model;
};

struct agentrt_cpu_stepper {
    std::unique_ptr<Stepper> stepper;
};

struct agentrt_cpu_cache {
    Cache cache;
};

namespace {

bool can_run_avx2() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
    return false;
#endif
}

bool can_run_avx512() {
#if defined(__x86_64__)
    return can_run_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

const Kernels* kernels_of(const char* level) {
    const std::string name = level;
    const Kernels* kernels = nullptr;
    if (name == "avx512" && can_run_avx512()) kernels = avx512_kernels();
    if (name == "avx2" && can_run_avx2()) kernels = avx2_kernels();
    if (name == "portable") kernels = portable_kernels();
    if (kernels == nullptr) throw std::invalid_argument("kernels '" + name + "' cannot run on this processor");
    return kernels;
}

// Calls `function`; its exceptions become a text.
template <class Function>
bool guarded(agentrt_cpu_error* error, Function&& function) {
    try {
        function();
        return true;
    } catch (const std::bad_alloc&) {
        std::snprintf(error->text, sizeof error->text, "there is not enough memory");
    } catch (const std::exception& cause) {
        std::snprintf(error->text, sizeof error->text, "%s", cause.what());
    }
    return false;
}

void check_block(const Cache& cache, int block) {
    if (block < 0 || block >= cache.num_blocks()) throw std::invalid_argument("a block is out of range");
}

}  // namespace

int32_t agentrt_cpu_abi() { return AGENTRT_CPU_ABI; }

const char* agentrt_cpu_levels() {
    static const std::string levels = [] {
        std::string names;
        if (can_run_avx512() && avx512_kernels() != nullptr) names += "avx512 ";
        if (can_run_avx2() && avx2_kernels() != nullptr) names += "avx2 ";
        return names + "portable";
    }();
    return levels.c_str();
}

agentrt_cpu_model* agentrt_cpu_model_new(const agentrt_cpu_description* description, const char* level,
                                         agentrt_cpu_error* error) {
    agentrt_cpu_model* result = nullptr;
    guarded(error, [&] { result = new agentrt_cpu_model{make_model(*description, kernels_of(level))}; });
    return result;
}

void agentrt_cpu_model_free(agentrt_cpu_model* model) { delete model; }

size_t agentrt_cpu_model_bytes(const agentrt_cpu_model* model) { return model->model->size_bytes(); }

size_t agentrt_cpu_block_bytes(const agentrt_cpu_model* model) { return model->model->block_bytes(); }

agentrt_cpu_cache* agentrt_cpu_cache_new(const agentrt_cpu_model* model, int32_t num_blocks, agentrt_cpu_error* error) {
    agentrt_cpu_cache* cache = nullptr;
    guarded(error, [&] {
        if (num_blocks < 1) throw std::invalid_argument("a cache needs at least one block");
        const int num_layers = static_cast<int>(model->model->layers.size());
        cache = new agentrt_cpu_cache{Cache(model->model->shape, num_layers, num_blocks)};
    });
    return cache;
}

void agentrt_cpu_cache_free(agentrt_cpu_cache* cache) { delete cache; }

int32_t agentrt_cpu_cache_copy(agentrt_cpu_cache* cache, int32_t source, int32_t target, agentrt_cpu_error* error) {
    return guarded(error, [&] {
               check_block(cache->cache, source);
               check_block(cache->cache, target);
               if (source != target) cache->cache.copy(source, target);
           })
               ? 0
               : -1;
}

int32_t agentrt_cpu_cache_poison(agentrt_cpu_cache* cache, int32_t block, agentrt_cpu_error* error) {
    return guarded(error, [&] {
               check_block(cache->cache, block);
               cache->cache.poison(block);
           })
               ? 0
               : -1;
}

agentrt_cpu_stepper* agentrt_cpu_stepper_new(const agentrt_cpu_model* model, int32_t num_threads,
                                             agentrt_cpu_error* error) {
    agentrt_cpu_stepper* result = nullptr;
    guarded(error, [&] {
        if (num_threads < 1 || num_threads > 256) throw std::invalid_argument("the number of threads is out of range");
        result = new agentrt_cpu_stepper{std::make_unique<Stepper>(*model->model, num_threads)};
    });
    return result;
}

void agentrt_cpu_stepper_free(agentrt_cpu_stepper* stepper) { delete stepper; }

int32_t agentrt_cpu_run(agentrt_cpu_stepper* stepper, agentrt_cpu_cache* cache, const agentrt_cpu_step* step,
                        agentrt_cpu_error* error) {
    return guarded(error, [&] { stepper->stepper->run(*step, cache->cache); }) ? 0 : -1;
}

int32_t agentrt_cpu_multiply(const char* level, const agentrt_cpu_tensor* tensor, const float* values, int32_t num_rows,
                             float* out, agentrt_cpu_error* error) {
    return guarded(error, [&] {
               const Kernels* kernels = kernels_of(level);
               const PackedMatrix packed = pack({tensor->data, tensor->type, tensor->rows, tensor->cols});
               InputRows inputs;
               inputs.shape(tensor->cols, !is_float(packed.view.kind));
               inputs.reserve(num_rows);
               for (int row = 0; row < num_rows; row++) {
                   std::memcpy(inputs.row(row), values + static_cast<ptrdiff_t>(row) * tensor->cols,
                               static_cast<size_t>(tensor->cols) * sizeof(float));
                   inputs.quantise(*kernels, row);
               }
               const int padded = packed.view.tiles * kLanes;
               std::vector<float> padded_out(static_cast<size_t>(num_rows) * static_cast<size_t>(padded));
               for (int tile = 0; tile < packed.view.tiles; tile++) {
                   kernels->multiply(packed.view, tile, inputs.view(), 0, num_rows, padded_out.data() + tile * kLanes, padded,
                                     false);
               }
               for (int row = 0; row < num_rows; row++) {
                   std::memcpy(out + static_cast<ptrdiff_t>(row) * tensor->rows,
                               padded_out.data() + static_cast<ptrdiff_t>(row) * padded,
                               static_cast<size_t>(tensor->rows) * sizeof(float));
               }
           })
               ? 0
               : -1;
}

int32_t agentrt_cpu_unpack(const agentrt_cpu_tensor* tensor, float* out, agentrt_cpu_error* error) {
    return guarded(error, [&] {
               const PackedMatrix packed = pack({tensor->data, tensor->type, tensor->rows, tensor->cols});
               for (int row = 0; row < tensor->rows; row++) unpack_row(packed.view, row, out + static_cast<ptrdiff_t>(row) * tensor->cols);
           })
               ? 0
               : -1;
}
