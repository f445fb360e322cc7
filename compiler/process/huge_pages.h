// Fewer, larger pages for memory that each copy of a process shares.
#pragma once

namespace lockstep::compiler {

/// Has the kernel join the pages of this process's own memory, so that copies of it start and end sooner: they copy a
/// page table with an entry for 2 MB instead of 512. A page that a copy changes is split again. Does nothing where the
/// kernel can't (before Linux 6.1, or without huge pages).
void join_pages();

}  // namespace lockstep::compiler
