#include "evidence/words/network_words.h"

#include <array>
#include <cstdlib>
#include <regex>
#include <string>

#include "evidence/words/rules.h"

namespace orrery::evidence {
namespace {

// InfiniBand's generations, four lanes: InfiniBand Trade Association, "InfiniBand Roadmap".
struct Generation {
  const char* name;
  double gigabits;
};
constexpr std::array<Generation, 8> kGenerations = {{{"hdr100", 100},
                                                     {"ndr200", 200},
                                                     {"xdr", 800},
                                                     {"ndr", 400},
                                                     {"hdr", 200},
                                                     {"edr", 100},
                                                     {"fdr", 56},
                                                     {"qdr", 40}}};

bool has(const std::string& text, std::string_view word) {
  return contains(text, word);
}

// Nothing where the words name none.
std::optional<Transport> transport_of(const std::string& entry) {
  static const std::regex infiniband("infiniband|\\bib\\b|[xnhefq]dr");
  static const std::regex plain("ethernet|gbe|tcp|\\bena\\b");
  if (std::regex_search(entry, infiniband)) return Transport::infiniband;
  if (has(entry, "roce") || has(entry, "rdma") || has(entry, "efa")) return Transport::roce;
  return std::regex_search(entry, plain) ? std::optional(Transport::tcp) : std::nullopt;
}

PortWords::Of scope_of(const std::string& entry, PortWords::Of otherwise) {
  static const std::regex device("(per|/|a|each) ?(gpu|device|accelerator|chip)");
  static const std::regex node("(per|/|a|each) ?(node|server|machine|host|instance)");
  if (std::regex_search(entry, device)) return PortWords::Of::device;
  return std::regex_search(entry, node) ? PortWords::Of::node : otherwise;
}

std::optional<PortWords> read_entry(const std::string& entry) {
  static const std::regex terabits("([0-9]+\\.?[0-9]*) ?t(b|bit)");
  static const std::regex counted("([0-9]+) ?x(.*?)([0-9]+) ?g(b|e|bit|\\b)");
  static const std::regex counted_name("([0-9]+) ?x.*?([xnhefq]dr)");
  static const std::regex rate("([0-9]+\\.?[0-9]*) ?g(b|e|bit|\\b)");
  PortWords found;
  std::smatch match;
  const auto number = [&](std::size_t at) { return std::atof(match[at].str().c_str()); };
  if (std::regex_search(entry, match, terabits)) {
    found.gigabits = 1000 * number(1);
    found.of = scope_of(entry, PortWords::Of::node);
  } else if (std::regex_search(entry, match, counted)) {
    found.ports = static_cast<int>(number(1));
    found.gigabits = number(3);
  } else if (std::regex_search(entry, match, rate)) {
    found.gigabits = number(1);
    found.of = scope_of(entry, PortWords::Of::port);
  } else {
    if (std::regex_search(entry, match, counted_name)) found.ports = static_cast<int>(number(1));
    for (const Generation& known : kGenerations)
      if (found.gigabits == 0 && has(entry, known.name)) found.gigabits = known.gigabits;
    found.of = scope_of(entry, PortWords::Of::port);
    if (found.of == PortWords::Of::node) found.of = PortWords::Of::port;  // a generation's is a port's
  }
  const bool plausible = found.gigabits >= 1 && found.gigabits <= 1e5 && found.ports <= 64;
  return plausible ? std::optional(found) : std::nullopt;
}

}  // namespace

std::optional<PortWords> ports_in_words(std::string_view words) {
  std::string text = lower(std::string(words.substr(0, 500)));
  for (std::size_t at = text.find("×"); at != std::string::npos; at = text.find("×"))
    text.replace(at, 2, "x");
  std::optional<PortWords> fastest;
  double most = 0;
  static const std::regex between(",|;|\\||\\band\\b");
  for (std::sregex_token_iterator at(text.begin(), text.end(), between, -1), end; at != end; ++at) {
    const std::string entry = *at;
    const bool beside = has(entry, "storage") || has(entry, "management") || has(entry, "pcie");
    if (beside && !has(entry, "compute")) continue;
    const std::optional<PortWords> found = read_entry(entry);
    if (!found) continue;
    const double total = found->gigabits * std::max(1, found->ports);
    const bool says_more = found->ports > 0 || found->of != PortWords::Of::port;
    if (total < most || (total == most && !says_more)) continue;
    most = total;
    fastest = found;
    fastest->transport = transport_of(entry).value_or(transport_of(text).value_or(Transport::roce));
  }
  // Amazon states the sum of an instance's ports.
  if (fastest && fastest->ports == 0 && fastest->of == PortWords::Of::port && has(text, "efa"))
    fastest->of = PortWords::Of::node;
  return fastest;
}

}  // namespace orrery::evidence
