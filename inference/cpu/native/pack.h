// Weights as model files store them, repacked once into the records that the kernels read.
#pragma once

#include <vector>

#include "kernels.h"
#include "memory.h"

namespace agentrt {

// The ggml numbers of the types that are read.
enum class FileType : int32_t {
    F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14, BF16 = 30,
};

// A matrix in a file: `rows` outputs of `cols` inputs each, row after row.
struct FileMatrix {
    const void* data;
    int32_t type;
    int32_t rows;
    int32_t cols;
};

struct PackedMatrix {
    Matrix view;
    Memory memory;
};

// Throws std::invalid_argument for a type that is not read, or a number of inputs its blocks do not divide.
size_t row_bytes(int32_t type, int cols);

// With `paired_heads` > 0 the rows of that many heads are stored in pairs (a rotated value beside its partner), and are
// put into the half-split order.
PackedMatrix pack(const FileMatrix& source, int paired_heads = 0);

// One row, as floats, from its packed form.
void unpack_row(const Matrix& matrix, int row, float* out);

float half_to_float(uint16_t half);
uint16_t float_to_half(float value);

}  // namespace agentrt
