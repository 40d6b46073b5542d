// A model's weights and scratch memory, and the cache of keys and values.
#pragma once

#include <memory>
#include <vector>

#include "abi.h"
#include "crew.h"
#include "kernels.h"
#include "pack.h"

namespace agentrt {

struct Layer {
    PackedMatrix query, key, value, attention_output, gate, up, down;
    // Vectors end in zeros up to a multiple of 32; empty for what an architecture lacks.
    std::vector<float> attention_norm, query_norm, key_norm, attention_post_norm, ffn_norm, ffn_post_norm;
    int window = 0;
    int rotary = 0;
};

// Inputs of a matrix product, for as many rows as a step has; quantised if some matrix asks for it.
class InputRows {
public:
    void shape(int size, bool has_quants) {
        stride_ = round_up(size, kQuantBlock);
        has_quants_ = has_quants;
    }
    void reserve(int num_rows);
    Activations view() const;
    float* row(int row) { return values_.data() + static_cast<size_t>(row) * static_cast<size_t>(stride_); }
    bool has_quants() const { return has_quants_; }
    // Quantises `num_values` of a row from `first`, both multiples of 32; does nothing where no matrix wants quants.
    void quantise(const Kernels& kernels, int row, int first, int num_values);
    void quantise(const Kernels& kernels, int row) { quantise(kernels, row, 0, stride_); }

private:
    int stride_ = 0;
    bool has_quants_ = false;
    std::vector<float> values_, scales_, sums_;
    std::vector<int8_t> quants_;
    std::vector<int32_t> half_sums_;
};

struct Shape {
    int hidden_size, num_heads, num_kv_heads, head_dim, ffn_size, vocab_size;
    int group() const { return num_heads / num_kv_heads; }
    int padded_head() const { return round_up(head_dim, kLanes); }
    int query_size() const { return num_heads * head_dim; }
    int kv_size() const { return num_kv_heads * head_dim; }
    // Elements of one block of one key head: keys, then values.
    size_t key_block() const { return static_cast<size_t>(kBlockTokens) * static_cast<size_t>(head_dim); }
    size_t value_block() const { return static_cast<size_t>(kBlockTokens) * static_cast<size_t>(padded_head()); }
    size_t head_block() const { return key_block() + value_block(); }
};

// bf16: [block][layer][key head][keys, then values]; see AttentionChunk for what is inside. A block's layers lie together,
// so that a large cache takes memory as blocks are used, huge pages or not.
class Cache {
public:
    Cache(const Shape& shape, int num_layers, int num_blocks);
    int num_blocks() const { return num_blocks_; }
    uint16_t* keys(int layer, int block, int head) const {
        const size_t at = static_cast<size_t>(block) * static_cast<size_t>(num_layers_) + static_cast<size_t>(layer);
        return memory_.as<uint16_t>() + (at * static_cast<size_t>(num_heads_) + static_cast<size_t>(head)) * head_block_;
    }
    uint16_t* values(int layer, int block, int head) const { return keys(layer, block, head) + key_block_; }
    void copy(int source, int target);
    void poison(int block);

private:
    int num_layers_, num_blocks_, num_heads_;
    size_t key_block_, head_block_;
    Memory memory_;
};

struct Model {
    Shape shape;
    GateKind gate;
    float norm_eps, attention_scale, embedding_scale;
    std::vector<Layer> layers;
    PackedMatrix embedding, head_matrix;  // head_matrix is empty when it is the embedding
    std::vector<float> norm;
    int num_rotaries;
    std::vector<double> frequencies;  // [num_rotaries][head_dim / 2]
    const Kernels* kernels;

    const Matrix& head() const { return head_matrix.view.data ? head_matrix.view : embedding.view; }
    size_t size_bytes() const;
    size_t block_bytes() const;
};

// Checks shapes and types and repacks. Throws std::invalid_argument or std::bad_alloc.
std::unique_ptr<Model> make_model(const agentrt_cpu_description& description, const Kernels* kernels);

}  // namespace agentrt
