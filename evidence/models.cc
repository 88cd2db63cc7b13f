#include "evidence/models.h"

#include <algorithm>

#include "evidence/fields.h"
#include "evidence/rules.h"
#include "proto/evidence.pb.h"
#include "proto/textproto.h"
#include "proto/workload.pb.h"
#include "workloads/readers/catalog.h"

namespace orrery::evidence {
namespace {

const proto::PublishedModel& known_model(const std::string& stated) {
  const std::string name = lower(stated);
  for (const proto::PublishedModel& model : published_models().model())
    if (std::any_of(model.word().begin(), model.word().end(),
                    [&](const std::string& word) { return contains(name, word); }))
      return model;
  throw Unreadable{"no model is like '" + stated + "'"};
}

proto::Transformer transformer_of(const proto::PublishedModel& known) {
  proto::Workload workload;
  *workload.mutable_transformer() = known.transformer();
  if (!known.catalog().empty()) to_proto(load_workload(known.catalog()), &workload);
  if (!known.changes().empty())
    merge_textproto(known.changes(), "evidence/data/models.textproto", workload.mutable_transformer());
  return workload.transformer();
}

void set_dimensions(const StatedModel& model, proto::Transformer* t) {
  const bool other =
      (model.hidden > 0 && model.hidden != t->hidden()) || (model.heads > 0 && model.heads != t->heads());
  if (model.layers > 0) t->set_layers(model.layers);
  if (model.hidden > 0) t->set_hidden(model.hidden);
  if (model.heads > 0) t->set_heads(model.heads);
  if (t->layers() == 0 || t->hidden() == 0 || t->heads() == 0)
    throw Unreadable{"layers, hidden size or heads are not stated"};
  if (model.kv_heads > 0) t->set_kv_heads(model.kv_heads);
  if (t->kv_heads() == 0) t->set_kv_heads(t->heads());
  if (model.ffn_hidden > 0) t->set_ffn_hidden(model.ffn_hidden);
  if (t->ffn_hidden() == 0) t->set_ffn_hidden(4 * t->hidden());
  if (model.vocab > 0) t->set_vocab(model.vocab);
  if (other || t->head_dim() == 0) {
    if (t->hidden() % t->heads() != 0) throw Unreadable{"the heads do not divide the hidden size"};
    t->set_head_dim(t->hidden() / t->heads());
  }
  t->set_max_positions(std::max(1, model.seq_len));
}

}  // namespace

Workload workload_of(const StatedModel& model, const std::vector<std::string>& changes) {
  const proto::PublishedModel& known = known_model(model.name);
  if (!known.skip().empty()) throw Unreadable{known.skip() + ": '" + model.name + "'"};
  proto::Workload message;
  message.set_name(model.name);
  message.set_default_seq_len(model.seq_len);
  proto::Transformer& transformer = *message.mutable_transformer();
  transformer = transformer_of(known);
  if (!known.fixed()) set_dimensions(model, &transformer);
  for (const std::string& text : changes) merge_textproto(text, "a rule's model", &transformer);
  if (transformer.has_moe()) {
    proto::MixtureOfExperts& moe = *transformer.mutable_moe();
    moe.set_first_dense_layers(std::min(moe.first_dense_layers(), transformer.layers() - 1));
  }
  return workload_from_proto(message, model.name, "");
}

}  // namespace orrery::evidence
