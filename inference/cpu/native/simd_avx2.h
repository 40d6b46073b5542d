// Sixteen lanes on AVX2, FMA and F16C: two registers of eight.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr int kMaxRows = 4;  // rows computed together: 4 x 2 sums leave half of the sixteen registers

struct Vec {
    __m256 low, high;
};

struct IntVec {
    __m256i low, high;
};

inline Vec load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
inline void store(float* at, Vec v) {
    _mm256_storeu_ps(at, v.low);
    _mm256_storeu_ps(at + 8, v.high);
}
inline Vec splat(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Vec subtract(Vec a, Vec b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Vec multiply(Vec a, Vec b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Vec divide(Vec a, Vec b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Vec maximum(Vec a, Vec b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Vec minimum(Vec a, Vec b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Vec fma(Vec a, Vec b, Vec c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vec round_to_int(Vec a) {
    constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.low, kMode), _mm256_round_ps(a.high, kMode)};
}
// a where limit <= a, else 0; NaN counts as large enough
inline Vec zero_below(Vec chosen, Vec a, Vec limit) {
    return {_mm256_and_ps(chosen.low, _mm256_cmp_ps(a.low, limit.low, _CMP_NLT_UQ)),
            _mm256_and_ps(chosen.high, _mm256_cmp_ps(a.high, limit.high, _CMP_NLT_UQ))};
}
// 2^n for whole n in -126..127
inline Vec power_of_two(Vec n) {
    const __m256i bias = _mm256_set1_epi32(127);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.low), bias), 23)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.high), bias), 23))};
}
inline Vec load_halves(const uint8_t* at) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16)))};
}
inline Vec load_bfloats(const uint8_t* at) {
    const auto* p = reinterpret_cast<const __m128i*>(at);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p + 1)), 16))};
}
// Sixteen pairs of bf16: the first of each pair, and the second.
inline void load_pairs(const uint16_t* at, Vec& first, Vec& second) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 16));
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    first = {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
    second = {_mm256_castsi256_ps(_mm256_and_si256(low, mask)), _mm256_castsi256_ps(_mm256_and_si256(high, mask))};
}
inline Vec to_float(IntVec a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }

inline float tree_sum(Vec v) {
    const __m256 eight = _mm256_add_ps(v.low, v.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float tree_max(Vec v) {
    const __m256 eight = _mm256_max_ps(v.low, v.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// The largest magnitude as bits: NaN is larger than infinity, so neither is lost.
inline int32_t largest_magnitude_bits(Vec a, Vec b) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    auto bits = [&](__m256 v) { return _mm256_and_si256(_mm256_castps_si256(v), mask); };
    const __m256i eight =
        _mm256_max_epi32(_mm256_max_epi32(bits(a.low), bits(a.high)), _mm256_max_epi32(bits(b.low), bits(b.high)));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtsi128_si32(four);
}
// Round 32 values, within -127..127, to whole numbers; store them as bytes, and the sum of each half.
inline void store_rounded(Vec first, Vec second, int8_t* at, int32_t* sums) {
    const __m256i a = _mm256_packs_epi32(_mm256_cvtps_epi32(first.low), _mm256_cvtps_epi32(first.high));
    const __m256i b = _mm256_packs_epi32(_mm256_cvtps_epi32(second.low), _mm256_cvtps_epi32(second.high));
    // Packing works within halves of a register: the fours come out as 0 2 4 6 1 3 5 7.
    const __m256i mixed = _mm256_packs_epi16(a, b);
    const __m256i bytes = _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), bytes);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4e));
    fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0xb1));
    sums[0] = _mm256_cvtsi256_si32(fours);
    sums[1] = _mm256_extract_epi32(fours, 4);
}

inline __m256i splat_four(const int8_t* at) {
    int32_t value;
    std::memcpy(&value, at, 4);
    return _mm256_set1_epi32(value);
}

// Makes the compiler compute `value` here. GCC otherwise puts off the additions of a long sum until all of its products
// are there, which fills the stack with them and takes 1.6 times as long.
inline void settle(__m256i& value) { asm("" : "+x"(value)); }

// Dot products of a record's sixteen outputs with 32 quants of each row. A product of two 4-bit quants' pairs is at most
// 2 x 15 x 127, so eight of them fit sixteen bits, and only their sum is widened.
template <int Rows>
inline void dot_int4(const uint8_t* record, const int8_t* quants, ptrdiff_t stride, const int32_t*, ptrdiff_t,
                     IntVec (&sums)[Rows]) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i low_sums[Rows], high_sums[Rows];
    for (int row = 0; row < Rows; row++) low_sums[row] = high_sums[row] = _mm256_setzero_si256();
    // One half of the nibbles after the other: with both unpacked at once the sums would not stay in registers.
    const auto take = [&](__m256i low, __m256i high, const int8_t* own) {
#pragma GCC unroll 8
        for (int row = 0; row < Rows; row++) {
            const __m256i four = splat_four(own + row * stride);
            low_sums[row] = _mm256_add_epi16(low_sums[row], _mm256_maddubs_epi16(low, four));
            high_sums[row] = _mm256_add_epi16(high_sums[row], _mm256_maddubs_epi16(high, four));
            settle(low_sums[row]);
            settle(high_sums[row]);
        }
    };
#pragma GCC unroll 4
    for (int part = 0; part < 4; part++) {
        const auto* at = reinterpret_cast<const __m256i*>(record + part * 64);
        const __m256i low = _mm256_loadu_si256(at), high = _mm256_loadu_si256(at + 1);
        take(_mm256_and_si256(low, mask), _mm256_and_si256(high, mask), quants + part * 4);
        take(_mm256_and_si256(_mm256_srli_epi16(low, 4), mask), _mm256_and_si256(_mm256_srli_epi16(high, 4), mask),
             quants + 16 + part * 4);
    }
    const __m256i ones = _mm256_set1_epi16(1);
    for (int row = 0; row < Rows; row++) {
        sums[row] = {_mm256_madd_epi16(low_sums[row], ones), _mm256_madd_epi16(high_sums[row], ones)};
    }
}

// The same for Parts x 4 inputs of 8-bit quants, which are stored 128 too large. The unsigned factor is the weight's
// magnitude and its sign goes to the other one; a pair of products is at most 2 x 128 x 127, which fits sixteen bits once,
// so it is widened at once. (Upper and lower four bits apart, as above, take a quarter more time.)
template <int Rows, int Parts>
inline void dot_int8(const uint8_t* record, const int8_t* quants, ptrdiff_t stride, const int32_t*, ptrdiff_t,
                     IntVec (&sums)[Rows]) {
    const __m256i ones = _mm256_set1_epi16(1), flip = _mm256_set1_epi8(-128);
    __m256i low_sums[Rows], high_sums[Rows];
    for (int row = 0; row < Rows; row++) low_sums[row] = high_sums[row] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int part = 0; part < Parts; part++) {
        const auto* at = reinterpret_cast<const __m256i*>(record + part * 64);
        const __m256i low = _mm256_xor_si256(_mm256_loadu_si256(at), flip);
        const __m256i high = _mm256_xor_si256(_mm256_loadu_si256(at + 1), flip);
        const __m256i low_size = _mm256_abs_epi8(low), high_size = _mm256_abs_epi8(high);
#pragma GCC unroll 8
        for (int row = 0; row < Rows; row++) {
            const __m256i four = splat_four(quants + row * stride + part * 4);
            const __m256i low_pairs = _mm256_maddubs_epi16(low_size, _mm256_sign_epi8(four, low));
            const __m256i high_pairs = _mm256_maddubs_epi16(high_size, _mm256_sign_epi8(four, high));
            low_sums[row] = _mm256_add_epi32(low_sums[row], _mm256_madd_epi16(low_pairs, ones));
            high_sums[row] = _mm256_add_epi32(high_sums[row], _mm256_madd_epi16(high_pairs, ones));
            settle(low_sums[row]);
            settle(high_sums[row]);
        }
    }
    for (int row = 0; row < Rows; row++) sums[row] = {low_sums[row], high_sums[row]};
}

}  // namespace
