// What a step is made of: the shapes kernels work on, and the table of kernels that one instruction set provides.
//
// Every kernel computes an output element by one fixed sequence of operations, whatever else is computed beside it and
// whatever the width of the machine's vectors: sums run over inputs in order, in sixteen lanes that are added up as a
// tree. So a row's result does not depend on the batch, the chunk or the processor, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace agentrt {

constexpr int kLanes = 16;         // outputs of one tile; also tokens of one block of the cache
constexpr int kQuantBlock = 32;    // inputs that share a scale
constexpr int kBlockTokens = 16;   // must be kLanes: a block's keys are the lanes of one vector
constexpr int kChunkTokens = 64;   // tokens between two updates of a row's running maximum
constexpr int kChunkBlocks = kChunkTokens / kBlockTokens;

// How the weights of a tile lie in memory; a record holds 16 outputs x 32 inputs.
//   Int4Min   weight = quant * scale + minimum, quant in 0..15: 256 bytes of nibbles, 16 scales, 16 minima
//   Int8      weight = quant * scale, quant in -128..127: 512 bytes of quant + 128, 16 scales
//   Int8Min   the same with 16 minima
//   Int8Half  two sets of 16 scales, one for each half of the inputs
//   Float*    no quants: inputs one after another, 16 outputs each
// Scales and minima are halves, of which the real value is `unit` times as large.
enum class RecordKind : int32_t { Int4Min, Int8, Int8Min, Int8Half, Float32, Float16, BFloat16 };

constexpr bool is_float(RecordKind kind) { return kind >= RecordKind::Float32; }

struct Matrix {  // [rows outputs, cols inputs]
    RecordKind kind = RecordKind::Float32;
    int rows = 0;
    int cols = 0;
    int tiles = 0;          // of 16 outputs; the last one is filled up with zeros
    size_t tile_bytes = 0;
    float unit = 1.0f;
    const uint8_t* data = nullptr;
};

// Rows of inputs. `quants`, `scales`, `sums` and `half_sums` are only there for a matrix that is quantised.
struct Activations {
    const float* values = nullptr;      // [rows][stride]
    const int8_t* quants = nullptr;     // [rows][stride]
    const float* scales = nullptr;      // [rows][stride / 32]
    const float* sums = nullptr;        // [rows][stride / 32]: scale * sum of quants
    const int32_t* half_sums = nullptr; // [rows][stride / 16]: sum of quants
    ptrdiff_t stride = 0;               // a multiple of 32
};

struct QuantisedRow {
    int8_t* quants;
    float* scales;
    float* sums;
    int32_t* half_sums;
};

// Query rows that look at the same (up to) 64 tokens of one key head. A row sees positions first_visible..last_visible.
struct AttentionChunk {
    int num_rows;
    int head_dim;              // even
    const float* queries;      // [num_rows][head_dim], rotated and scaled
    float* outputs;            // [num_rows][head_dim rounded up to 16], unnormalised
    float* maxima;             // [num_rows], -inf at first
    float* sums;               // [num_rows], 0 at first
    const int32_t* first_visible;
    const int32_t* last_visible;
    int first_position;        // of the chunk, a multiple of 64
    int num_blocks;            // 1..4
    const uint16_t* keys[kChunkBlocks];    // bf16 [head_dim / 2][16 tokens][2]
    const uint16_t* values[kChunkBlocks];  // bf16 [8 pairs of tokens][head_dim rounded up to 16][2]
};

struct BestOfSpan {
    float logit;
    int32_t index;
    float sum;  // of exp(logit - largest) over the span; NaN if a logit is
};

enum class GateKind : int32_t { Silu, GeluTanh };

struct Kernels {
    const char* name;
    // out[row][0..15] (+)= tile of the matrix times rows first_row .. first_row + num_rows - 1
    void (*multiply)(const Matrix&, int tile, const Activations&, int first_row, int num_rows, float* out,
                     ptrdiff_t out_stride, bool add);
    void (*quantise)(const float* values, int num_values, const QuantisedRow& out);  // num_values: a multiple of 32
    // out = values / rms(values) * weight; `size` is the number of values, `padded` a multiple of 16 with zeros behind
    void (*normalise)(const float* values, const float* weight, int size, int padded, float eps, float* out);
    void (*gate)(GateKind, const float* gates, const float* ups, float* out);  // of 16 values
    void (*attend)(const AttentionChunk&);
    BestOfSpan (*best)(const float* logits, int num_values);
};

const Kernels* portable_kernels();
const Kernels* avx2_kernels();    // nullptr where the compiler knows no such processor
const Kernels* avx512_kernels();

constexpr int round_up(int value, int step) { return (value + step - 1) / step * step; }

// Sizes of records, in bytes.
constexpr int kNibbleBytes = kLanes * kQuantBlock / 2;
constexpr int kByteBytes = kLanes * kQuantBlock;
constexpr int kScaleBytes = kLanes * 2;

constexpr int record_bytes(RecordKind kind) {
    switch (kind) {
        case RecordKind::Int4Min: return kNibbleBytes + 2 * kScaleBytes;
        case RecordKind::Int8: return kByteBytes + kScaleBytes;
        case RecordKind::Int8Min:
        case RecordKind::Int8Half: return kByteBytes + 2 * kScaleBytes;
        case RecordKind::Float32: return kLanes * 4;  // of one input
        case RecordKind::Float16:
        case RecordKind::BFloat16: return kLanes * 2;
    }
    return 0;
}

}  // namespace agentrt
