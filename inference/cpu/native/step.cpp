#include "step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace agentrt {

namespace {

uint16_t to_bfloat(float value) {  // to the nearest, ties to even; NaN stays NaN
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

int num_items(int total, int each) { return (total + each - 1) / each; }

bool wants_quants(std::initializer_list<const Matrix*> matrices) {
    return std::any_of(matrices.begin(), matrices.end(), [](const Matrix* matrix) { return !is_float(matrix->kind); });
}

void require(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
}

}  // namespace

Stepper::Stepper(const Model& model, int num_threads)
    : model_(model),
      hidden_stride_(round_up(model.shape.hidden_size, kQuantBlock)),
      qkv_stride_(round_up(model.shape.query_size(), kLanes) + 2 * round_up(model.shape.kv_size(), kLanes)) {
    bool normed = wants_quants({&model.head()}), attended = false, gated = false;
    for (const Layer& layer : model.layers) {
        normed |= wants_quants({&layer.query.view, &layer.key.view, &layer.value.view, &layer.gate.view, &layer.up.view});
        attended |= wants_quants({&layer.attention_output.view});
        gated |= wants_quants({&layer.down.view});
    }
    normed_.shape(model.shape.hidden_size, normed);
    attended_.shape(model.shape.query_size(), attended);
    gated_.shape(model.shape.ffn_size, gated);
    scratch_.resize(static_cast<size_t>(num_threads));
    for (Scratch& scratch : scratch_) {
        scratch.normed.shape(model.shape.hidden_size, normed);
        scratch.normed.reserve(kSmallStep);
        scratch.tile.resize(static_cast<size_t>(kRowsAtOnce * kQuantBlock * 2));
        scratch.row.resize(static_cast<size_t>(round_up(std::max(model.shape.hidden_size, model.shape.head_dim), 32)) * 2);
    }
    constexpr int kLayerStages = 11;  // of `run_layer` at most
    crew_ = std::make_unique<Crew>(
        num_threads, static_cast<int>(model.layers.size()) * kLayerStages + 4,
        [](void* self, int member, uint32_t step) {
            auto& stepper = *static_cast<Stepper*>(self);
            Turn turn{stepper, stepper.scratch_[static_cast<size_t>(member)], step};
            stepper.go(turn);
        },
        this);
}

void Stepper::run(const agentrt_cpu_step& step, Cache& cache) {
    check(step, cache);
    crew_->begin();
    step_ = &step;
    cache_ = &cache;
    prepare(step);
    crew_->run();
    finish_scores();
}

void Stepper::check(const agentrt_cpu_step& step, const Cache& cache) const {
    require(step.num_rows > 0 && step.num_sequences > 0, "a step without rows");
    require(step.num_tokens > 0 && step.num_tokens <= model_.shape.vocab_size, "num_tokens is out of range");
    for (int row = 0; row < step.num_rows; row++) {
        require(step.token_ids[row] >= 0 && step.token_ids[row] < model_.shape.vocab_size, "a token is out of range");
    }
    require(step.first_rows[0] == 0 && step.first_rows[step.num_sequences] == step.num_rows, "rows are not all used");
    require(step.table_starts[0] == 0, "block tables do not begin at 0");
    for (int sequence = 0; sequence < step.num_sequences; sequence++) {
        const int rows = step.first_rows[sequence + 1] - step.first_rows[sequence];
        const int blocks = step.table_starts[sequence + 1] - step.table_starts[sequence];
        require(rows > 0 && step.num_computed[sequence] >= 0, "a sequence without rows");
        require(blocks >= num_items(step.num_computed[sequence] + rows, kBlockTokens), "a block table is too short");
        for (int block = 0; block < blocks; block++) {
            const int physical = step.block_tables[step.table_starts[sequence] + block];
            require(physical >= 0 && physical < cache.num_blocks(), "a block is out of range");
        }
    }
    for (int at = 0; at < step.num_logits; at++) {
        const int before = at == 0 ? -1 : step.logits_rows[at - 1];
        require(step.logits_rows[at] > before && step.logits_rows[at] < step.num_rows, "logits rows do not rise");
    }
}

void Stepper::prepare(const agentrt_cpu_step& step) {
    const int rows = step.num_rows;
    sequence_of_.resize(static_cast<size_t>(rows));
    position_of_.resize(static_cast<size_t>(rows));
    bool decodes_only = true;
    for (int sequence = 0; sequence < step.num_sequences; sequence++) {
        const int first = step.first_rows[sequence], end = step.first_rows[sequence + 1];
        decodes_only &= end - first == 1;
        for (int row = first; row < end; row++) {
            sequence_of_[static_cast<size_t>(row)] = sequence;
            position_of_[static_cast<size_t>(row)] = step.num_computed[sequence] + row - first;
        }
    }
    normed_.reserve(rows);
    attended_.reserve(rows);
    gated_.reserve(rows);
    const auto grow = [rows](std::vector<float>& values, int stride) {
        const size_t size = static_cast<size_t>(rows) * static_cast<size_t>(stride);
        if (values.size() < size) values.resize(size);
    };
    grow(hidden_, hidden_stride_);
    grow(projected_, hidden_stride_);
    grow(qkv_, qkv_stride_);
    turn_angles();
    plan_attention();
    const int num_spans = num_items(num_items(step.num_tokens, kLanes), kHeadSpanTiles);
    best_.resize(static_cast<size_t>(num_spans) * static_cast<size_t>(step.num_logits));
    logits_slot_.resize(static_cast<size_t>(step.num_logits));
    for (int at = 0, slot = 0; at < step.num_logits; at++) {
        logits_slot_[static_cast<size_t>(at)] = step.wants_logits[at] ? slot++ : -1;
    }
    num_rows_.store(rows, std::memory_order_release);
    num_items_.store(static_cast<int>(items_.size()) * model_.shape.num_kv_heads, std::memory_order_release);
    num_logits_.store(step.num_logits, std::memory_order_release);
    num_spans_.store(step.num_logits > 0 ? num_spans : 0, std::memory_order_release);
    decodes_only_.store(decodes_only, std::memory_order_release);
}

void Stepper::turn_angles() {
    const int half = model_.shape.head_dim / 2;
    const size_t size = static_cast<size_t>(step_->num_rows) * static_cast<size_t>(model_.num_rotaries * half);
    if (cosines_.size() < size) cosines_.resize(size), sines_.resize(size);
    for (int row = 0; row < step_->num_rows; row++) {
        for (int at = 0; at < model_.num_rotaries * half; at++) {
            const double angle = position_of_[static_cast<size_t>(row)] * model_.frequencies[static_cast<size_t>(at)];
            const size_t to = static_cast<size_t>(row) * static_cast<size_t>(model_.num_rotaries * half) + static_cast<size_t>(at);
            cosines_[to] = static_cast<float>(std::cos(angle));
            sines_[to] = static_cast<float>(std::sin(angle));
        }
    }
}

void Stepper::plan_attention() {
    parts_.clear();
    items_.clear();
    const agentrt_cpu_step& step = *step_;
    const int group = model_.shape.group();
    const int tokens_an_item = std::max(1, kMaxItemRows / group);
    std::vector<int> decoding;
    for (int sequence = 0; sequence < step.num_sequences; sequence++) {
        const int first = step.first_rows[sequence], end = step.first_rows[sequence + 1];
        if (end - first == 1) {
            decoding.push_back(sequence);
            continue;
        }
        for (int row = first; row < end; row += tokens_an_item) {
            const int rows = std::min(tokens_an_item, end - row);
            items_.push_back({static_cast<int>(parts_.size()), 1, rows * group, 0});
            parts_.push_back({sequence, row, rows});
        }
    }
    const auto full_chunks = [&](int sequence) { return (step.num_computed[sequence] + 1) / kChunkTokens; };
    const auto shared_chunks = [&](int a, int b) {
        const int limit = std::min(full_chunks(a), full_chunks(b));
        const int32_t *first = table(a), *second = table(b);
        int chunk = 0;
        while (chunk < limit && std::memcmp(first + chunk * kChunkBlocks, second + chunk * kChunkBlocks,
                                            kChunkBlocks * sizeof(int32_t)) == 0) {
            chunk++;
        }
        return chunk;
    };
    // Those that begin with the same blocks come to lie side by side.
    std::sort(decoding.begin(), decoding.end(), [&](int a, int b) {
        const int32_t *first = table(a), *second = table(b);
        const int32_t *first_end = step.block_tables + step.table_starts[a + 1];
        const int32_t *second_end = step.block_tables + step.table_starts[b + 1];
        return std::lexicographical_compare(first, first_end, second, second_end);
    });
    for (size_t at = 0; at < decoding.size();) {
        AttentionItem item{static_cast<int>(parts_.size()), 0, 0, full_chunks(decoding[at])};
        size_t next = at;
        while (next < decoding.size() && next - at < kMaxSharing) {
            const int shared = shared_chunks(decoding[at], decoding[next]);
            if (next > at && shared == 0) break;
            item.num_shared = std::min(item.num_shared, shared);
            parts_.push_back({decoding[next], step.first_rows[decoding[next]], 1});
            next++;
        }
        item.num_parts = static_cast<int>(next - at);
        item.num_rows = item.num_parts * group;
        items_.push_back(item);
        at = next;
    }
}

int Stepper::tiles_an_item(int num_tiles) const {
    // Four items a thread even out what threads of different speed get done; a tile alone is too short to claim.
    return std::max(2, num_tiles / (4 * crew_->num_threads()));
}

bool Stepper::go(Turn& turn) {
    const int rows = num_rows_.load(std::memory_order_acquire);
    if (!turn.stage(rows, [&](int row) { embed(row); })) return false;
    for (size_t index = 0; index < model_.layers.size(); index++) {
        if (!run_layer(turn, static_cast<int>(index))) return false;
    }
    return run_head(turn);
}

void Stepper::embed(int row) {
    float* out = hidden(row);
    unpack_row(model_.embedding.view, step_->token_ids[row], out);
    if (model_.embedding_scale != 1.0f) {
        for (int at = 0; at < model_.shape.hidden_size; at++) out[at] *= model_.embedding_scale;
    }
}

void Stepper::normalise(const std::vector<float>& weight, int from_row, InputRows& to, int to_row) {
    model_.kernels->normalise(hidden(from_row), weight.data(), model_.shape.hidden_size, hidden_stride_, model_.norm_eps,
                              to.row(to_row));
    to.quantise(*model_.kernels, to_row);
}

// All rows normalised: shared ones of an earlier stage, or in a small step the thread's own, made at first use.
const InputRows& Stepper::normalised(Turn& turn, const std::vector<float>& weight, bool& is_ready) {
    const int rows = step_->num_rows;
    if (rows > kSmallStep) return normed_;
    if (!is_ready) {
        for (int row = 0; row < rows; row++) normalise(weight, row, turn.scratch.normed, row);
        is_ready = true;
    }
    return turn.scratch.normed;
}

bool Stepper::run_layer(Turn& turn, int index) {
    const Layer& layer = model_.layers[static_cast<size_t>(index)];
    const Kernels& kernels = *model_.kernels;
    const Shape& shape = model_.shape;
    const int rows = num_rows_.load(std::memory_order_acquire);
    const bool decodes_only = decodes_only_.load(std::memory_order_acquire);
    const int rows_an_item = rows > 64 ? 8 : 2;
    const auto each_row = [&](auto&& function) {
        return turn.stage(num_items(rows, rows_an_item), [&](int item) {
            const int end = std::min(rows, (item + 1) * rows_an_item);
            for (int row = item * rows_an_item; row < end; row++) function(row);
        });
    };
    // Adds a projection to the residual stream; where it is normalised first, in a stage of its own.
    const auto project = [&](const Matrix& matrix, const InputRows& inputs, const std::vector<float>& post_norm) {
        const int tiles = tiles_an_item(matrix.tiles);
        const bool is_added = post_norm.empty();
        if (!turn.stage(num_items(matrix.tiles, tiles), [&](int item) {
                const Activations x = inputs.view();
                float* out = is_added ? hidden_.data() : projected_.data();
                const int end = std::min(matrix.tiles, (item + 1) * tiles);
                each_row_group([&](int first, int count) {
                    for (int tile = item * tiles; tile < end; tile++) {
                        kernels.multiply(matrix, tile, x, first, count, out + first * hidden_stride_ + tile * kLanes,
                                         hidden_stride_, is_added);
                    }
                });
            })) {
            return false;
        }
        if (is_added) return true;
        return each_row([&](int row) {
            float* projected = projected_.data() + static_cast<size_t>(row) * static_cast<size_t>(hidden_stride_);
            kernels.normalise(projected, post_norm.data(), shape.hidden_size, hidden_stride_, model_.norm_eps, projected);
            float* to = hidden(row);
            for (int at = 0; at < shape.hidden_size; at++) to[at] += projected[at];
        });
    };

    bool is_ready = false;
    if (rows > kSmallStep && !each_row([&](int row) { normalise(layer.attention_norm, row, normed_, row); })) return false;
    const Matrix* matrices[] = {&layer.query.view, &layer.key.view, &layer.value.view};
    const int num_tiles = matrices[0]->tiles + matrices[1]->tiles + matrices[2]->tiles;
    const int tiles = tiles_an_item(num_tiles);
    if (!turn.stage(num_items(num_tiles, tiles), [&](int item) {
            const Activations x = normalised(turn, layer.attention_norm, is_ready).view();
            const int end = std::min(num_tiles, (item + 1) * tiles);
            each_row_group([&](int first, int count) {
                for (int tile = item * tiles; tile < end; tile++) {
                    int which = 0, own = tile;
                    while (own >= matrices[which]->tiles) own -= matrices[which++]->tiles;
                    kernels.multiply(*matrices[which], own, x, first, count,
                                     qkv_.data() + first * qkv_stride_ + tile * kLanes, qkv_stride_, false);
                }
            });
        })) {
        return false;
    }
    if (!decodes_only && !each_row([&](int row) {
            for (int head = 0; head < shape.num_kv_heads; head++) store_keys(layer, index, row, head, turn.scratch);
        })) {
        return false;
    }
    if (!turn.stage(num_items_.load(std::memory_order_acquire), [&](int item) {
            const int head = item % shape.num_kv_heads;
            attend(layer, index, items_[static_cast<size_t>(item / shape.num_kv_heads)], head, turn.scratch);
        })) {
        return false;
    }
    const bool is_aligned = shape.group() * shape.head_dim % kQuantBlock == 0;
    if (!is_aligned && !each_row([&](int row) { attended_.quantise(kernels, row); })) return false;
    if (!project(layer.attention_output.view, attended_, layer.attention_post_norm)) return false;

    is_ready = false;
    if (rows > kSmallStep && !each_row([&](int row) { normalise(layer.ffn_norm, row, normed_, row); })) return false;
    if (!turn.stage(num_items(shape.ffn_size, kQuantBlock), [&](int block) {
            gate_columns(layer, normalised(turn, layer.ffn_norm, is_ready), block, turn.scratch);
        })) {
        return false;
    }
    return project(layer.down.view, gated_, layer.ffn_post_norm);
}

void Stepper::rotate(const Layer& layer, int row, const float* head, const std::vector<float>& norm, float scale,
                     Scratch& scratch, float* out) const {
    const int size = model_.shape.head_dim, half = size / 2;
    if (!norm.empty()) {
        float* own = scratch.row.data();
        const int padded = round_up(size, kLanes);
        std::copy_n(head, size, own);
        std::fill(own + size, own + padded, 0.0f);
        model_.kernels->normalise(own, norm.data(), size, padded, model_.norm_eps, own);
        head = own;
    }
    const size_t at = (static_cast<size_t>(row) * static_cast<size_t>(model_.num_rotaries) + static_cast<size_t>(layer.rotary)) *
                      static_cast<size_t>(half);
    const float *cosine = cosines_.data() + at, *sine = sines_.data() + at;
    for (int i = 0; i < half; i++) {
        const float left = head[i], right = head[half + i];
        out[i] = (left * cosine[i] - right * sine[i]) * scale;
        out[half + i] = (right * cosine[i] + left * sine[i]) * scale;
    }
}

void Stepper::store_keys(const Layer& layer, int index, int row, int head, Scratch& scratch) {
    const Shape& shape = model_.shape;
    const int sequence = sequence_of_[static_cast<size_t>(row)], position = position_of_[static_cast<size_t>(row)];
    const int block = table(sequence)[position / kBlockTokens], at = position % kBlockTokens;
    const float* qkv = qkv_.data() + static_cast<size_t>(row) * static_cast<size_t>(qkv_stride_);
    const float* key = qkv + round_up(shape.query_size(), kLanes) + head * shape.head_dim;
    const float* value = qkv + round_up(shape.query_size(), kLanes) + round_up(shape.kv_size(), kLanes) + head * shape.head_dim;
    float* turned = scratch.row.data() + scratch.row.size() / 2;
    rotate(layer, row, key, layer.key_norm, 1.0f, scratch, turned);
    uint16_t* keys = cache_->keys(index, block, head) + 2 * at;
    for (int i = 0; i < shape.head_dim; i += 2) {
        keys[i * kBlockTokens] = to_bfloat(turned[i]);
        keys[i * kBlockTokens + 1] = to_bfloat(turned[i + 1]);
    }
    const int padded = shape.padded_head();
    uint16_t* values = cache_->values(index, block, head) + at / 2 * padded * 2 + at % 2;
    for (int i = 0; i < shape.head_dim; i++) values[2 * i] = to_bfloat(value[i]);
    // Tokens are read in pairs. Beside the newest one lies what the block held for its last owner, which may be a NaN.
    if (at % 2 == 0 && row == step_->first_rows[sequence + 1] - 1) {
        for (int i = 0; i < padded; i++) values[2 * i + 1] = 0;
    }
}

void Stepper::attend(const Layer& layer, int index, const AttentionItem& item, int head, Scratch& scratch) {
    const Shape& shape = model_.shape;
    const int group = shape.group(), padded = shape.padded_head();
    const auto grow = [](auto& values, int size) {
        if (values.size() < static_cast<size_t>(size)) values.resize(static_cast<size_t>(size));
    };
    grow(scratch.queries, item.num_rows * shape.head_dim);
    grow(scratch.outputs, item.num_rows * padded);
    grow(scratch.maxima, item.num_rows);
    grow(scratch.sums, item.num_rows);
    grow(scratch.first_visible, item.num_rows);
    grow(scratch.last_visible, item.num_rows);
    std::fill_n(scratch.outputs.data(), item.num_rows * padded, 0.0f);
    std::fill_n(scratch.maxima.data(), item.num_rows, -INFINITY);
    std::fill_n(scratch.sums.data(), item.num_rows, 0.0f);
    const bool stores_keys = decodes_only_.load(std::memory_order_relaxed);
    int at = 0, first_needed = 1 << 30;
    for (int number = 0; number < item.num_parts; number++) {
        const AttentionPart& part = parts_[static_cast<size_t>(item.first_part + number)];
        for (int row = part.first_row; row < part.first_row + part.num_rows; row++) {
            if (stores_keys) store_keys(layer, index, row, head, scratch);
            const float* qkv = qkv_.data() + static_cast<size_t>(row) * static_cast<size_t>(qkv_stride_);
            const int position = position_of_[static_cast<size_t>(row)];
            const int first = layer.window > 0 ? std::max(0, position - layer.window + 1) : 0;
            first_needed = std::min(first_needed, first);
            for (int member = 0; member < group; member++, at++) {
                rotate(layer, row, qkv + (head * group + member) * shape.head_dim, layer.query_norm, model_.attention_scale,
                       scratch, scratch.queries.data() + at * shape.head_dim);
                scratch.first_visible[static_cast<size_t>(at)] = first;
                scratch.last_visible[static_cast<size_t>(at)] = position;
            }
        }
    }
    AttentionChunk rows{};
    rows.head_dim = shape.head_dim;
    const auto from = [&](int first, int count) {
        rows.num_rows = count;
        rows.queries = scratch.queries.data() + first * shape.head_dim;
        rows.outputs = scratch.outputs.data() + first * padded;
        rows.maxima = scratch.maxima.data() + first;
        rows.sums = scratch.sums.data() + first;
        rows.first_visible = scratch.first_visible.data() + first;
        rows.last_visible = scratch.last_visible.data() + first;
    };
    const int first_chunk = first_needed / kChunkTokens;
    from(0, item.num_rows);
    attend_chunks(rows, index, parts_[static_cast<size_t>(item.first_part)].sequence, head, first_chunk, item.num_shared);
    at = 0;
    for (int number = 0; number < item.num_parts; number++) {
        const AttentionPart& part = parts_[static_cast<size_t>(item.first_part + number)];
        from(at, part.num_rows * group);
        const int last = position_of_[static_cast<size_t>(part.first_row + part.num_rows - 1)];
        attend_chunks(rows, index, part.sequence, head, std::max(first_chunk, item.num_shared), last / kChunkTokens + 1);
        for (int row = part.first_row; row < part.first_row + part.num_rows; row++) {
            float* to = attended_.row(row) + head * group * shape.head_dim;
            for (int member = 0; member < group; member++, at++) {
                const float* output = scratch.outputs.data() + at * padded;
                const float inverse = 1.0f / scratch.sums[static_cast<size_t>(at)];
                for (int i = 0; i < shape.head_dim; i++) to[member * shape.head_dim + i] = output[i] * inverse;
            }
            if (group * shape.head_dim % kQuantBlock == 0) {
                attended_.quantise(*model_.kernels, row, head * group * shape.head_dim, group * shape.head_dim);
            }
        }
    }
}

void Stepper::attend_chunks(const AttentionChunk& rows, int index, int sequence, int head, int first, int end) {
    AttentionChunk chunk = rows;
    const int num_blocks = step_->table_starts[sequence + 1] - step_->table_starts[sequence];
    for (int number = first; number < end; number++) {
        chunk.first_position = number * kChunkTokens;
        chunk.num_blocks = std::min(kChunkBlocks, num_blocks - number * kChunkBlocks);
        for (int block = 0; block < chunk.num_blocks; block++) {
            const int physical = table(sequence)[number * kChunkBlocks + block];
            chunk.keys[block] = cache_->keys(index, physical, head);
            chunk.values[block] = cache_->values(index, physical, head);
        }
        model_.kernels->attend(chunk);
    }
}

// 32 columns of the feed-forward layer: gates and ups of two tiles, their product, and its quants.
void Stepper::gate_columns(const Layer& layer, const InputRows& inputs, int block, Scratch& scratch) {
    const Kernels& kernels = *model_.kernels;
    const Activations x = inputs.view();
    float *gates = scratch.tile.data(), *ups = gates + kRowsAtOnce * kQuantBlock;
    const int first_tile = block * 2, num_tiles = std::min(2, layer.gate.view.tiles - first_tile);
    each_row_group([&](int first, int count) {
        for (int tile = 0; tile < num_tiles; tile++) {
            const int own = first_tile + tile;
            kernels.multiply(layer.gate.view, own, x, first, count, gates + tile * kLanes, kQuantBlock, false);
            kernels.multiply(layer.up.view, own, x, first, count, ups + tile * kLanes, kQuantBlock, false);
        }
        for (int row = 0; row < count; row++) {
            float* out = gated_.row(first + row) + block * kQuantBlock;
            for (int tile = 0; tile < num_tiles; tile++) {
                const int at = row * kQuantBlock + tile * kLanes;
                kernels.gate(model_.gate, gates + at, ups + at, out + tile * kLanes);
            }
            gated_.quantise(kernels, first + row, block * kQuantBlock, kQuantBlock);
        }
    });
}

bool Stepper::run_head(Turn& turn) {
    if (!turn.stage(num_logits_.load(std::memory_order_acquire),
                    [&](int at) { normalise(model_.norm, step_->logits_rows[at], normed_, at); })) {
        return false;
    }
    return turn.stage(num_spans_.load(std::memory_order_acquire), [&](int span) { score_span(span, turn.scratch); });
}

void Stepper::score_span(int span, Scratch& scratch) {
    constexpr int kSpan = kHeadSpanTiles * kLanes;
    const Matrix& head = model_.head();
    const int rows = step_->num_logits, first = span * kSpan;
    const int num_values = std::min(kSpan, step_->num_tokens - first);
    const size_t size = static_cast<size_t>(rows) * kSpan;
    if (scratch.head.size() < size) scratch.head.resize(size);
    const Activations x = normed_.view();
    for (int tile = 0; tile * kLanes < num_values; tile++) {
        model_.kernels->multiply(head, span * kHeadSpanTiles + tile, x, 0, rows, scratch.head.data() + tile * kLanes, kSpan,
                                 false);
    }
    for (int row = 0; row < rows; row++) {
        const float* logits = scratch.head.data() + static_cast<size_t>(row) * kSpan;
        const size_t at = static_cast<size_t>(span) * static_cast<size_t>(rows) + static_cast<size_t>(row);
        best_[at] = model_.kernels->best(logits, num_values);
        const int slot = logits_slot_[static_cast<size_t>(row)];
        if (slot >= 0) {
            float* to = step_->logits + static_cast<size_t>(slot) * static_cast<size_t>(step_->num_tokens) + first;
            std::copy_n(logits, num_values, to);
        }
    }
}

void Stepper::finish_scores() {
    constexpr int kSpan = kHeadSpanTiles * kLanes;
    const int rows = step_->num_logits, spans = num_spans_.load(std::memory_order_relaxed);
    for (int row = 0; row < rows; row++) {
        float largest = -INFINITY;
        int best_id = 0;
        for (int span = 0; span < spans; span++) {
            const BestOfSpan& best = best_[static_cast<size_t>(span * rows + row)];
            if (best.logit > largest) largest = best.logit, best_id = span * kSpan + best.index;
        }
        double sum = 0.0;
        for (int span = 0; span < spans; span++) {
            const BestOfSpan& best = best_[static_cast<size_t>(span * rows + row)];
            if (best.sum == 0.0f) continue;  // nothing but -inf, of which the difference to `largest` may be a NaN
            sum += best.sum * std::exp(static_cast<double>(best.logit) - static_cast<double>(largest));
        }
        step_->best_ids[row] = best_id;
        step_->best_logits[row] = largest;
        step_->log_normalisers[row] = static_cast<float>(largest + std::log(sum));
    }
}

}  // namespace agentrt
