#include "evidence/words/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "evidence/words/fields.h"
#include "evidence/words/rules.h"
#include "proto/evidence.pb.h"
#include "proto/textproto.h"
#include "proto/workload.pb.h"
#include "workloads/readers/catalog.h"

namespace orrery::evidence {
namespace {

constexpr int kUsualHeadDim = 128;
constexpr double kOtherModel = 0.25;  // of the logarithm of its parameters: another model of the same name
constexpr double kHeadsWiden = 0.03;  // Assumed::widens

std::string without_separators(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '-' || c == '_'; });
  return text;
}

bool is_letter_or_digit(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

// Whether `word` (no separators) stands in `name`, whatever separators are between its letters, and ends
// where one of the name's words does: "gpt2xl" in "GPT2-XL (tuned)", not in "gpt2-xlarge".
bool names_whole(const std::string& name, const std::string& word) {
  for (std::size_t begin = 0; begin < name.size(); ++begin) {
    if (begin > 0 && is_letter_or_digit(name[begin - 1])) continue;
    std::size_t at = begin, matched = 0;
    for (; at < name.size() && matched < word.size(); ++at) {
      if (name[at] == word[matched])
        ++matched;
      else if (name[at] != ' ' && name[at] != '-' && name[at] != '_' && name[at] != '.')
        break;
    }
    if (matched == word.size() && (at == name.size() || !is_letter_or_digit(name[at]))) return true;
  }
  return false;
}

// The parameters that a name says, as in "GPT3-6.7B" and "OPT-350M"; 0: none.
double size_in(const std::string& name) {
  for (std::size_t at = 0; at < name.size(); ++at) {
    if (std::isdigit(static_cast<unsigned char>(name[at])) == 0) continue;
    char* end = nullptr;
    const double number = std::strtod(name.c_str() + at, &end);
    at = static_cast<std::size_t>(end - name.c_str());
    while (*end == ' ') ++end;
    const bool whole = *end != 0 && std::isalpha(static_cast<unsigned char>(end[1])) == 0;
    if (whole && std::tolower(*end) == 'b') return number * 1e9;
    if (whole && std::tolower(*end) == 'm') return number * 1e6;
  }
  return 0;
}

// The model of the catalog that has this name, the longest where there are several, if the row leaves its
// shape to its name: layers, or experts, for which tables have no columns. None: of these parameters there is
// no such model.
std::optional<proto::PublishedModel> catalog_model(const std::string& name, double parameters, bool shaped) {
  static const std::vector<WorkloadEntry> catalog = catalog_workloads();
  std::string found;
  for (const WorkloadEntry& entry : catalog)
    if (entry.name.size() > found.size() && names_whole(name, without_separators(entry.name)))
      found = entry.name;
  if (found.empty()) return std::nullopt;
  const Workload workload = load_workload(found);
  if (!workload.transformer || (shaped && !workload.transformer->moe)) return std::nullopt;
  const double own = static_cast<double>(workload.parameters());
  if (parameters > 0 && std::abs(std::log(parameters / own)) > kOtherModel) return std::nullopt;
  proto::PublishedModel model;
  model.set_catalog(found);
  return model;
}

proto::Transformer transformer_of(const proto::PublishedModel& known) {
  proto::Workload workload;
  *workload.mutable_transformer() = known.transformer();
  if (!known.catalog().empty()) to_proto(load_workload(known.catalog()), &workload);
  if (!known.changes().empty())
    merge_textproto(known.changes(), "evidence/data/models.textproto", workload.mutable_transformer());
  return workload.transformer();
}

double parameters_of(const proto::PublishedModel& known) {
  proto::Workload message;
  message.set_name(known.word(0));
  *message.mutable_transformer() = transformer_of(known);
  message.mutable_transformer()->set_max_positions(1);
  return static_cast<double>(workload_from_proto(message, known.word(0), "").parameters());
}

// The public model that has this name, the longest where there are several. None: the name says another size.
std::optional<proto::PublishedModel> named_model(const std::string& name) {
  const proto::PublishedModel* found = nullptr;
  std::size_t longest = 0;
  for (const proto::PublishedModel& model : published_models().named())
    for (const std::string& word : model.word())
      if (word.size() > longest && names_whole(name, word)) {
        found = &model;
        longest = word.size();
      }
  if (found == nullptr) return std::nullopt;
  const double size = size_in(name);
  if (size > 0 && std::abs(std::log(size / parameters_of(*found))) > kOtherModel) return std::nullopt;
  return *found;
}

// By the table of published names where it has more than a family of this one, then by the catalog's.
proto::PublishedModel known_model(const StatedModel& stated) {
  const std::string name = lower(stated.name);
  if (stated.own)
    if (auto named = named_model(name)) return *std::move(named);
  const std::string joined = without_separators(name);
  for (const proto::PublishedModel& model : published_models().model()) {
    if (std::none_of(model.word().begin(), model.word().end(),
                     [&](const std::string& word) { return contains(name, word) || contains(joined, word); }))
      continue;
    const bool whole = !model.catalog().empty() || model.fixed() || !model.skip().empty() ||
                       model.transformer().layers() > 0;
    if (whole) return model;
    return catalog_model(name, stated.parameters > 0 ? stated.parameters : size_in(name), stated.shaped())
        .value_or(model);
  }
  throw Unreadable{"no model is like '" + stated.name + "'"};
}

// As wide as most models' are, and dealt evenly to eight tensor ranks where that can be.
void set_heads(proto::Transformer* t, std::vector<Assumed>* assumed) {
  const auto off = [&](int heads) {
    return std::abs(t->hidden() / heads - kUsualHeadDim) + (heads % 8 == 0 ? 0 : kUsualHeadDim);
  };
  int best = 1;
  for (int heads = 1; heads <= t->hidden() / 8; ++heads)
    if (t->hidden() % (heads * 8) == 0 && off(heads) < off(best)) best = heads;
  if (t->hidden() % best != 0 || t->hidden() == 0) return;
  t->set_heads(best);
  if (assumed != nullptr)
    assumed->push_back(
        {fmt::format("{} heads", best), "about 128 wide, as most models' are", kHeadsWiden, true});
}

// The shape of a model of which only the size is known: the nearest published, with as many layers as the
// size takes (a layer's parameters: 12 hidden^2).
void set_shape(double parameters, proto::Transformer* t, std::vector<Assumed>* assumed) {
  const proto::PublishedModels& known = published_models();
  if (t->hidden() > 0) {
    t->set_layers(std::max(1, static_cast<int>(std::lround(parameters / 12 / t->hidden() / t->hidden()))));
    if (assumed != nullptr)
      assumed->push_back({fmt::format("{} layers", t->layers()), "as many as its parameters take",
                          known.shape_widens() / 2, true});
    return;
  }
  const auto distance = [&](const proto::PublishedShape& shape) {
    return std::abs(std::log(shape.parameters() / parameters));
  };
  const proto::PublishedShape& shape =
      *std::min_element(known.shape().begin(), known.shape().end(),
                        [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  t->set_layers(std::max(1, static_cast<int>(std::lround(shape.layers() * parameters / shape.parameters()))));
  t->set_hidden(shape.hidden());
  t->set_heads(shape.heads());
  if (assumed != nullptr)
    assumed->push_back(
        {fmt::format("{} layers, hidden size {}, {} heads", t->layers(), t->hidden(), t->heads()),
         known.shape_why(), known.shape_widens(), true});
}

void set_dimensions(const StatedModel& model, proto::Transformer* t, std::vector<Assumed>* assumed) {
  const bool other =
      (model.hidden > 0 && model.hidden != t->hidden()) || (model.heads > 0 && model.heads != t->heads());
  if (model.layers > 0) t->set_layers(model.layers);
  if (model.hidden > 0) t->set_hidden(model.hidden);
  if (model.heads > 0) t->set_heads(model.heads);
  const double parameters = model.parameters > 0 ? model.parameters : size_in(model.name);
  if (t->layers() == 0 && parameters > 0) set_shape(parameters, t, assumed);
  if (t->heads() == 0) set_heads(t, assumed);
  if (t->layers() == 0 || t->hidden() == 0 || t->heads() == 0)
    throw Unreadable{"layers, hidden size or heads are not stated"};
  if (model.kv_heads > 0) t->set_kv_heads(model.kv_heads);
  if (t->kv_heads() == 0) t->set_kv_heads(t->heads());
  if (model.ffn_hidden > 0) t->set_ffn_hidden(model.ffn_hidden);
  // A gated MLP has three matrices for two: Llama's width, of 8/3 in whole 256.
  if (t->ffn_hidden() == 0 && t->gated_ffn()) t->set_ffn_hidden((t->hidden() * 8 / 3 + 255) / 256 * 256);
  if (t->ffn_hidden() == 0) t->set_ffn_hidden(4 * t->hidden());
  if (model.vocab > 0) t->set_vocab(model.vocab);
  if (other || t->head_dim() == 0) {
    if (t->hidden() % t->heads() != 0) throw Unreadable{"the heads do not divide the hidden size"};
    t->set_head_dim(t->hidden() / t->heads());
  }
  t->set_max_positions(std::max(1, model.seq_len));
}

}  // namespace

int known_seq_len(const StatedModel& model) {
  const proto::PublishedModel known = known_model(model);
  return known.catalog().empty() ? 0 : load_workload(known.catalog()).default_seq_len;
}

Workload workload_of(const StatedModel& model, const std::vector<std::string>& changes,
                     std::vector<Assumed>* assumed) {
  const proto::PublishedModel known = known_model(model);
  if (!known.skip().empty()) throw Unreadable{known.skip() + ": '" + model.name + "'"};
  proto::Workload message;
  message.set_name(model.name);
  message.set_default_seq_len(model.seq_len);
  proto::Transformer& transformer = *message.mutable_transformer();
  transformer = transformer_of(known);
  if (!known.fixed()) set_dimensions(model, &transformer, assumed);
  for (const std::string& text : changes) merge_textproto(text, "a rule's model", &transformer);
  if (transformer.has_moe()) {
    proto::MixtureOfExperts& moe = *transformer.mutable_moe();
    moe.set_first_dense_layers(std::min(moe.first_dense_layers(), transformer.layers() - 1));
  }
  return workload_from_proto(message, model.name, "");
}

}  // namespace orrery::evidence
