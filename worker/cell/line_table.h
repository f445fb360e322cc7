// The line table of one loaded cell: which line, of which cell, an address stands for, inlined calls included.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::worker {

struct SourcePlace {
  std::string function;  // as the debug information has it; empty where it says nothing
  bool inlined = false;
  std::string file;
  int line = 0;
};

class LineTable {
 public:
  /// Reads the object at `path`. A file that can't be read gives an empty table.
  explicit LineTable(const std::string& path);
  ~LineTable();

  /// Innermost inlined call first; the last one is the function that holds `address` (an offset in the object).
  std::vector<SourcePlace> lookup(uint64_t address) const;
  /// The symbol that covers `address`, mangled; empty where there is none. Local symbols too.
  std::string symbol(uint64_t address) const;
  /// Its value.
  uint64_t symbol_start(uint64_t address) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::worker
