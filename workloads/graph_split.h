// How tensor ranks share the large operators of a model that is no transformer.
//
// Such a model's rows are samples. Its tensor ranks each take a share of a micro-batch's samples through
// every operator that is not split (Workload's `replicated`), as data parallelism does; where an operator is
// split, all of them compute all samples with a part of its weights. "One weird trick for parallelizing
// convolutional neural networks" (Krizhevsky, arXiv 1404.5997), section 4.
#pragma once

#include <vector>

#include "workloads/workload.h"

namespace orrery {

// An operator that passes features on one by one, or heads: split where what feeds it is.
bool keeps_features_apart(const Operator& op);
// Softmax attention of a sequence (ImageOperator), which comes whole with what makes its input.
bool is_sequence_attention(const Operator& op);
// What the degree of a split has to divide: output features, by row input features, or heads.
std::int64_t parts_to_share(const Operator& op, TensorSplit split);
// A product over whole features, or a table: what can be split by itself.
bool can_be_split(const Operator& op);

// Ways to split it: of a table column (its width), row (each rank has some rows, and partial outputs are
// summed) and table (each table whole on one rank).
bool can_be_split(const Operator& op, TensorSplit split);

// Marks a product or table and says which dimension of each parameter is split. Features are a parameter's
// dimension of the size of the product's n (column) or k (row; of a convolution the input channels).
void set_split(Operator* op, TensorSplit split);

// Marks what stands between column and row: operators that keep features apart, all of whose inputs are split
// by column and all of whose readers take features split. Returns the operator at fault, or -1: a row-split
// product wants an input whose features are split, and that nobody else reads whole.
int complete_splits(std::vector<Operator>* operators);

// Tables that are dealt out to `ranks` whole (TensorSplit::table): in turn, largest first, each to the rank
// with the fewest elements of those that do not have their share of the tables yet.
struct DealtRank {
  double elements = 0;  // of its tables
  double outputs = 0;   // that they put out for a sample
  int tables = 0;
};
std::vector<DealtRank> deal_tables(const std::vector<const Operator*>& tables, int ranks);

// How evenly a workload's lie.
struct DealtTables {
  double elements = 1;  // of all of them, the share that the fullest rank holds
  double outputs = 1;   // of what all of them put out, the largest share of one rank
};
DealtTables dealt_tables(const std::vector<Operator>& operators, int ranks);

// Of a column-split operator: some reader wants whole samples, so they are sent back after it.
bool features_return(const std::vector<Operator>& operators, int index);

// Operators that are split by themselves, in order.
std::vector<int> split_operators(const Workload& workload);

}  // namespace orrery
