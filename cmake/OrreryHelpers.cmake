# Shared settings: warnings, sanitizers, ccache, a fast linker, and the shape of a folder's library.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Protobuf REQUIRED)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(orrery_options INTERFACE)
target_include_directories(orrery_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
target_compile_options(orrery_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>)
# g++ 12 sees overlapping copies in `"literal" + string` at -O3 (GCC bug 105329).
target_compile_options(orrery_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
# g++ gives back what a file needed at its end, instead of looking for it all the time: a tenth to a fifth of the time, for
# a quarter more memory (1.2 GB where it is most).
target_compile_options(orrery_options INTERFACE
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param=ggc-min-expand=1000 --param=ggc-min-heapsize=4000000>")
if(ORRERY_WERROR)
  target_compile_options(orrery_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(ORRERY_SANITIZE)
  target_compile_options(orrery_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ORRERY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(orrery_options INTERFACE -fsanitize=${ORRERY_SANITIZE})
endif()
find_program(MOLD mold)
if(MOLD)
  target_link_options(orrery_options INTERFACE -fuse-ld=mold)
endif()

# What reads, writes and talks: optimised less in a release, and not at all under sanitizers, which saves a third of its
# compilation and no time that anybody waits for. Bodies of loops that predict, search, simulate or train are elsewhere.
if(ORRERY_SANITIZE)
  set(ORRERY_LIGHT $<$<COMPILE_LANGUAGE:CXX>:-O0>)
else()
  set(released $<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>)
  set(ORRERY_LIGHT $<${released}:-O1>)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # At -O1 it inlines as at -O2. What is small is enough: three quarters of the time, half the code. (Without any, what
    # libraries share of templates, parsers of JSON above all, is five times as slow, whoever calls it.)
    list(APPEND ORRERY_LIGHT "SHELL:$<${released}:-mllvm -inline-threshold=20 -mllvm -inlinehint-threshold=40>")
  endif()
endif()

# What loops for long in no sanitized test of CI: optimised in full in a release, not at all under sanitizers, where that
# takes clang a third of the time (planner/space 12 s, and not 37).
set(ORRERY_PLAIN_SANITIZED "")
if(ORRERY_SANITIZE)
  set(ORRERY_PLAIN_SANITIZED ${ORRERY_LIGHT})
endif()

# What most files include of the standard library, fmt, JSON and Catch, compiled once for each set of flags and not a
# hundred times (clang in preset asan: 2 to 3 s of a file's 7 to 10). Not with g++, which needs a second to read them, saves
# a twelfth in all, and then warns of what is in system headers. A file still includes what it uses: `dev` has none of this.
set(ORRERY_PRECOMPILE OFF)
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
  set(ORRERY_PRECOMPILE ON)
  if(CCACHE)  # the sloppiness without which it keeps nothing that has precompiled headers (its manual)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  endif()
endif()
# orrery_headers(NAME OPTIONS.. LIBRARIES.. HEADERS..): a library of nothing whose precompiled headers others reuse.
function(orrery_headers name)
  cmake_parse_arguments(A "" "" "OPTIONS;LIBRARIES;HEADERS" ${ARGN})
  file(TOUCH ${CMAKE_BINARY_DIR}/${name}.cc)
  add_library(${name} STATIC ${CMAKE_BINARY_DIR}/${name}.cc)
  target_compile_options(${name} PRIVATE ${A_OPTIONS})
  target_link_libraries(${name} PRIVATE orrery_options fmt::fmt nlohmann_json::nlohmann_json protobuf::libprotobuf
    ${A_LIBRARIES})
  target_precompile_headers(${name} PRIVATE
    <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <limits> <map>
    <memory> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <tuple> <unordered_map> <utility>
    <variant> <vector> <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp> <google/protobuf/extension_set.h>
    <google/protobuf/generated_message_reflection.h> <google/protobuf/message.h> <google/protobuf/repeated_field.h>
    ${A_HEADERS})
endfunction()
if(ORRERY_PRECOMPILE)
  orrery_headers(orrery_headers)
  orrery_headers(orrery_headers_light OPTIONS ${ORRERY_LIGHT})
endif()

# orrery_library(NAME [LIGHT | PLAIN_SANITIZED] SOURCES... ): one folder, one target orrery_NAME, every .cc of the folder
# unless SOURCES are given.
function(orrery_library name)
  cmake_parse_arguments(A "LIGHT;PLAIN_SANITIZED" "" "SOURCES" ${ARGN})
  if(NOT A_SOURCES)
    file(GLOB A_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  endif()
  if(NOT A_SOURCES)
    set(A_SOURCES ${CMAKE_BINARY_DIR}/empty.cc)
    file(TOUCH ${A_SOURCES})
  endif()
  add_library(orrery_${name} STATIC ${A_SOURCES})
  target_link_libraries(orrery_${name} PUBLIC orrery_options)
  if(A_LIGHT)
    target_compile_options(orrery_${name} PRIVATE ${ORRERY_LIGHT})
  elseif(A_PLAIN_SANITIZED)
    target_compile_options(orrery_${name} PRIVATE ${ORRERY_PLAIN_SANITIZED})
  endif()
  if(ORRERY_PRECOMPILE)
    set(headers orrery_headers)
    if(A_LIGHT OR (A_PLAIN_SANITIZED AND ORRERY_SANITIZE))
      set(headers orrery_headers_light)
    endif()
    target_precompile_headers(orrery_${name} REUSE_FROM ${headers})
  endif()
endfunction()

# orrery_vectorised(TARGET SOURCES .. OPTIONS ..): of the folder's files those whose loops must vectorise in every build
# type, with those OPTIONS. Each function is compiled for several instruction sets (base/vectors/clones.h), which clang 16
# cannot (it leaves x86-64-v3 out): where a release is clang's, g++ compiles these.
find_program(ORRERY_GXX g++)
set(ORRERY_VECTORS_APART OFF)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT ORRERY_SANITIZE AND ORRERY_GXX
   AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(ORRERY_VECTORS_APART ON)
endif()
function(orrery_vectorised target)
  cmake_parse_arguments(A "" "" "SOURCES;OPTIONS" ${ARGN})
  set(options -O3 -fopenmp-simd -fno-trapping-math -Wno-unknown-pragmas ${A_OPTIONS})
  # clang says of each loop that a build for the debugger does not vectorise it.
  set_source_files_properties(${A_SOURCES} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON
    COMPILE_OPTIONS "${options};$<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>")
  if(NOT ORRERY_VECTORS_APART)
    return()
  endif()
  set_source_files_properties(${A_SOURCES} PROPERTIES HEADER_FILE_ONLY ON)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  foreach(source IN LISTS A_SOURCES)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${ORRERY_GXX} -std=c++${CMAKE_CXX_STANDARD} -DNDEBUG -fPIC -I${CMAKE_SOURCE_DIR} -I${CMAKE_BINARY_DIR} -Wall -Wextra
              $<$<BOOL:${ORRERY_WERROR}>:-Werror> ${options} -MD -MF ${object}.d -MT ${object}
              -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}
      DEPFILE ${object}.d
      COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_sources(${target} PRIVATE ${object})
  endforeach()
endfunction()

# orrery_embed(TARGET SYMBOL FILES...): data files inside the binary, as a sorted table
#   extern const std::vector<orrery::EmbeddedFile>& SYMBOL();   (base/embedded.h)
function(orrery_embed target symbol)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cc)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DSYMBOL=${symbol} "-DFILES=${ARGN}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
