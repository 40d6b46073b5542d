#include "model.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace agentrt {

namespace {

void require(bool condition, const std::string& what) {
    if (!condition) throw std::invalid_argument(what);
}

PackedMatrix matrix(const agentrt_cpu_tensor& tensor, const char* name, int rows, int cols, int paired_heads = 0) {
    require(tensor.data != nullptr, std::string(name) + " is missing");
    require(tensor.rows == rows && tensor.cols == cols,
            std::string(name) + " is " + std::to_string(tensor.rows) + " x " + std::to_string(tensor.cols) + "; " +
                std::to_string(rows) + " x " + std::to_string(cols) + " is expected");
    return pack({tensor.data, tensor.type, tensor.rows, tensor.cols}, paired_heads);
}

std::vector<float> vector(const agentrt_cpu_tensor& tensor, const char* name, int size, bool is_optional = false) {
    if (tensor.data == nullptr && is_optional) return {};
    require(tensor.data != nullptr, std::string(name) + " is missing");
    require(tensor.type == static_cast<int32_t>(FileType::F32), std::string(name) + " is not of type F32");
    require(tensor.rows == 1 && tensor.cols == size, std::string(name) + " has the wrong length");
    std::vector<float> values(static_cast<size_t>(round_up(size, kQuantBlock)), 0.0f);
    std::memcpy(values.data(), tensor.data, static_cast<size_t>(size) * sizeof(float));
    return values;
}

Layer make_layer(const agentrt_cpu_layer& from, const Shape& shape, int num_rotaries, bool has_paired_rows) {
    Layer layer;
    const int hidden = shape.hidden_size, query = shape.query_size(), kv = shape.kv_size();
    layer.attention_norm = vector(from.attention_norm, "attention_norm", hidden);
    layer.query = matrix(from.query, "query", query, hidden, has_paired_rows ? shape.num_heads : 0);
    layer.key = matrix(from.key, "key", kv, hidden, has_paired_rows ? shape.num_kv_heads : 0);
    layer.value = matrix(from.value, "value", kv, hidden);
    layer.query_norm = vector(from.query_norm, "query_norm", shape.head_dim, true);
    layer.key_norm = vector(from.key_norm, "key_norm", shape.head_dim, true);
    layer.attention_output = matrix(from.attention_output, "attention_output", hidden, query);
    layer.attention_post_norm = vector(from.attention_post_norm, "attention_post_norm", hidden, true);
    layer.ffn_norm = vector(from.ffn_norm, "ffn_norm", hidden);
    layer.gate = matrix(from.gate, "gate", shape.ffn_size, hidden);
    layer.up = matrix(from.up, "up", shape.ffn_size, hidden);
    layer.down = matrix(from.down, "down", hidden, shape.ffn_size);
    layer.ffn_post_norm = vector(from.ffn_post_norm, "ffn_post_norm", hidden, true);
    require(from.window >= 0, "a window is negative");
    require(from.rotary >= 0 && from.rotary < num_rotaries, "a layer names a rotary embedding that is not there");
    layer.window = from.window;
    layer.rotary = from.rotary;
    return layer;
}

}  // namespace

void InputRows::reserve(int num_rows) {
    const auto rows = static_cast<size_t>(num_rows), stride = static_cast<size_t>(stride_);
    if (values_.size() >= rows * stride) return;
    values_.resize(rows * stride);
    if (!has_quants_) return;
    quants_.resize(rows * stride);
    scales_.resize(rows * stride / kQuantBlock);
    sums_.resize(rows * stride / kQuantBlock);
    half_sums_.resize(rows * stride / 16);
}

Activations InputRows::view() const {
    return {values_.data(), quants_.data(), scales_.data(), sums_.data(), half_sums_.data(), stride_};
}

void InputRows::quantise(const Kernels& kernels, int row, int first, int num_values) {
    if (!has_quants_) return;
    const auto at = static_cast<size_t>(row) * static_cast<size_t>(stride_) + static_cast<size_t>(first);
    const QuantisedRow out{quants_.data() + at, scales_.data() + at / kQuantBlock, sums_.data() + at / kQuantBlock,
                           half_sums_.data() + at / 16};
    kernels.quantise(values_.data() + at, num_values, out);
}

Cache::Cache(const Shape& shape, int num_layers, int num_blocks)
    : num_layers_(num_layers),
      num_blocks_(num_blocks),
      num_heads_(shape.num_kv_heads),
      key_block_(shape.key_block()),
      head_block_(shape.head_block()),
      memory_(static_cast<size_t>(num_layers) * static_cast<size_t>(num_blocks) *
              static_cast<size_t>(shape.num_kv_heads) * shape.head_block() * sizeof(uint16_t)) {}

void Cache::copy(int source, int target) {
    const size_t size = static_cast<size_t>(num_layers_ * num_heads_) * head_block_;
    std::copy_n(keys(0, source, 0), size, keys(0, target, 0));
}

void Cache::poison(int block) {
    constexpr uint16_t kNan = 0x7fc0;
    std::fill_n(keys(0, block, 0), static_cast<size_t>(num_layers_ * num_heads_) * head_block_, kNan);
}

size_t Model::size_bytes() const {
    size_t total = embedding.memory.size_bytes() + head_matrix.memory.size_bytes();
    for (const Layer& layer : layers) {
        for (const PackedMatrix* matrix : {&layer.query, &layer.key, &layer.value, &layer.attention_output, &layer.gate,
                                           &layer.up, &layer.down}) {
            total += matrix->memory.size_bytes();
        }
    }
    return total;
}

size_t Model::block_bytes() const {
    return layers.size() * static_cast<size_t>(shape.num_kv_heads) * shape.head_block() * sizeof(uint16_t);
}

std::unique_ptr<Model> make_model(const agentrt_cpu_description& from, const Kernels* kernels) {
    for (const int32_t size : {from.num_layers, from.hidden_size, from.num_heads, from.num_kv_heads, from.head_dim,
                               from.ffn_size, from.vocab_size, from.num_rotaries}) {
        require(size > 0 && size <= 1 << 24, "a size is not positive, or impossibly large");
    }
    require(from.num_heads % from.num_kv_heads == 0, "heads do not share key heads evenly");
    require(from.head_dim % 2 == 0 && from.head_dim <= 512, "a head's size must be even and at most 512");
    require(from.gate == 0 || from.gate == 1, "the gate is unknown");
    auto model = std::make_unique<Model>();
    model->shape = {from.hidden_size, from.num_heads, from.num_kv_heads, from.head_dim, from.ffn_size, from.vocab_size};
    model->gate = static_cast<GateKind>(from.gate);
    model->norm_eps = from.norm_eps;
    model->attention_scale = from.attention_scale;
    model->embedding_scale = from.embedding_scale;
    model->num_rotaries = from.num_rotaries;
    const auto num_frequencies = static_cast<size_t>(from.num_rotaries) * static_cast<size_t>(from.head_dim / 2);
    model->frequencies.assign(from.frequencies, from.frequencies + num_frequencies);
    model->kernels = kernels;
    for (int index = 0; index < from.num_layers; index++) {
        try {
            model->layers.push_back(
                make_layer(from.layers[index], model->shape, from.num_rotaries, from.has_paired_rows != 0));
        } catch (const std::invalid_argument& error) {
            throw std::invalid_argument("layer " + std::to_string(index) + ": " + error.what());
        }
    }
    model->embedding = matrix(from.embedding, "embedding", from.vocab_size, from.hidden_size);
    model->norm = vector(from.norm, "norm", from.hidden_size);
    if (from.head.data != nullptr) model->head_matrix = matrix(from.head, "head", from.vocab_size, from.hidden_size);
    return model;
}

}  // namespace agentrt
