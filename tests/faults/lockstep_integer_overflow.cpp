// Counts in bytes, whose sum over ranks does not fit into one.
// symptom: an accuracy or a histogram that is far too low with more ranks
// run: `%%lockstep` over the cell with the reduction
// cause: masks and counts in uint8
// fix: convert to int64 before the reduction
// ranks: 2
// expect: lockstep:mismatch kind=overflow ranks=0-1 op=all_reduce where=here

// %% counts
auto counts = torch::full({4}, 200, torch::kUInt8);
// %% a sum
%%lockstep
dist::all_reduce(counts);  // <- here
