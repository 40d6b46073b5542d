// The kernels, over sixteen lanes of whichever simd_*.h was included before. Everything is local to the file that
// includes this: two files compiled for different processors must not share a function.
#pragma once

#include <cmath>
#include <type_traits>

#include "kernels.h"

namespace {

using namespace agentrt;

constexpr int kPrefetchBytes = 2048;

inline Vec exponential(Vec x) {  // Cephes' expf: 2^n times a polynomial; exactly 0 below -87, NaN stays NaN
    const Vec clamped = minimum(splat(88.0f), maximum(splat(-87.0f), x));
    const Vec n = round_to_int(multiply(clamped, splat(1.44269504f)));
    const Vec r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), clamped));
    Vec y = splat(1.9875691500e-4f);
    y = fma(y, r, splat(1.3981999507e-3f));
    y = fma(y, r, splat(8.3334519073e-3f));
    y = fma(y, r, splat(4.1665795894e-2f));
    y = fma(y, r, splat(1.6666665459e-1f));
    y = fma(y, r, splat(5.0000001201e-1f));
    y = fma(y, multiply(r, r), add(r, splat(1.0f)));
    return zero_below(multiply(y, power_of_two(n)), x, splat(-87.0f));
}

inline float exponential(float x) {
    float lanes[kLanes];
    store(lanes, exponential(splat(x)));
    return lanes[0];
}

inline void put(float* out, Vec sum, bool is_added) { store(out, is_added ? add(load(out), sum) : sum); }

// Not inlined: each has registers of its own to fill.
template <int Rows, RecordKind Kind>
__attribute__((noinline)) void multiply_quantised(const Matrix& matrix, const uint8_t* record, const Activations& x, int first_row, float* out,
                        ptrdiff_t out_stride, bool is_added) {
    constexpr bool kIsInt4 = Kind == RecordKind::Int4Min, kIsHalf = Kind == RecordKind::Int8Half;
    constexpr bool kHasMinimum = kIsInt4 || Kind == RecordKind::Int8Min;
    constexpr int kQuantBytes = kIsInt4 ? kNibbleBytes : kByteBytes;
    const ptrdiff_t stride = x.stride, block_stride = stride / kQuantBlock, half_stride = stride / 16;
    const int8_t* quants = x.quants + first_row * stride;
    const float* scales = x.scales + first_row * block_stride;
    const float* row_sums = x.sums + first_row * block_stride;
    const int32_t* half_sums = x.half_sums + first_row * half_stride;
    Vec results[Rows];
    for (int row = 0; row < Rows; row++) results[row] = splat(0.0f);
    const int num_blocks = matrix.cols / kQuantBlock;
    for (int block = 0; block < num_blocks; block++, record += record_bytes(Kind)) {
        // Few rows take less time than the memory: what comes a page later is asked for now.
        if (Rows <= 2) {
            for (int line = 0; line < record_bytes(Kind); line += 64) __builtin_prefetch(record + kPrefetchBytes + line);
        }
        IntVec dots[Rows];
        const int8_t* own = quants + block * kQuantBlock;
        const int32_t* own_sums = half_sums + block * 2;
        const Vec scale = load_halves(record + kQuantBytes);
        if constexpr (kIsHalf) {
            const Vec second_scale = load_halves(record + kQuantBytes + kScaleBytes);
            dot_int8<Rows, 4>(record, own, stride, own_sums, half_stride, dots);
            for (int row = 0; row < Rows; row++) {
                const Vec factor = multiply(scale, splat(scales[row * block_stride + block]));
                results[row] = fma(to_float(dots[row]), factor, results[row]);
            }
            dot_int8<Rows, 4>(record + kByteBytes / 2, own + 16, stride, own_sums + 1, half_stride, dots);
            for (int row = 0; row < Rows; row++) {
                const Vec factor = multiply(second_scale, splat(scales[row * block_stride + block]));
                results[row] = fma(to_float(dots[row]), factor, results[row]);
            }
            continue;
        } else if constexpr (kIsInt4) {
            dot_int4<Rows>(record, own, stride, own_sums, half_stride, dots);
        } else {
            dot_int8<Rows, 8>(record, own, stride, own_sums, half_stride, dots);
        }
        for (int row = 0; row < Rows; row++) {
            const Vec factor = multiply(scale, splat(scales[row * block_stride + block]));
            results[row] = fma(to_float(dots[row]), factor, results[row]);
        }
        if constexpr (kHasMinimum) {
            const Vec minima = load_halves(record + kQuantBytes + kScaleBytes);
            for (int row = 0; row < Rows; row++) {
                results[row] = fma(minima, splat(row_sums[row * block_stride + block]), results[row]);
            }
        }
    }
    const Vec unit = splat(matrix.unit);
    for (int row = 0; row < Rows; row++) put(out + row * out_stride, multiply(results[row], unit), is_added);
}

template <RecordKind Kind>
inline Vec load_weights(const uint8_t* at) {
    if constexpr (Kind == RecordKind::Float32) {
        return load(reinterpret_cast<const float*>(at));
    } else if constexpr (Kind == RecordKind::Float16) {
        return load_halves(at);
    } else {
        return load_bfloats(at);
    }
}

template <int Rows, RecordKind Kind>
__attribute__((noinline)) void multiply_floats(const Matrix& matrix, const uint8_t* record, const Activations& x, int first_row, float* out,
                     ptrdiff_t out_stride, bool is_added) {
    const float* values = x.values + first_row * x.stride;
    Vec results[Rows];
    for (int row = 0; row < Rows; row++) results[row] = splat(0.0f);
    for (int input = 0; input < matrix.cols; input++, record += record_bytes(Kind)) {
        const Vec weights = load_weights<Kind>(record);
        for (int row = 0; row < Rows; row++) {
            results[row] = fma(weights, splat(values[row * x.stride + input]), results[row]);
        }
    }
    for (int row = 0; row < Rows; row++) put(out + row * out_stride, results[row], is_added);
}

template <int Rows, RecordKind Kind>
void multiply_rows(const Matrix& matrix, const uint8_t* record, const Activations& x, int first_row, float* out,
                   ptrdiff_t out_stride, bool is_added) {
    if constexpr (is_float(Kind)) {
        multiply_floats<Rows, Kind>(matrix, record, x, first_row, out, out_stride, is_added);
    } else {
        multiply_quantised<Rows, Kind>(matrix, record, x, first_row, out, out_stride, is_added);
    }
}

template <RecordKind Kind>
void multiply_tile(const Matrix& matrix, const uint8_t* tile, const Activations& x, int first_row, int num_rows,
                   float* out, ptrdiff_t out_stride, bool is_added) {
    int row = 0;
    auto with = [&](auto rows) {
        constexpr int kRows = decltype(rows)::value;
        multiply_rows<kRows, Kind>(matrix, tile, x, first_row + row, out + row * out_stride, out_stride, is_added);
        row += kRows;
    };
    while (row + kMaxRows <= num_rows) with(std::integral_constant<int, kMaxRows>{});
    if (row + 4 <= num_rows) with(std::integral_constant<int, 4>{});
    if (row + 2 <= num_rows) with(std::integral_constant<int, 2>{});
    if (row < num_rows) with(std::integral_constant<int, 1>{});
}

void multiply_any(const Matrix& matrix, int tile, const Activations& x, int first_row, int num_rows, float* out,
                  ptrdiff_t out_stride, bool is_added) {
    const uint8_t* at = matrix.data + static_cast<size_t>(tile) * matrix.tile_bytes;
    auto with = [&](auto function) { function(matrix, at, x, first_row, num_rows, out, out_stride, is_added); };
    switch (matrix.kind) {
        case RecordKind::Int4Min: return with(multiply_tile<RecordKind::Int4Min>);
        case RecordKind::Int8: return with(multiply_tile<RecordKind::Int8>);
        case RecordKind::Int8Min: return with(multiply_tile<RecordKind::Int8Min>);
        case RecordKind::Int8Half: return with(multiply_tile<RecordKind::Int8Half>);
        case RecordKind::Float32: return with(multiply_tile<RecordKind::Float32>);
        case RecordKind::Float16: return with(multiply_tile<RecordKind::Float16>);
        case RecordKind::BFloat16: return with(multiply_tile<RecordKind::BFloat16>);
    }
}

void quantise(const float* values, int num_values, const QuantisedRow& out) {
    for (int block = 0; block < num_values / kQuantBlock; block++) {
        const float* own = values + block * kQuantBlock;
        const Vec first = load(own), second = load(own + kLanes);
        const int32_t bits = largest_magnitude_bits(first, second);
        float largest;
        __builtin_memcpy(&largest, &bits, 4);
        // With a NaN or an infinity the scale is one too, and whatever is multiplied with it.
        const float scale = largest * (1.0f / 127.0f);
        const Vec inverse = splat(largest > 0.0f ? 127.0f / largest : 0.0f);
        int8_t* quants = out.quants + block * kQuantBlock;
        int32_t* sums = out.half_sums + 2 * block;
        store_rounded(multiply(first, inverse), multiply(second, inverse), quants, sums);
        out.scales[block] = scale;
        out.sums[block] = scale * static_cast<float>(sums[0] + sums[1]);
    }
}

void normalise(const float* values, const float* weight, int size, int padded, float eps, float* out) {
    Vec squares = splat(0.0f);
    for (int at = 0; at < padded; at += kLanes) {
        const Vec v = load(values + at);
        squares = fma(v, v, squares);
    }
    const Vec factor = splat(1.0f / std::sqrt(tree_sum(squares) / static_cast<float>(size) + eps));
    for (int at = 0; at < padded; at += kLanes) {
        store(out + at, multiply(multiply(load(values + at), factor), load(weight + at)));
    }
}

void gate(GateKind kind, const float* gates, const float* ups, float* out) {
    const Vec x = load(gates);
    // x * sigmoid(y); tanh(z) is 2 * sigmoid(2z) - 1, so gelu's 0.5 * x * (1 + tanh(z)) is x * sigmoid(2z).
    Vec y = x;
    if (kind == GateKind::GeluTanh) {
        const Vec cubic = fma(multiply(multiply(x, x), x), splat(0.044715f), x);
        y = multiply(cubic, splat(2.0f * 0.7978845608f));
    }
    const Vec decay = exponential(subtract(splat(0.0f), y));
    store(out, multiply(divide(x, add(splat(1.0f), decay)), load(ups)));
}

template <int Rows>
inline void score_block(const AttentionChunk& chunk, int first_row, int block, float (&scores)[Rows][kChunkTokens]) {
    Vec sums[Rows];
    for (int row = 0; row < Rows; row++) sums[row] = splat(0.0f);
    const int size = chunk.head_dim;
    const float* queries = chunk.queries + static_cast<ptrdiff_t>(first_row) * size;
    const uint16_t* keys = chunk.keys[block];
    for (int at = 0; at < size; at += 2, keys += 2 * kBlockTokens) {
        Vec first, second;
        load_pairs(keys, first, second);
#pragma GCC unroll 8
        for (int row = 0; row < Rows; row++) sums[row] = fma(first, splat(queries[row * size + at]), sums[row]);
#pragma GCC unroll 8
        for (int row = 0; row < Rows; row++) sums[row] = fma(second, splat(queries[row * size + at + 1]), sums[row]);
    }
    for (int row = 0; row < Rows; row++) store(&scores[row][block * kBlockTokens], sums[row]);
}

// Turns scores into weights exp(score - maximum); returns by what earlier sums must be multiplied.
inline float weigh(const AttentionChunk& chunk, int row, int num_blocks, float* scores) {
    const int first = chunk.first_visible[row] - chunk.first_position;
    const int last = chunk.last_visible[row] - chunk.first_position;
    const int num_scores = num_blocks * kBlockTokens;
    if (last < 0 || first >= num_scores) {  // sees nothing of this chunk
        for (int at = 0; at < num_scores; at++) scores[at] = 0.0f;
        return 1.0f;
    }
    for (int at = 0; at < first; at++) scores[at] = -INFINITY;
    for (int at = last + 1; at < num_scores; at++) scores[at] = -INFINITY;
    Vec largest = load(scores);
    for (int block = 1; block < num_blocks; block++) largest = maximum(largest, load(scores + block * kBlockTokens));
    const float before = chunk.maxima[row], here = tree_max(largest);
    const float now = here > before ? here : before;
    Vec sum = splat(0.0f);
    for (int block = 0; block < num_blocks; block++) {
        float* own = scores + block * kBlockTokens;
        const Vec weights = exponential(subtract(load(own), splat(now)));
        sum = add(sum, weights);
        store(own, weights);
    }
    const float correction = exponential(before - now);
    chunk.maxima[row] = now;
    chunk.sums[row] = chunk.sums[row] * correction + tree_sum(sum);
    return correction;
}

template <int Rows>
void attend_rows(const AttentionChunk& chunk, int first_row) {
    int num_tokens = 0;  // seen by any of the rows; what lies behind may belong to nobody
    for (int row = first_row; row < first_row + Rows; row++) {
        const int seen = chunk.last_visible[row] - chunk.first_position + 1;
        num_tokens = seen > num_tokens ? seen : num_tokens;
    }
    if (num_tokens <= 0) return;
    if (num_tokens > chunk.num_blocks * kBlockTokens) num_tokens = chunk.num_blocks * kBlockTokens;
    const int num_blocks = (num_tokens + kBlockTokens - 1) / kBlockTokens;
    alignas(64) float scores[Rows][kChunkTokens];
    for (int block = 0; block < num_blocks; block++) score_block<Rows>(chunk, first_row, block, scores);
    Vec corrections[Rows];
    for (int row = 0; row < Rows; row++) {
        corrections[row] = splat(weigh(chunk, first_row + row, num_blocks, scores[row]));
    }
    const int padded = round_up(chunk.head_dim, kLanes);
    const int num_pairs = (num_tokens + 1) / 2;
    for (int at = 0; at < padded; at += kLanes) {
        float* outputs = chunk.outputs + static_cast<ptrdiff_t>(first_row) * padded + at;
        Vec sums[Rows];
        for (int row = 0; row < Rows; row++) sums[row] = multiply(load(outputs + row * padded), corrections[row]);
        for (int pair = 0; pair < num_pairs; pair++) {
            const uint16_t* values = chunk.values[pair / 8] + (pair % 8) * padded * 2 + at * 2;
            Vec first, second;
            load_pairs(values, first, second);
#pragma GCC unroll 8
            for (int row = 0; row < Rows; row++) sums[row] = fma(first, splat(scores[row][2 * pair]), sums[row]);
#pragma GCC unroll 8
            for (int row = 0; row < Rows; row++) sums[row] = fma(second, splat(scores[row][2 * pair + 1]), sums[row]);
        }
        for (int row = 0; row < Rows; row++) store(outputs + row * padded, sums[row]);
    }
}

void attend(const AttentionChunk& chunk) {
    int row = 0;
    for (; row + 4 <= chunk.num_rows; row += 4) attend_rows<4>(chunk, row);
    switch (chunk.num_rows - row) {
        case 3: return attend_rows<3>(chunk, row);
        case 2: return attend_rows<2>(chunk, row);
        case 1: return attend_rows<1>(chunk, row);
    }
}

BestOfSpan best(const float* logits, int num_values) {
    const int whole = num_values / kLanes * kLanes;
    float rest[kLanes];  // what is left, filled up
    for (int lane = 0; lane < kLanes; lane++) rest[lane] = whole + lane < num_values ? logits[whole + lane] : -INFINITY;
    Vec lanes = load(rest);
    for (int at = 0; at < whole; at += kLanes) lanes = maximum(load(logits + at), lanes);  // passes a NaN over
    float largest = tree_max(lanes);
    if (!(largest > -INFINITY)) {  // nothing but -inf and NaN, or a NaN in the rest
        largest = -INFINITY;
        bool has_nan = false;
        for (int at = 0; at < num_values; at++) {
            has_nan |= logits[at] != logits[at];
            largest = logits[at] > largest ? logits[at] : largest;
        }
        if (largest == -INFINITY) return {largest, 0, has_nan ? NAN : 0.0f};
    }
    int32_t index = 0;
    while (logits[index] != largest) index++;
    Vec sum = exponential(subtract(load(rest), splat(largest)));
    for (int at = 0; at < whole; at += kLanes) sum = add(sum, exponential(subtract(load(logits + at), splat(largest))));
    return {largest, index, tree_sum(sum)};
}

constexpr Kernels table(const char* name) {
    return {name, multiply_any, quantise, normalise, gate, attend, best};
}

}  // namespace
