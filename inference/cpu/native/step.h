// One step: all rows through all layers, by a crew of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "model.h"

namespace agentrt {

// Query rows that one thread computes together for one key head: pieces of a prompt, or sequences that decode and begin
// with the same blocks, which are then read once for all of them.
struct AttentionItem {
    int first_part;   // into Stepper::parts_
    int num_parts;
    int num_rows;
    int num_shared;   // chunks of 64 tokens that all parts have in common
};

// Some rows of one sequence.
struct AttentionPart {
    int sequence;
    int first_row;
    int num_rows;
};

class Stepper {
public:
    Stepper(const Model& model, int num_threads);

    // Throws std::invalid_argument when the step does not fit the model or the cache; then nothing was computed.
    void run(const agentrt_cpu_step& step, Cache& cache);

private:
    static constexpr int kSmallStep = 4;         // rows up to which every thread normalises all of them for itself
    static constexpr int kMaxItemRows = 24;      // query rows of one attention item: few, or short chunks leave threads idle
    static constexpr int kMaxSharing = 8;        // sequences of one attention item
    static constexpr int kHeadSpanTiles = 16;    // tiles of the head that one item computes
    static constexpr int kRowsAtOnce = 64;       // whose inputs stay in the L2 cache while an item goes through its tiles

    struct Scratch {  // of one thread
        InputRows normed;
        std::vector<float> queries, outputs, maxima, sums, tile, head, row;
        std::vector<int32_t> first_visible, last_visible;
    };

    // The stages of one step as one thread goes through them.
    struct Turn {
        Stepper& stepper;
        Scratch& scratch;
        uint32_t step;
        int next_stage = 0;

        template <class Item>
        bool stage(int num_items, Item&& item) {
            return stepper.crew_->stage(step, next_stage++, num_items, item);
        }
    };

    void check(const agentrt_cpu_step& step, const Cache& cache) const;
    void prepare(const agentrt_cpu_step& step);
    void plan_attention();
    void turn_angles();
    bool go(Turn& turn);
    bool run_layer(Turn& turn, int index);
    bool run_head(Turn& turn);

    void embed(int row);
    void normalise(const std::vector<float>& weight, int from_row, InputRows& to, int to_row);
    const InputRows& normalised(Turn& turn, const std::vector<float>& weight, bool& is_ready);
    void rotate(const Layer& layer, int row, const float* head, const std::vector<float>& norm, float scale,
                Scratch& scratch, float* out) const;
    void store_keys(const Layer& layer, int index, int row, int head, Scratch& scratch);
    void attend(const Layer& layer, int index, const AttentionItem& item, int head, Scratch& scratch);
    void attend_chunks(const AttentionChunk& rows, int index, int sequence, int head, int first, int end);
    void gate_columns(const Layer& layer, const InputRows& inputs, int block, Scratch& scratch);
    void score_span(int span, Scratch& scratch);
    void finish_scores();

    const int32_t* table(int sequence) const { return step_->block_tables + step_->table_starts[sequence]; }
    float* hidden(int row) { return hidden_.data() + static_cast<size_t>(row) * static_cast<size_t>(hidden_stride_); }
    int tiles_an_item(int num_tiles) const;
    template <class Function>
    void each_row_group(Function&& function) const {
        for (int first = 0; first < step_->num_rows; first += kRowsAtOnce) {
            function(first, std::min(kRowsAtOnce, step_->num_rows - first));
        }
    }

    const Model& model_;
    int hidden_stride_, qkv_stride_;
    InputRows normed_, attended_, gated_;
    std::vector<float> hidden_, qkv_, projected_, cosines_, sines_;
    std::vector<Scratch> scratch_;

    // The step at hand. What decides how many items a stage has is atomic, because a thread that comes late may read it.
    const agentrt_cpu_step* step_ = nullptr;
    Cache* cache_ = nullptr;
    std::vector<int> sequence_of_, position_of_, logits_slot_;
    std::vector<AttentionPart> parts_;
    std::vector<AttentionItem> items_;
    std::vector<BestOfSpan> best_;
    std::atomic<int> num_rows_{0}, num_items_{0}, num_logits_{0}, num_spans_{0};
    std::atomic<bool> decodes_only_{false};
    std::unique_ptr<Crew> crew_;  // last: its threads use all of the above
};

}  // namespace agentrt
