// Graphs of transformer blocks over sequences of fixed lengths.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "workloads/workload.h"

namespace orrery::internal {

// What stands at one point of the graph: `tokens` rows of `width` a sample, and the operator that makes it.
struct TokenTensor {
  int op = -1;  // -1: the batch itself
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  std::int64_t elements() const { return tokens * width; }
};

struct TowerBlock {
  std::int64_t heads = 0, head_dim = 0, ffn = 0;
  bool rms_norm = false;     // without bias; else layer norms with one
  bool post_norm = false;    // behind each residual
  bool biases = true;        // of all products
  bool qkv_bias = true;      // with biases: of queries, keys and values, too
  bool key_bias = true;      // with these: of the keys, too
  bool gated = false;        // MLP of three matrices
  bool layer_scale = false;  // each branch is scaled by a trained vector
  bool rotary = false;       // positions turn queries and keys
  std::int64_t window = 0;   // keys that a query meets, as many queries together; 0: all
  // Rows of a table of relative positions (DeBERTa): scores have as many such products, of queries or keys
  // with rows, beside those of contents, and are written; with matrices of their own, or the contents'.
  std::int64_t distances = 0;
  int distance_products = 0;
  bool distance_matrices = false;
};

// Why language_model has no graph for it ("has experts"); empty: it has.
std::string no_tower_because(const Transformer& model);

// A row is a sample. Attention is one operator that costs its two products, as a fused kernel does: scores
// are neither written nor kept.
//
// Where all of a graph's operators are those of a classifier of images (patches, class token, blocks of layer
// norms, attention and MLPs), it can be executed, and finish() leaves them what they compute
// (Operator::image).
class TowerBuilder {
 public:
  void next_layer() { ++layer_; }
  // Of all layer norms, and of all activations without a gate.
  void set_mathematics(double norm_epsilon, Activation activation) {
    norm_epsilon_ = norm_epsilon;
    activation_ = activation;
  }

  TokenTensor lookup(const std::string& name, std::int64_t vocab, std::int64_t width, std::int64_t tokens,
                     const std::string& tied_to = {});
  // A product that every row of the batch or of `in` goes through; `rows` of them come out.
  TokenTensor project(const std::string& name, const TokenTensor& in, std::int64_t rows, std::int64_t inputs,
                      std::int64_t outputs, bool bias, const std::string& tied_to = {});
  // Adds trained rows (positions, a class token) to the sequence, which then has `tokens`.
  TokenTensor trained_rows(const std::string& name, const TokenTensor& in, std::int64_t tokens,
                           const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& parameters);
  // A convolution of images, channels by side by side, whose windows do not overlap; then trained rows: a
  // class token, one position for it and one for each patch, and `others`, of which training reads none.
  TokenTensor patches(const std::string& prefix, std::int64_t channels, std::int64_t side, std::int64_t patch,
                      std::int64_t width, bool bias, const std::vector<std::string>& others);
  TokenTensor norm(const std::string& name, const TokenTensor& in, bool bias);
  TokenTensor plain_norm(const std::string& name, const TokenTensor& in);  // nothing of it is trained
  // What `of` make together, element by element; all are read, the result is written.
  TokenTensor elementwise(const std::string& name, const std::vector<TokenTensor>& of,
                          const TokenTensor& out);
  TokenTensor activation(const std::string& name, const TokenTensor& in, bool gated);
  // Scaled products of `queries` with `memory`, and their projection.
  TokenTensor attention(const std::string& prefix, const TowerBlock& block, const TokenTensor& queries,
                        const TokenTensor& memory, bool causal);
  // A block; `memory` of a decoder: what its second attention reads.
  TokenTensor block(const std::string& prefix, const TowerBlock& block, const TokenTensor& in, bool causal,
                    const TokenTensor* memory = nullptr);
  // A decoder by its dimensions, on `tokens` a sample: those of `before`, then its own vocabulary's. Its
  // layers are blocks of their own; head and loss stand in the last. Behind its first layers `into_layers`
  // are added to what stands in the place of `before`.
  void language_model(const Transformer& model, const std::string& prefix, const TokenTensor& before,
                      std::int64_t tokens, const std::vector<TokenTensor>& into_layers);
  // Sequences one behind another.
  TokenTensor joined(const std::string& name, const TokenTensor& a, const TokenTensor& b);
  // Parameters that the operator made last holds beside its own.
  void parameter(const std::string& name, std::vector<std::int64_t> shape);
  void loss(const std::vector<TokenTensor>& of);

  void finish(Workload* workload);

 private:
  int add(OperatorKind kind, const std::string& name, const std::vector<int>& inputs, std::int64_t out,
          double vector_elements);
  // Positions turn queries and keys, in place.
  int rotary(const std::string& name, int queries_keys_values, std::int64_t elements, double moved);
  // Scores of contents with positions, and the softmax of all of them; the operator that has these.
  int scores_by_distance(const std::string& prefix, const TowerBlock& block, int queries_keys_values,
                         const TokenTensor& queries);
  TokenTensor residual(const std::string& name, const TokenTensor& stream, TokenTensor branch,
                       const TowerBlock& block);

  // Of the operator added last: `in` and `out` as it has them.
  ImageOperator& image(const ImageShape& in, const ImageShape& out);
  ImageOperator& sequence(const TokenTensor& in, const TokenTensor& out);

  std::vector<Operator> operators_;
  int layer_ = 0;
  double norm_epsilon_ = 1e-5;
  Activation activation_ = Activation::gelu_erf;
};

}  // namespace orrery::internal
