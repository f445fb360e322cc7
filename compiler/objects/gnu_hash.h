// The hash table by which the dynamic loader finds a symbol in a shared object (DT_GNU_HASH).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::compiler {

/// Source: the ELF gABI of GNU, https://sourceware.org/legacy-ml/binutils/2006-10/msg00377.html.
uint32_t gnu_hash(std::string_view name);

/// Returns the number of buckets of a table for `count` symbols.
uint32_t gnu_hash_buckets(size_t count);

/// Makes the section. `hashes` are those of the defined symbols, in the order of the symbol table, which is the order of
/// their buckets (hash modulo gnu_hash_buckets). `first` is the index of the first of them in that table.
std::string gnu_hash_section(const std::vector<uint32_t>& hashes, uint32_t first);

}  // namespace lockstep::compiler
