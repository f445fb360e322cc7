// Writes names as people do. libstdc++, libc10 and LibTorch demangle through __cxa_demangle, which the worker replaces
// (worker/interpose/demangle.cpp), so that what the compiler adds to names of cells never shows: in `std::cout << net`,
// in error texts, in stacks.
#pragma once
#include <string>
#include <string_view>
#include <typeinfo>

namespace lockstep::worker {

/// Takes the tags of cells (`[abi:__cell_7]`) out of a demangled name, in place. Returns the new length.
size_t clean_name(char* name, size_t length);
/// Does the same, and takes out the numbers that clang gives types without a name: `{lambda}`, `{unnamed}`. Types of
/// the standard library are named as people write them: `std::string`, `std::vector<int>`, without inline namespaces
/// and default arguments.
std::string clean_name(std::string name);

/// Returns the clean demangled form; `symbol` itself where it is not mangled.
std::string demangle(const char* symbol);
std::string demangle(const std::type_info& type);

}  // namespace lockstep::worker
