// What the page of a report is made of, for a page that shows the same and more (serve/).
#pragma once

#include <string>
#include <string_view>

namespace orrery {

std::string page_scripts();  // without the one that shows a report once the page is there
std::string_view page_style();
std::string_view charts_library();

}  // namespace orrery
