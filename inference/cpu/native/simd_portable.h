// Sixteen lanes in plain C++: any processor; the compiler turns the loops into what vectors there are (NEON, SSE2).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr int kMaxRows = 4;
constexpr int kWidth = 16;

struct Vec {
    float at[kWidth];
};

struct IntVec {
    int32_t at[kWidth];
};

template <class Function>
inline Vec each(Function function) {
    Vec result;
    for (int lane = 0; lane < kWidth; lane++) result.at[lane] = function(lane);
    return result;
}

inline float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
inline uint32_t to_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

inline Vec load(const float* at) {
    Vec v;
    std::memcpy(v.at, at, sizeof v.at);
    return v;
}
inline void store(float* at, const Vec& v) { std::memcpy(at, v.at, sizeof v.at); }
inline Vec splat(float value) { return each([&](int) { return value; }); }
inline Vec add(const Vec& a, const Vec& b) { return each([&](int i) { return a.at[i] + b.at[i]; }); }
inline Vec subtract(const Vec& a, const Vec& b) { return each([&](int i) { return a.at[i] - b.at[i]; }); }
inline Vec multiply(const Vec& a, const Vec& b) { return each([&](int i) { return a.at[i] * b.at[i]; }); }
inline Vec divide(const Vec& a, const Vec& b) { return each([&](int i) { return a.at[i] / b.at[i]; }); }
// Of x86's kind: the second operand when one is NaN.
inline Vec maximum(const Vec& a, const Vec& b) { return each([&](int i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; }); }
inline Vec minimum(const Vec& a, const Vec& b) { return each([&](int i) { return a.at[i] < b.at[i] ? a.at[i] : b.at[i]; }); }
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {
    return each([&](int i) { return std::fma(a.at[i], b.at[i], c.at[i]); });
}
inline Vec round_to_int(const Vec& a) { return each([&](int i) { return std::nearbyintf(a.at[i]); }); }
// a where limit <= a, else 0; NaN counts as large enough
inline Vec zero_below(const Vec& chosen, const Vec& a, const Vec& limit) {
    return each([&](int i) { return a.at[i] < limit.at[i] ? 0.0f : chosen.at[i]; });
}
// 2^n for whole n in -126..127
inline Vec power_of_two(const Vec& n) {
    return each([&](int i) {
        const float exponent = n.at[i];
        // Of a NaN the conversion is not defined; the result is multiplied with one and does not matter.
        return exponent == exponent ? from_bits(static_cast<uint32_t>(static_cast<int32_t>(exponent) + 127) << 23) : 1.0f;
    });
}
inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 31u, mantissa = half & 0x3ffu;
    if (exponent == 31) return from_bits(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {
        const float value = static_cast<float>(mantissa) * 0x1p-24f;
        return sign ? -value : value;
    }
    return from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}
inline Vec load_halves(const uint8_t* at) {
    uint16_t halves[kWidth];
    std::memcpy(halves, at, sizeof halves);
    return each([&](int i) { return half_to_float(halves[i]); });
}
inline Vec load_bfloats(const uint8_t* at) {
    uint16_t words[kWidth];
    std::memcpy(words, at, sizeof words);
    return each([&](int i) { return from_bits(static_cast<uint32_t>(words[i]) << 16); });
}
// Sixteen pairs of bf16: the first of each pair, and the second.
inline void load_pairs(const uint16_t* at, Vec& first, Vec& second) {
    first = each([&](int i) { return from_bits(static_cast<uint32_t>(at[2 * i]) << 16); });
    second = each([&](int i) { return from_bits(static_cast<uint32_t>(at[2 * i + 1]) << 16); });
}
inline Vec to_float(const IntVec& a) { return each([&](int i) { return static_cast<float>(a.at[i]); }); }

inline float tree_sum(Vec v) {
    for (int half = kWidth / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; lane++) v.at[lane] += v.at[lane + half];
    }
    return v.at[0];
}
inline float tree_max(Vec v) {
    for (int half = kWidth / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; lane++) v.at[lane] = v.at[lane] > v.at[lane + half] ? v.at[lane] : v.at[lane + half];
    }
    return v.at[0];
}
// The largest magnitude as bits: NaN is larger than infinity, so neither is lost.
inline int32_t largest_magnitude_bits(const Vec& a, const Vec& b) {
    uint32_t largest = 0;
    for (int lane = 0; lane < kWidth; lane++) {
        const uint32_t first = to_bits(a.at[lane]) & 0x7fffffffu, second = to_bits(b.at[lane]) & 0x7fffffffu;
        largest = first > largest ? first : largest;
        largest = second > largest ? second : largest;
    }
    return static_cast<int32_t>(largest);
}
// Round 32 values, within -127..127, to whole numbers; store them as bytes, and the sum of each half. NaN is stored as 0.
inline void store_rounded(const Vec& first, const Vec& second, int8_t* at, int32_t* sums) {
    for (int half = 0; half < 2; half++) {
        sums[half] = 0;
        for (int lane = 0; lane < kWidth; lane++) {
            const float rounded = std::nearbyintf((half ? second : first).at[lane]);
            const auto byte = rounded == rounded ? static_cast<int8_t>(rounded) : int8_t{0};
            at[half * kWidth + lane] = byte;
            sums[half] += byte;
        }
    }
}

// Dot products of a record's sixteen outputs with 32 quants of each row.
template <int Rows>
inline void dot_int4(const uint8_t* record, const int8_t* quants, ptrdiff_t stride, const int32_t*, ptrdiff_t,
                     IntVec (&sums)[Rows]) {
    for (int row = 0; row < Rows; row++) {
        const int8_t* own = quants + row * stride;
        for (int lane = 0; lane < kWidth; lane++) {
            int32_t sum = 0;
            for (int input = 0; input < 16; input++) {
                const int byte = record[input / 4 * 64 + lane * 4 + input % 4];
                sum += (byte & 15) * own[input] + (byte >> 4) * own[16 + input];
            }
            sums[row].at[lane] = sum;
        }
    }
}

// The same for Parts x 4 inputs of 8-bit quants.
template <int Rows, int Parts>
inline void dot_int8(const uint8_t* record, const int8_t* quants, ptrdiff_t stride, const int32_t*, ptrdiff_t,
                     IntVec (&sums)[Rows]) {
    for (int row = 0; row < Rows; row++) {
        const int8_t* own = quants + row * stride;
        for (int lane = 0; lane < kWidth; lane++) {
            int32_t sum = 0;
            for (int input = 0; input < Parts * 4; input++) {
                sum += (record[input / 4 * 64 + lane * 4 + input % 4] - 128) * own[input];
            }
            sums[row].at[lane] = sum;
        }
    }
}

}  // namespace
