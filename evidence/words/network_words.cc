#include "evidence/words/network_words.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <regex>
#include <string>

#include "evidence/words/rules.h"

namespace orrery::evidence {
namespace {

// InfiniBand's generations, four lanes: InfiniBand Trade Association, "InfiniBand Roadmap".
struct Generation {
  std::regex words;
  double gigabits;
};
const std::array<Generation, 8>& generations() {
  static const std::array<Generation, 8> all = {{{std::regex("\\bhdr ?100\\b"), 100},
                                                 {std::regex("\\bndr ?200\\b"), 200},
                                                 {std::regex("\\bxdr"), 800},
                                                 {std::regex("\\bndr"), 400},
                                                 {std::regex("\\bhdr"), 200},
                                                 {std::regex("\\bedr"), 100},
                                                 {std::regex("\\bfdr"), 56},
                                                 {std::regex("\\bqdr"), 40}}};
  return all;
}

// Nothing where the words name none.
std::optional<Transport> transport_of(const std::string& entry) {
  static const std::regex infiniband("\\binfiniband\\b|\\bib\\b|\\b[xnhefq]dr([0-9]|\\b)");
  static const std::regex roce("\\broce|\\brdma\\b|\\befa");
  static const std::regex plain("ethernet|gbe\\b|\\btcp\\b|\\bena\\b");
  if (std::regex_search(entry, infiniband)) return Transport::infiniband;
  if (std::regex_search(entry, roce)) return Transport::roce;
  return std::regex_search(entry, plain) ? std::optional(Transport::tcp) : std::nullopt;
}

PortWords::Of scope_of(const std::string& entry, PortWords::Of otherwise) {
  static const std::regex device("(\\bper |/ ?|\\ba |\\beach )(gpu|device|accelerator|chip)\\b");
  static const std::regex node("(\\bper |/ ?|\\ba |\\beach )(node|server|machine|host|instance)\\b");
  if (std::regex_search(entry, device)) return PortWords::Of::device;
  return std::regex_search(entry, node) ? PortWords::Of::node : otherwise;
}

std::optional<PortWords> read_entry(const std::string& entry) {
  static const std::regex terabits("([0-9]+\\.?[0-9]*) ?t(b|bit)");
  static const std::regex counted("\\b([0-9]{1,2}) ?x(.*?)\\b([0-9]+\\.?[0-9]*) ?g(b|e|bit|\\b)");
  static const std::regex counted_name("\\b([0-9]{1,2}) ?x.*?\\b([xnhefq]dr)");
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
    for (const Generation& known : generations())
      if (found.gigabits == 0 && std::regex_search(entry, known.words)) found.gigabits = known.gigabits;
    // A generation's rate is a port's; a device may have one.
    if (scope_of(entry, PortWords::Of::port) == PortWords::Of::device) found.of = PortWords::Of::device;
  }
  const bool plausible = found.gigabits >= 1 && found.gigabits <= 1e5 && found.ports <= kMostPorts;
  return plausible ? std::optional(found) : std::nullopt;
}

// Bytes a second become bits; bytes alone are memory's, and go.
std::string in_bits(const std::string& words) {
  static const std::regex bytes("([0-9]+\\.?[0-9]*) ?([GT])(B|Bytes?)(/s|/Sec|/sec|ps|p/s)?\\b");
  std::string text;
  auto from = words.cbegin();
  for (std::sregex_iterator at(words.begin(), words.end(), bytes), end; at != end; ++at) {
    text.append(from, (*at)[0].first);
    if ((*at)[4].matched)
      text += fmt::format("{:g} {}b/s", 8 * std::atof((*at)[1].str().c_str()), (*at)[2].str());
    from = (*at)[0].second;
  }
  return text.append(from, words.cend());
}

}  // namespace

std::optional<PortWords> ports_in_words(std::string_view words) {
  std::string text = lower(in_bits(std::string(words.substr(0, 500))));
  for (std::size_t at = text.find("×"); at != std::string::npos; at = text.find("×"))
    text.replace(at, 2, "x");
  std::optional<PortWords> fastest;
  double most = 0;
  static const std::regex between(",|;|\\||\\band\\b"), compute("compute"), amazon("\\befa");
  static const std::regex beside("storage|management|pcie|nvlink|nvswitch|memory|\\bram\\b|hbm");
  for (std::sregex_token_iterator at(text.begin(), text.end(), between, -1), end; at != end; ++at) {
    const std::string entry = *at;
    if (std::regex_search(entry, beside) && !std::regex_search(entry, compute)) continue;
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
  if (fastest && fastest->ports == 0 && fastest->of == PortWords::Of::port && std::regex_search(text, amazon))
    fastest->of = PortWords::Of::node;
  return fastest;
}

}  // namespace orrery::evidence
