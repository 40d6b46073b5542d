// Sixteen lanes on AVX-512 (F, BW, DQ, VL and VNNI): one register.
#pragma once

// GCC 12 takes the "undefined" operands inside its own AVX-512 header for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr int kMaxRows = 8;  // rows computed together: 8 sums and 8 results are half of the 32 registers

struct Vec {
    __m512 all;
};

struct IntVec {
    __m512i all;
};

inline Vec load(const float* at) { return {_mm512_loadu_ps(at)}; }
inline void store(float* at, Vec v) { _mm512_storeu_ps(at, v.all); }
inline Vec splat(float value) { return {_mm512_set1_ps(value)}; }
inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.all, b.all)}; }
inline Vec subtract(Vec a, Vec b) { return {_mm512_sub_ps(a.all, b.all)}; }
inline Vec multiply(Vec a, Vec b) { return {_mm512_mul_ps(a.all, b.all)}; }
inline Vec divide(Vec a, Vec b) { return {_mm512_div_ps(a.all, b.all)}; }
inline Vec maximum(Vec a, Vec b) { return {_mm512_max_ps(a.all, b.all)}; }
inline Vec minimum(Vec a, Vec b) { return {_mm512_min_ps(a.all, b.all)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.all, b.all, c.all)}; }
inline Vec round_to_int(Vec a) { return {_mm512_roundscale_ps(a.all, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// a where limit <= a, else 0; NaN counts as large enough
inline Vec zero_below(Vec chosen, Vec a, Vec limit) {
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.all, limit.all, _CMP_NLT_UQ), chosen.all)};
}
// 2^n for whole n in -126..127
inline Vec power_of_two(Vec n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.all), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}
inline Vec load_halves(const uint8_t* at) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)))};
}
inline Vec load_bfloats(const uint8_t* at) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16))};
}
// Sixteen pairs of bf16: the first of each pair, and the second.
inline void load_pairs(const uint16_t* at, Vec& first, Vec& second) {
    const __m512i pairs = _mm512_loadu_si512(at);
    first = {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))};
    second = {_mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}
inline Vec to_float(IntVec a) { return {_mm512_cvtepi32_ps(a.all)}; }

inline float tree_sum(Vec v) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v.all), _mm512_extractf32x8_ps(v.all, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float tree_max(Vec v) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v.all), _mm512_extractf32x8_ps(v.all, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// The largest magnitude as bits: NaN is larger than infinity, so neither is lost.
inline int32_t largest_magnitude_bits(Vec a, Vec b) {
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    const __m512i first = _mm512_and_si512(_mm512_castps_si512(a.all), mask);
    const __m512i second = _mm512_and_si512(_mm512_castps_si512(b.all), mask);
    return _mm512_reduce_max_epi32(_mm512_max_epi32(first, second));
}
// Round 32 values, within -127..127, to whole numbers; store them as bytes, and the sum of each half.
inline void store_rounded(Vec first, Vec second, int8_t* at, int32_t* sums) {
    const __m512i a = _mm512_cvtps_epi32(first.all), b = _mm512_cvtps_epi32(second.all);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtsepi32_epi8(a));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at + 16), _mm512_cvtsepi32_epi8(b));
    sums[0] = _mm512_reduce_add_epi32(a);
    sums[1] = _mm512_reduce_add_epi32(b);
}

inline __m512i splat_four(const int8_t* at) {
    int32_t value;
    std::memcpy(&value, at, 4);
    return _mm512_set1_epi32(value);
}

// Dot products of a record's sixteen outputs with 32 quants of each row.
template <int Rows>
inline void dot_int4(const uint8_t* record, const int8_t* quants, ptrdiff_t stride, const int32_t*, ptrdiff_t,
                     IntVec (&sums)[Rows]) {
    const __m512i mask = _mm512_set1_epi8(15);
    for (int row = 0; row < Rows; row++) sums[row] = {_mm512_setzero_si512()};
#pragma GCC unroll 4
    for (int part = 0; part < 4; part++) {
        const __m512i both = _mm512_loadu_si512(record + part * 64);
        const __m512i first = _mm512_and_si512(both, mask);
        const __m512i second = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
#pragma GCC unroll 8
        for (int row = 0; row < Rows; row++) {
            const int8_t* at = quants + row * stride + part * 4;
            sums[row].all = _mm512_dpbusd_epi32(sums[row].all, first, splat_four(at));
            sums[row].all = _mm512_dpbusd_epi32(sums[row].all, second, splat_four(at + 16));
        }
    }
}

// The same for Parts x 4 inputs of 8-bit quants, which are stored 128 too large: that times the sum of the row's quants is
// taken off at the start.
template <int Rows, int Parts>
inline void dot_int8(const uint8_t* record, const int8_t* quants, ptrdiff_t stride, const int32_t* half_sums,
                     ptrdiff_t half_stride, IntVec (&sums)[Rows]) {
    for (int row = 0; row < Rows; row++) {
        int32_t sum = half_sums[row * half_stride];
        if (Parts == 8) sum += half_sums[row * half_stride + 1];
        sums[row] = {_mm512_set1_epi32(-128 * sum)};
    }
#pragma GCC unroll 8
    for (int part = 0; part < Parts; part++) {
        const __m512i weights = _mm512_loadu_si512(record + part * 64);
#pragma GCC unroll 8
        for (int row = 0; row < Rows; row++) {
            sums[row].all = _mm512_dpbusd_epi32(sums[row].all, weights, splat_four(quants + row * stride + part * 4));
        }
    }
}

}  // namespace
