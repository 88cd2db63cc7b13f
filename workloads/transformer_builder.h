// Builds a transformer's operators from its dimensions (transformer_operators in workload.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "workloads/tensor_names.h"
#include "workloads/workload.h"

namespace orrery::internal {

class TransformerBuilder {
 public:
  explicit TransformerBuilder(const Transformer& model);
  std::vector<Operator> build();

 private:
  // A weight and its bias, [out, in] unless the family transposes.
  struct Linear {
    std::string name;
    std::int64_t out = 0;
    std::int64_t in = 0;
    TensorSplit split = TensorSplit::replicated;
    int parts = 1;
    bool bias = false;
  };

  // Adds an operator and gives its index.
  int add(OperatorKind kind, TensorSplit split, std::string name, int layer, std::vector<int> inputs,
          std::int64_t output_elements, double vector_elements = 0);
  void tensor(int op, std::string name, std::vector<std::int64_t> shape, int split_dim = -1, int parts = 1);
  void weights(int op, const Linear& w);
  int linear(std::string name, int layer, int input, const Linear& w);
  void norm_weights(int op, const std::string& name, std::int64_t width);
  void query_key_norms(int op, const std::string& t);
  int norm(std::string name, int layer, int input, const std::string& tensor_name);
  int residual(std::string name, int layer, std::vector<int> branches);
  int embedding();
  // The norm of what a branch puts out, where the model has one.
  std::vector<int> normed(std::string name, int layer, std::vector<int> branches,
                          const std::string& tensor_name);
  // Rotary positions read and write queries and keys; their norms do so again.
  double rotary_elements(std::int64_t heads, double rotary_dim, double norm_dim) const;
  int attention(const std::string& p, int layer, int window_layer, std::vector<int> inputs, int qk_dim,
                int v_dim, int kv_heads, double vector_elements);
  int self_attention(const std::string& p, const std::string& t, int layer, int window_layer, int input,
                     bool rotary);
  // Sparse attention's choice of keys (DeepSeek-V3.2): operators that attention waits for.
  std::vector<int> indexer(const std::string& p, const std::string& s, int layer, int input, int low_rank);
  // Multi-head latent attention: DeepSeek-V2, arXiv 2405.04434, section 2.1.
  int latent_attention(const std::string& p, const std::string& t, int layer, int window_layer, int input);
  // Mamba-2 (arXiv 2405.21060, section 7): one product gives gate, input, maps B and C, and step sizes.
  // Gated delta rule: the same with two numbers a head; lightning attention: with none.
  int state_space(const std::string& p, const std::string& t, int layer, int input);
  // Mamba (arXiv 2312.00752, section 3.4).
  int selective_scan(const std::string& p, const std::string& t, int layer, int input);
  int mlp(const std::string& p, const std::string& t, const std::string& prefix, const std::string& gate,
          const std::string& up_name, const std::string& down_name, int layer, int input, std::int64_t width,
          const char* kind);
  void expert_tensor(int op, const std::string& name, std::int64_t rows, std::int64_t columns, int split_dim);
  // Gives the branches of the residual: the experts, and the shared experts where there are some.
  std::vector<int> experts(const std::string& p, const std::string& t, int layer, int input);
  std::vector<int> feed_forward(const std::string& p, const std::string& t, int layer, bool with_experts,
                                int input);
  // One thing between a norm and its residual: the first or second of its layer.
  void single_block(char letter, int place, int layer, const std::string& t, const std::string& p);
  // One block on `stream_`. `number` is its layer in the checkpoint, `layer` where it stands in the pipeline.
  void block(int layer, int number, const std::string& p);
  // Head and cross entropy on `input`; `also` are other losses that the last operator adds.
  int head_and_loss(const std::string& p, int input, const std::string& weight, bool tied,
                    const std::vector<int>& also);
  void tail(std::vector<int> losses);
  // One multi-token prediction module (DeepSeek-V3, arXiv 2412.19437, section 2.2): the hidden state beside
  // the next token's embedding, projected to one, through a block to the shared head.
  int multi_token(int module);

  const Transformer& m_;
  const TensorNames& names_;
  const std::int64_t h_;
  const bool transposed_;
  const bool mlp_bias_;
  const std::vector<std::string> pattern_;  // letters of each layer, of a model with a layer_pattern
  std::vector<Operator> operators_;
  int stream_ = -1;  // the operator whose output is the residual stream
};

}  // namespace orrery::internal
