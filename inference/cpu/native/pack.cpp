#include "pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace agentrt {

namespace {

uint16_t read_word(const uint8_t* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }
float read_half(const uint8_t* at) { return half_to_float(read_word(at)); }

// 32 weights of one row as quants with their scale(s) and minimum: weight = quant * scale[half] + minimum.
struct Block {
    int quants[kQuantBlock];
    float scale[2];
    float minimum;
};

struct Format {
    FileType type;
    RecordKind kind;
    int block_values;
    int block_bytes;
    void (*read)(const uint8_t* block, int part, Block& out);  // part: which 32 of the block
};

void read_q4_0(const uint8_t* at, int, Block& out) {
    out.scale[0] = out.scale[1] = read_half(at);
    out.minimum = -8.0f * out.scale[0];
    for (int i = 0; i < 16; i++) {
        out.quants[i] = at[2 + i] & 15;
        out.quants[16 + i] = at[2 + i] >> 4;
    }
}

void read_q4_1(const uint8_t* at, int, Block& out) {
    out.scale[0] = out.scale[1] = read_half(at);
    out.minimum = read_half(at + 2);
    for (int i = 0; i < 16; i++) {
        out.quants[i] = at[4 + i] & 15;
        out.quants[16 + i] = at[4 + i] >> 4;
    }
}

void read_fifth_bits(const uint8_t* bits, const uint8_t* nibbles, Block& out) {
    uint32_t high;
    std::memcpy(&high, bits, 4);
    for (int i = 0; i < 16; i++) {
        out.quants[i] = (nibbles[i] & 15) | static_cast<int>((high >> i & 1) << 4);
        out.quants[16 + i] = (nibbles[i] >> 4) | static_cast<int>((high >> (16 + i) & 1) << 4);
    }
}

void read_q5_0(const uint8_t* at, int, Block& out) {
    out.scale[0] = out.scale[1] = read_half(at);
    out.minimum = 0.0f;
    read_fifth_bits(at + 2, at + 6, out);
    for (int& quant : out.quants) quant -= 16;
}

void read_q5_1(const uint8_t* at, int, Block& out) {
    out.scale[0] = out.scale[1] = read_half(at);
    out.minimum = read_half(at + 2);
    read_fifth_bits(at + 4, at + 8, out);
}

void read_q8_0(const uint8_t* at, int, Block& out) {
    out.scale[0] = out.scale[1] = read_half(at);
    out.minimum = 0.0f;
    for (int i = 0; i < 32; i++) out.quants[i] = static_cast<int8_t>(at[2 + i]);
}

// The 6-bit scale and minimum of each 32 of a K block's 256, in 12 bytes.
void read_k_scales(const uint8_t* packed, int part, float d, float dmin, Block& out) {
    int scale, minimum;
    if (part < 4) {
        scale = packed[part] & 63;
        minimum = packed[part + 4] & 63;
    } else {
        scale = (packed[part + 4] & 15) | (packed[part - 4] >> 6 << 4);
        minimum = (packed[part + 4] >> 4) | (packed[part] >> 6 << 4);
    }
    out.scale[0] = out.scale[1] = d * static_cast<float>(scale);
    out.minimum = -dmin * static_cast<float>(minimum);
}

void read_q4_k(const uint8_t* at, int part, Block& out) {
    read_k_scales(at + 4, part, read_half(at), read_half(at + 2), out);
    const uint8_t* nibbles = at + 16 + part / 2 * 32;
    for (int i = 0; i < 32; i++) out.quants[i] = part % 2 ? nibbles[i] >> 4 : nibbles[i] & 15;
}

void read_q5_k(const uint8_t* at, int part, Block& out) {
    read_k_scales(at + 4, part, read_half(at), read_half(at + 2), out);
    const uint8_t *high = at + 16, *nibbles = at + 48 + part / 2 * 32;
    for (int i = 0; i < 32; i++) {
        out.quants[i] = (part % 2 ? nibbles[i] >> 4 : nibbles[i] & 15) | (high[i] >> part & 1) << 4;
    }
}

void read_q6_k(const uint8_t* at, int part, Block& out) {
    const int half = part / 4, quarter = part % 4;  // of 128 values each; of 32
    const uint8_t* low = at + half * 64 + quarter % 2 * 32;
    const uint8_t* high = at + 128 + half * 32;
    const auto* scales = reinterpret_cast<const int8_t*>(at + 192 + half * 8 + quarter * 2);
    const float d = read_half(at + 208);
    out.scale[0] = d * static_cast<float>(scales[0]);
    out.scale[1] = d * static_cast<float>(scales[1]);
    out.minimum = 0.0f;
    for (int i = 0; i < 32; i++) {
        const int nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
        out.quants[i] = (nibble | (high[i] >> (2 * quarter) & 3) << 4) - 32;
    }
}

constexpr Format kFormats[] = {
    {FileType::Q4_0, RecordKind::Int4Min, 32, 18, read_q4_0},  {FileType::Q4_1, RecordKind::Int4Min, 32, 20, read_q4_1},
    {FileType::Q5_0, RecordKind::Int8, 32, 22, read_q5_0},     {FileType::Q5_1, RecordKind::Int8Min, 32, 24, read_q5_1},
    {FileType::Q8_0, RecordKind::Int8, 32, 34, read_q8_0},     {FileType::Q4_K, RecordKind::Int4Min, 256, 144, read_q4_k},
    {FileType::Q5_K, RecordKind::Int8Min, 256, 176, read_q5_k}, {FileType::Q6_K, RecordKind::Int8Half, 256, 210, read_q6_k},
    {FileType::F32, RecordKind::Float32, 1, 4, nullptr},       {FileType::F16, RecordKind::Float16, 1, 2, nullptr},
    {FileType::BF16, RecordKind::BFloat16, 1, 2, nullptr},
};

const Format& format_of(int32_t type) {
    for (const Format& format : kFormats) {
        if (static_cast<int32_t>(format.type) == type) return format;
    }
    throw std::invalid_argument("weights of ggml type " + std::to_string(type) + " are not supported");
}

// Scales are kept as halves, which hold 2^-14..65504 in full precision; a power of two, which is exact, moves the largest
// one near the top, so that small ones stay precise and none overflows.
float unit_for(float largest) {
    if (!(largest > 0.0f) || !std::isfinite(largest)) return 1.0f;
    int exponent;
    std::frexp(largest, &exponent);  // largest < 2^exponent
    return std::ldexp(1.0f, std::clamp(exponent - 14, -100, 100));
}

struct Source {
    const Format& format;
    const uint8_t* data;
    size_t row_size;
    int paired_heads, head_rows;

    const uint8_t* row(int row) const {
        if (paired_heads > 0) {
            const int head = row / head_rows, at = row % head_rows, half = head_rows / 2;
            row = head * head_rows + (at < half ? 2 * at : 2 * (at - half) + 1);
        }
        return data + static_cast<size_t>(row) * row_size;
    }
};

float largest_scale(const Source& source, int rows, int cols) {
    float largest = 0.0f;
    Block block;
    for (int row = 0; row < rows; row++) {
        const uint8_t* at = source.row(row);
        for (int input = 0; input < cols; input += kQuantBlock) {
            const int inside = input % source.format.block_values;
            source.format.read(at + static_cast<size_t>(input / source.format.block_values) * source.format.block_bytes,
                               inside / kQuantBlock, block);
            for (const float value : {block.scale[0], block.scale[1], block.minimum}) {
                if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
            }
        }
    }
    return largest;
}

void write_half(uint8_t* at, float value) {
    const uint16_t half = float_to_half(value);
    std::memcpy(at, &half, 2);
}

void pack_block(const Block& block, RecordKind kind, float unit, int lane, uint8_t* record) {
    const int quant_bytes = kind == RecordKind::Int4Min ? kNibbleBytes : kByteBytes;
    for (int input = 0; input < kQuantBlock; input++) {
        if (kind == RecordKind::Int4Min) {
            const int at = input % 16;
            const int shift = input < 16 ? 0 : 4;
            record[at / 4 * 64 + lane * 4 + at % 4] |= static_cast<uint8_t>(block.quants[input] << shift);
        } else {
            record[input / 4 * 64 + lane * 4 + input % 4] = static_cast<uint8_t>(block.quants[input] + 128);
        }
    }
    write_half(record + quant_bytes + lane * 2, block.scale[0] / unit);
    const bool is_half = kind == RecordKind::Int8Half;
    if (kind != RecordKind::Int8) {
        write_half(record + quant_bytes + kScaleBytes + lane * 2, (is_half ? block.scale[1] : block.minimum) / unit);
    }
}

}  // namespace

float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 31u, mantissa = half & 0x3ffu;
    uint32_t bits;
    if (exponent == 0) {
        const float value = std::ldexp(static_cast<float>(mantissa), -24);
        return sign ? -value : value;
    }
    bits = exponent == 31 ? sign | 0x7f800000u | (mantissa << 13) : sign | ((exponent + 112) << 23) | (mantissa << 13);
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

uint16_t float_to_half(float value) {  // to the nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds past 65504
    if (magnitude < 0x38800000u) {  // below 2^-14: in steps of 2^-24
        const float size = std::fabs(value);
        return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24))));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

size_t row_bytes(int32_t type, int cols) {
    const Format& format = format_of(type);
    if (cols % format.block_values != 0) {
        throw std::invalid_argument("a row of " + std::to_string(cols) + " weights is not a whole number of blocks of " +
                                    std::to_string(format.block_values));
    }
    return static_cast<size_t>(cols / format.block_values) * static_cast<size_t>(format.block_bytes);
}

PackedMatrix pack(const FileMatrix& file, int paired_heads) {
    const Format& format = format_of(file.type);
    const Source source{format, static_cast<const uint8_t*>(file.data), row_bytes(file.type, file.cols), paired_heads,
                        paired_heads > 0 ? file.rows / paired_heads : 0};
    PackedMatrix packed;
    Matrix& view = packed.view;
    view.kind = format.kind;
    view.rows = file.rows;
    view.cols = file.cols;
    view.tiles = round_up(file.rows, kLanes) / kLanes;
    const int num_records = is_float(view.kind) ? file.cols : file.cols / kQuantBlock;
    view.tile_bytes = static_cast<size_t>(num_records) * static_cast<size_t>(record_bytes(view.kind));
    packed.memory = Memory(view.tile_bytes * static_cast<size_t>(view.tiles));
    view.data = packed.memory.bytes();
    if (!is_float(view.kind)) view.unit = unit_for(largest_scale(source, file.rows, file.cols));
    for (int row = 0; row < file.rows; row++) {
        const uint8_t* from = source.row(row);
        uint8_t* to = packed.memory.bytes() + static_cast<size_t>(row / kLanes) * view.tile_bytes;
        const int lane = row % kLanes;
        if (is_float(view.kind)) {
            const int size = format.block_bytes;
            for (int input = 0; input < file.cols; input++) {
                std::memcpy(to + input * kLanes * size + lane * size, from + input * size, static_cast<size_t>(size));
            }
            continue;
        }
        Block block;
        for (int input = 0; input < file.cols; input += kQuantBlock, to += record_bytes(view.kind)) {
            format.read(from + static_cast<size_t>(input / format.block_values) * format.block_bytes,
                        input % format.block_values / kQuantBlock, block);
            pack_block(block, view.kind, view.unit, lane, to);
        }
    }
    return packed;
}

void unpack_row(const Matrix& matrix, int row, float* out) {
    const int lane = row % kLanes;
    const uint8_t* record = matrix.data + static_cast<size_t>(row / kLanes) * matrix.tile_bytes;
    if (is_float(matrix.kind)) {
        for (int input = 0; input < matrix.cols; input++, record += record_bytes(matrix.kind)) {
            if (matrix.kind == RecordKind::Float32) {
                std::memcpy(out + input, record + lane * 4, 4);
            } else if (matrix.kind == RecordKind::Float16) {
                out[input] = read_half(record + lane * 2);
            } else {
                const uint32_t bits = static_cast<uint32_t>(read_word(record + lane * 2)) << 16;
                std::memcpy(out + input, &bits, 4);
            }
        }
        return;
    }
    const bool is_int4 = matrix.kind == RecordKind::Int4Min;
    const int quant_bytes = is_int4 ? kNibbleBytes : kByteBytes;
    for (int start = 0; start < matrix.cols; start += kQuantBlock, record += record_bytes(matrix.kind)) {
        const float scale = read_half(record + quant_bytes + lane * 2);
        const float second =
            matrix.kind == RecordKind::Int8 ? 0.0f : read_half(record + quant_bytes + kScaleBytes + lane * 2);
        for (int input = 0; input < kQuantBlock; input++) {
            const int at = is_int4 ? input % 16 : input;
            const uint8_t byte = record[at / 4 * 64 + lane * 4 + at % 4];
            const int quant = is_int4 ? (input < 16 ? byte & 15 : byte >> 4) : byte - 128;
            const bool is_second_half = matrix.kind == RecordKind::Int8Half && input >= 16;
            float value = static_cast<float>(quant) * (is_second_half ? second : scale);
            if (is_int4 || matrix.kind == RecordKind::Int8Min) value += second;
            out[start + input] = value * matrix.unit;
        }
    }
}

}  // namespace agentrt
