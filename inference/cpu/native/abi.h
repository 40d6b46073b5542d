/* The whole of what is seen from outside: plain C, so that one build serves every Python.
 *
 * Functions that can fail return 0 or -1, or NULL, with a text in `error`. A model does not change and may be shared; it
 * must outlive its caches and steppers. A stepper and a cache are used by one thread at a time.
 */
#ifndef AGENTRT_CPU_ABI_H
#define AGENTRT_CPU_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AGENTRT_CPU_ABI 1
#define AGENTRT_CPU_API __attribute__((visibility("default")))

typedef struct agentrt_cpu_model agentrt_cpu_model;
typedef struct agentrt_cpu_cache agentrt_cpu_cache;
typedef struct agentrt_cpu_stepper agentrt_cpu_stepper; /* threads, and memory for one step */

typedef struct {
    char text[256];
} agentrt_cpu_error;

/* A matrix as a model file stores it, [rows outputs][cols inputs], `type` in ggml's numbers; data NULL: there is none. */
typedef struct {
    const void* data;
    int32_t type;
    int32_t rows;
    int32_t cols;
} agentrt_cpu_tensor;

/* Vectors are F32. Those that an architecture lacks have data NULL. */
typedef struct {
    agentrt_cpu_tensor attention_norm, query, key, value, query_norm, key_norm, attention_output, attention_post_norm;
    agentrt_cpu_tensor ffn_norm, gate, up, down, ffn_post_norm;
    int32_t window; /* tokens a row sees, itself included; 0: all */
    int32_t rotary; /* which row of `frequencies` turns it */
} agentrt_cpu_layer;

typedef struct {
    int32_t num_layers, hidden_size, num_heads, num_kv_heads, head_dim, ffn_size, vocab_size;
    int32_t gate;            /* 0: SiLU, 1: GELU by tanh */
    int32_t has_paired_rows; /* query and key rows lie in pairs, as llama.cpp stores Llama's */
    float norm_eps, attention_scale, embedding_scale;
    int32_t num_rotaries;
    const double* frequencies; /* [num_rotaries][head_dim / 2], radians a position */
    const agentrt_cpu_layer* layers;
    agentrt_cpu_tensor embedding, norm, head; /* head NULL: the embedding */
} agentrt_cpu_description;

/* One step. Rows of all sequences lie one behind the other. */
typedef struct {
    int32_t num_rows, num_sequences, num_logits, num_tokens; /* num_tokens: how many logits mean a token */
    const int32_t* token_ids;      /* [num_rows] */
    const int32_t* first_rows;     /* [num_sequences + 1]: a sequence's rows end where the next one's begin */
    const int32_t* num_computed;   /* [num_sequences]: position of its first row */
    const int32_t* table_starts;   /* [num_sequences + 1], into block_tables */
    const int32_t* block_tables;   /* physical blocks of each sequence, in order */
    const int32_t* logits_rows;    /* [num_logits], rising */
    const uint8_t* wants_logits;   /* [num_logits] */
    float* logits;                 /* [those that want them][num_tokens] */
    int32_t* best_ids;             /* [num_logits]: the largest, the first of equals */
    float* best_logits;            /* [num_logits] */
    float* log_normalisers;        /* [num_logits]: log of the sum of exp(logit); NaN if a logit is */
} agentrt_cpu_step;

AGENTRT_CPU_API int32_t agentrt_cpu_abi(void);
/* The kernels this processor can run, best first, separated by spaces: of "avx512 avx2 portable". */
AGENTRT_CPU_API const char* agentrt_cpu_levels(void);

AGENTRT_CPU_API agentrt_cpu_model* agentrt_cpu_model_new(const agentrt_cpu_description*, const char* level,
                                                         agentrt_cpu_error*);
AGENTRT_CPU_API void agentrt_cpu_model_free(agentrt_cpu_model*);
AGENTRT_CPU_API size_t agentrt_cpu_model_bytes(const agentrt_cpu_model*);
AGENTRT_CPU_API size_t agentrt_cpu_block_bytes(const agentrt_cpu_model*);
AGENTRT_CPU_API agentrt_cpu_cache* agentrt_cpu_cache_new(const agentrt_cpu_model*, int32_t num_blocks, agentrt_cpu_error*);
AGENTRT_CPU_API void agentrt_cpu_cache_free(agentrt_cpu_cache*);
AGENTRT_CPU_API int32_t agentrt_cpu_cache_copy(agentrt_cpu_cache*, int32_t source, int32_t target, agentrt_cpu_error*);
/* Overwrites a block with NaN: for tests of who reads what. */
AGENTRT_CPU_API int32_t agentrt_cpu_cache_poison(agentrt_cpu_cache*, int32_t block, agentrt_cpu_error*);
AGENTRT_CPU_API agentrt_cpu_stepper* agentrt_cpu_stepper_new(const agentrt_cpu_model*, int32_t num_threads,
                                                             agentrt_cpu_error*);
AGENTRT_CPU_API void agentrt_cpu_stepper_free(agentrt_cpu_stepper*);
AGENTRT_CPU_API int32_t agentrt_cpu_run(agentrt_cpu_stepper*, agentrt_cpu_cache*, const agentrt_cpu_step*,
                                        agentrt_cpu_error*);

/* Single kernels, for tests and measurements. */
AGENTRT_CPU_API int32_t agentrt_cpu_multiply(const char* level, const agentrt_cpu_tensor*, const float* values,
                                             int32_t num_rows, float* out, agentrt_cpu_error*);
AGENTRT_CPU_API int32_t agentrt_cpu_unpack(const agentrt_cpu_tensor*, float* out, agentrt_cpu_error*);

#ifdef __cplusplus
}
#endif
#endif
